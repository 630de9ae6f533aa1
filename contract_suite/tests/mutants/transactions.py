"""Engines whose transactions are wrong."""

from alkstore_contract_suite.mutation import mutant
from alkstore_core import Transaction, encode_payload
from alkstore_core.options import DEFAULT_STAMP
from alkstore_mem.database import Changes, Database
from alkstore_mem.transaction import MemTransaction


@mutant(kills=["transactions/commit_publishes_all"])
def shows_staged_writes_to_everybody(patch):
    stage = Changes.put

    def put(self, table, key, row):
        stage(self, table, key, row)
        if table is not self.database.wakes:
            table.store(key, row, 0)

    patch.setattr(Changes, "put", put)


@mutant(kills=["transactions/commit_publishes_all"])
def wakes_before_the_commit(patch):
    def wake(self, topic):
        for engine in self.database.engines:
            engine.wake(frozenset({topic}))

    patch.setattr(Changes, "wake", wake)


@mutant(kills=["transactions/rollback_leaves_nothing"])
def commits_instead_of_rolling_back(patch):
    patch.setattr(MemTransaction, "rollback", MemTransaction.commit)


@mutant(kills=["transactions/rollback_leaves_nothing"])
def enqueues_outside_the_transaction(patch):
    async def enqueue(self, queue, payload):
        database = self._session.changes.database
        holder, database.slot.holder = database.slot.holder, None
        session = self._session._engine.autocommit()
        job_id = (await session.insert_jobs(queue, [encode_payload(payload)], DEFAULT_STAMP))[0]
        database.slot.holder = holder
        return job_id

    patch.setattr(Transaction, "enqueue", enqueue)


@mutant(kills=["transactions/commit_publishes_all"], hangs=True)
def never_wakes(patch):
    def apply(self, changes, now):
        changes.layers[0].pop(self.wakes, None)
        right(self, changes, now)

    right = Database._apply
    patch.setattr(Database, "_apply", apply)
