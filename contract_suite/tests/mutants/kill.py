"""Engines that lose or keep the wrong things when a process is killed."""

# ruff: noqa: ARG001, ARG005 - a wrong engine takes the arguments of the right one

from alkstore_contract_suite.mutation import mutant
from alkstore_core import Lock, Queue, Transaction


@mutant(kills=["kill/acknowledged_enqueue_survives"], engine="sqlite", in_children=True)
def acknowledges_an_enqueue_before_it_is_stored(patch):
    async def enqueue(self, payload):
        return 1

    patch.setattr(Queue, "enqueue", enqueue)


@mutant(kills=["kill/acknowledged_commit_survives"], engine="sqlite", in_children=True)
def acknowledges_a_commit_and_rolls_back(patch):
    patch.setattr(Transaction, "commit", Transaction.rollback)


@mutant(kills=["kill/open_transaction_leaves_nothing"], engine="sqlite", in_children=True)
def commits_at_a_notify(patch):
    async def notify(self, channel):
        await self._session.commit()

    patch.setattr(Transaction, "notify", notify)


@mutant(kills=["kill/batches_are_whole"], engine="sqlite", in_children=True)
def loses_the_last_of_a_batch(patch):
    right = Queue.enqueue_many

    async def enqueue_many(self, payloads):
        ids = await right(self, list(payloads)[:-1])
        return [*ids, ids[-1] + 1]

    patch.setattr(Queue, "enqueue_many", enqueue_many)


@mutant(
    kills=["kill/claims_of_the_dead_are_redelivered", "kill/worker_takes_over_from_the_dead"],
    engine="sqlite",
    in_children=True,
)
def deletes_on_claim(patch):
    right = Queue.claim_batch

    async def claim_batch(self, worker_id, n):
        claimed = await right(self, worker_id, n)
        for handle in claimed:
            await handle.ack()
        return claimed

    patch.setattr(Queue, "claim_batch", claim_batch)


@mutant(kills=["kill/lock_of_the_dead_lapses", "kill/numbers_are_never_reused"], engine="sqlite")
def starts_tokens_anew(patch):
    patch.setattr(Lock, "token", property(lambda self: 1))


@mutant(kills=["kill/numbers_are_never_reused"], engine="sqlite", in_children=True)
def reuses_the_ids_of_deleted_rows(patch):
    from alkstore_sqlite import setup

    right = setup.known_migrations

    def known_migrations():
        return tuple(step._replace(sql=step.sql.replace("AUTOINCREMENT", "")) for step in right())

    patch.setattr(setup, "known_migrations", known_migrations)


@mutant(kills=["kill/consumer_resumes_exactly_once"], engine="sqlite", in_children=True)
def forgets_the_checkpoint(patch):
    async def save_offset(self, stream, consumer, offset):
        pass

    patch.setattr(Transaction, "save_offset", save_offset)


@mutant(kills=["kill/scheduler_fires_each_boundary_once"], engine="sqlite", in_children=True)
def fires_boundaries_twice(patch):
    from alkstore_sqlite import scheduler

    right = scheduler.due_boundaries

    def due_boundaries(next_fire, interval_s, now):
        boundaries, following = right(next_fire, interval_s, now)
        return [boundary for boundary in boundaries for _ in range(2)], following

    patch.setattr(scheduler, "due_boundaries", due_boundaries)


@mutant(kills=["kill/scheduler_fires_each_boundary_once"], engine="sqlite", in_children=True, hangs=True)
def records_the_tick_without_the_job(patch):
    from alkstore_sqlite import scheduler

    right = scheduler.due_boundaries
    patch.setattr(scheduler, "due_boundaries", lambda *arguments: (right(*arguments)[0][:-1], right(*arguments)[1]))


@mutant(kills=["kill/worker_takes_over_from_the_dead"], engine="sqlite", in_children=True)
def gives_claims_up_at_once(patch):
    right = Queue.claim_batch

    async def claim_batch(self, worker_id, n):
        claimed = await right(self, worker_id, n)
        for handle in claimed:
            await handle.heartbeat(0)
        return claimed

    patch.setattr(Queue, "claim_batch", claim_batch)
