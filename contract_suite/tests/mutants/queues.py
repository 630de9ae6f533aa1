"""Engines whose queues are wrong."""

from alkstore_contract_suite.mutation import mutant
from alkstore_mem import backlog


@mutant(kills=["queues/claim_order"])
def claims_in_the_order_of_ids(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, 0, job.id))


@mutant(kills=["queues/claim_order"])
def ignores_priority(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, job.ready_at, job.id))
