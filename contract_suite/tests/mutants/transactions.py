"""Engines whose transactions are wrong."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from alkstore_contract_suite.mutation import mutant, rewrite
from alkstore_core import JobState, Queue, Store, Transaction, encode_payload, store, transaction
from alkstore_core.engine import Claim
from alkstore_core.errors import CodecError, DatabaseError
from alkstore_core.options import DEFAULT_STAMP
from alkstore_mem.connection import Connection
from alkstore_mem.database import Changes, Database
from alkstore_mem.engine import MemEngine
from alkstore_mem.transaction import Autocommit, MemTransaction
from alkstore_mem.writer import Turn, WriterSlot


@mutant(
    kills=[
        "transactions/commit_publishes_all",
        "transactions/commit_is_seen_whole",
        "transactions/reads_see_own_writes",
        "transactions/no_ghosts",
        "transactions/enlisted_commits_with_the_caller",
        "transactions/enlisted_rolls_back_with_the_caller",
        "transactions/reading_beside_ones_own_transaction",
        "transactions/explicit_handle_is_decided_by_its_owner",
    ]
)
def shows_staged_writes_to_everybody(patch):
    stage = Changes.put

    def put(self, table, key, row):
        stage(self, table, key, row)
        if table is not self.database.wakes:
            table.store(key, row, 0)

    patch.setattr(Changes, "put", put)


@mutant(
    kills=[
        "transactions/commit_publishes_all",
        "transactions/whoever_is_woken_finds_the_rest",
        "transactions/no_ghosts",
        "transactions/enlisted_commits_with_the_caller",
        "transactions/savepoint_takes_its_wakes_with_it",
        "notify/transaction_notifies_at_the_commit",
    ]
)
def wakes_before_the_commit(patch):
    def wake(self, topic):
        for engine in self.database.engines:
            engine.wake(frozenset({topic}))

    patch.setattr(Changes, "wake", wake)


@mutant(
    kills=[
        "transactions/rollback_leaves_nothing",
        "transactions/no_ghosts",
        "transactions/rollback_is_not_cancelled",
        "transactions/explicit_handle_is_decided_by_its_owner",
        "transactions/enlisted_rolls_back_with_the_caller",
        "transactions/refused_write_beside_a_transaction_did_nothing",
        "transactions/background_work_stays_off_the_transaction",
    ]
)
def commits_instead_of_rolling_back(patch):
    patch.setattr(MemTransaction, "rollback", MemTransaction.commit)


@mutant(kills=["transactions/rollback_leaves_nothing", "transactions/no_ghosts"])
def enqueues_outside_the_transaction(patch):
    async def enqueue(self, queue, payload):
        database = self._session.changes.database
        holder, database.slot.holder = database.slot.holder, None
        session = self._session._engine.autocommit()
        job_id = (await session.insert_jobs(queue, [encode_payload(payload)], DEFAULT_STAMP))[0]
        database.slot.holder = holder
        return job_id

    patch.setattr(Transaction, "enqueue", enqueue)


@mutant(
    kills=["transactions/commit_publishes_all", "transactions/enlisted_commits_with_the_caller"],
    hangs=True,
)
def never_wakes(patch):
    def apply(self, changes, now):
        changes.layers[0].pop(self.wakes, None)
        right(self, changes, now)

    right = Database._apply
    patch.setattr(Database, "_apply", apply)


@mutant(kills=["transactions/no_ghosts"])
def commits_when_a_block_raises(patch):
    async def decide(tx):
        if tx.is_open:
            await tx.commit()

    patch.setattr(store, "_roll_back_undecided", decide)


@mutant(kills=["transactions/no_ghosts"])
def commits_what_is_dropped(patch):
    def abandon(self):
        database = self.changes.database
        database.defer(lambda: (database._apply(self.changes, 0), database.slot.leave(self.turn)))

    patch.setattr(MemTransaction, "abandon", abandon)


@mutant(kills=["transactions/no_ghosts", "transactions/transaction_of_a_closed_store_is_closed"])
def outlives_its_store(patch):
    patch.setattr(WriterSlot, "evict", lambda *_: None)


@mutant(kills=["transactions/dropped_handles_give_their_place_back"])
def keeps_the_place_of_what_is_dropped(patch):
    patch.setattr(MemTransaction, "abandon", lambda _: None)


@mutant(kills=["transactions/dropped_handle_says_where_it_was_opened"])
def does_not_say_where_it_was_opened(patch):
    patch.setattr(transaction, "_caller", lambda: "somewhere")


@mutant(kills=["transactions/commit_is_seen_whole", "store/cancelled_transaction_happens_or_does_not"])
def commits_row_by_row(patch):
    right = MemTransaction.commit

    async def commit(self):
        self.changes.merge(0)
        for table, staged in list(self.changes.layers[0].items()):
            if table is not self.changes.database.wakes:
                for key, row in self.changes.layers[0].pop(table).items():
                    table.store(key, row, self.now())
                    await asyncio.sleep(0)
                assert staged is not None
        await right(self)

    patch.setattr(MemTransaction, "commit", commit)


@mutant(
    kills=[
        "transactions/block_commits_on_a_clean_exit",
        "transactions/explicit_handle_is_decided_by_its_owner",
        "transactions/refused_call_leaves_the_transaction_usable",
    ]
)
def forgets_to_commit(patch):
    patch.setattr(MemTransaction, "commit", MemTransaction.rollback)


@mutant(kills=["transactions/block_may_decide_by_itself"])
def decides_a_block_twice(patch):
    patch.setattr(Transaction, "is_open", property(lambda _: True))


@mutant(kills=["transactions/block_commits_on_a_clean_exit"])
def rolls_every_block_back(patch):
    @asynccontextmanager
    async def block(self):
        async with self.begin_tx() as tx:
            yield tx

    patch.setattr(Store, "transaction", block)


@mutant(kills=["transactions/rollback_is_not_cancelled"])
def lets_a_rollback_be_cancelled(patch):
    right = MemTransaction.rollback

    async def rollback(self):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await right(self)

    patch.setattr(MemTransaction, "rollback", rollback)


@mutant(kills=["transactions/explicit_handle_is_decided_by_its_owner"])
def ties_a_transaction_to_its_task(patch):
    right = Transaction._live

    def live(self):
        session = right(self)
        if not session.turn.is_mine():
            raise DatabaseError("this transaction belongs to another task: use it there")
        return session

    patch.setattr(Transaction, "_live", live)


@mutant(kills=["transactions/reads_see_own_writes", "transactions/get_job_looks_in_the_named_queue"])
def reads_what_is_committed_only(patch):
    patch.setattr(MemTransaction, "writing", MemTransaction.reading)

    async def reading(self):
        await asyncio.sleep(0)
        return committed(self)

    @contextmanager
    def committed(self):
        with self.changes.database.exclusive():
            self.changes.database.slot.check(self.turn)
            yield Changes(self.changes.database)

    patch.setattr(MemTransaction, "reading", reading)


@mutant(kills=["transactions/reads_change_nothing"])
def saves_the_offset_that_it_read_to(patch):
    right = Transaction.read_from_consumer

    async def read_from_consumer(self, stream, consumer, limit=100):
        events = await right(self, stream, consumer, limit)
        if events:
            await self.save_offset(stream, consumer, events[-1].offset)
        return events

    patch.setattr(Transaction, "read_from_consumer", read_from_consumer)


@mutant(kills=["transactions/get_job_looks_in_the_named_queue"])
def gets_jobs_of_any_queue(patch):
    async def get_job(self, _, job_id):
        return await self._live().find_job(job_id, None)

    patch.setattr(Transaction, "get_job", get_job)


@mutant(kills=["transactions/no_claims_and_locks_on_a_transaction"])
def claims_on_a_transaction(patch):
    patch.setattr(Transaction, "claim_one", Queue.claim_one, raising=False)


@mutant(kills=["transactions/lock_outlives_a_rollback"])
def releases_locks_at_a_rollback(patch):
    right = MemTransaction.rollback

    async def rollback(self):
        self.changes.database.locks.rows.clear()
        await right(self)

    patch.setattr(MemTransaction, "rollback", rollback)


@mutant(kills=["transactions/claim_outlives_a_rollback", "transactions/background_work_stays_off_the_transaction"])
def gives_claims_back_at_a_rollback(patch):
    right = MemTransaction.rollback

    async def rollback(self):
        jobs = self.changes.database.jobs
        for job_id, row in list(jobs.rows.items()):
            if row.job.state is JobState.PROCESSING:
                pending = replace(row.job, state=JobState.PENDING, worker_id=None, claim_expires_at=None)
                jobs.store(job_id, Claim(pending, 0), self.now())
        await right(self)

    patch.setattr(MemTransaction, "rollback", rollback)


@mutant(kills=["transactions/ended_transaction_is_closed"])
def says_something_else_after_the_end(patch):
    def live(self):
        if self._session is None:
            raise DatabaseError("this transaction has ended: begin another one")
        return self._session

    patch.setattr(Transaction, "_live", live)


@mutant(kills=["transactions/refused_call_leaves_the_transaction_usable"])
def breaks_off_at_a_refused_call(patch):
    right = Transaction.enqueue

    async def enqueue(self, *arguments, **options):
        try:
            return await right(self, *arguments, **options)
        except CodecError:
            self._session.changes.layers[:] = [{}]
            raise

    patch.setattr(Transaction, "enqueue", enqueue)


@mutant(kills=["transactions/refused_commit_leaves_nothing_open"], engine="sqlite")
def keeps_the_connection_of_a_failed_commit(patch):
    from alkstore_sqlite.engine import SqliteEngine

    async def discard(self, connection):
        self.take_back(connection)

    patch.setattr(SqliteEngine, "discard", discard)


# enlisted


@mutant(kills=["transactions/savepoint_takes_its_part_with_it", "transactions/savepoint_takes_its_wakes_with_it"])
def keeps_what_a_savepoint_took_back(patch):
    def discard(self, depth):
        for layer in self.layers[depth + 1 :]:
            for table, staged in layer.items():
                self.layers[depth].setdefault(table, {}).update(staged)
        del self.layers[depth + 1 :]

    patch.setattr(Changes, "discard", discard)


@mutant(kills=["transactions/savepoint_takes_its_wakes_with_it"])
def wakes_in_spite_of_a_savepoint(patch):
    def wake(self, topic):
        self.layers[0].setdefault(self.database.wakes, {})[topic] = True

    patch.setattr(Changes, "wake", wake)


@mutant(kills=["transactions/enlisted_is_not_decided_here"])
def decides_what_is_the_callers(patch):
    def take(self, _):
        return self._live()

    patch.setattr(Transaction, "_take", take)


@mutant(kills=["transactions/dropped_enlisted_handle_changes_nothing"])
def ends_the_callers_transaction_when_dropped(patch):
    right = Transaction.__del__

    def drop(self):
        if self._enlisted:
            self._session.changes.database.slot.leave(self._session.turn)
        right(self)

    patch.setattr(Transaction, "__del__", drop)


@mutant(
    kills=[
        "transactions/handles_enlisted_twice_share_the_transaction",
        "transactions/savepoint_takes_its_part_with_it",
        "transactions/concurrent_calls_on_an_enlisted_transaction",
        "transactions/enlisted_ends_with_the_callers_transaction",
    ]
)
def gives_each_handle_its_own_changes(patch):
    right = MemEngine.enlist

    def enlist(self, connection):
        joined = right(self, connection)
        joined.changes = Changes(self.database)
        return joined

    patch.setattr(MemEngine, "enlist", enlist)


@mutant(kills=["transactions/enlist_refuses_anything_else"])
def does_not_say_what_it_cannot_enlist(patch):
    def enlist(*_):
        raise DatabaseError("this cannot be joined: give something else")

    patch.setattr(MemEngine, "enlist", enlist)


@mutant(kills=["transactions/enlist_refuses_anything_else"])
def enlists_anything(patch):
    patch.setattr(MemEngine, "enlist", lambda *_: None)


@mutant(
    kills=[
        "transactions/enlist_refuses_a_connection_without_a_transaction",
        "transactions/enlisted_ends_with_the_callers_transaction",
    ]
)
def enlists_what_has_ended(patch):
    def enlist(self, connection):
        if not isinstance(connection, Connection):
            raise DatabaseError(f"a {type(connection).__name__} cannot be joined: give a connection")
        return MemTransaction(self, connection.transaction.turn, connection.transaction.changes, connection)

    patch.setattr(MemEngine, "enlist", enlist)


@mutant(kills=["transactions/enlisted_ends_with_the_callers_transaction"])
def commits_by_itself_after_the_callers_end(patch):
    right = MemTransaction._staging

    @contextmanager
    def staging(self):
        database = self.changes.database
        if database.slot.holder is self.turn:
            with right(self) as changes:
                yield changes
        else:
            with database.exclusive():
                changes = Changes(database)
                yield changes
                database._apply(changes, self.now())

    patch.setattr(MemTransaction, "_staging", staging)


# two tasks, one writer


@mutant(
    kills=[
        "transactions/concurrent_calls_on_one_transaction",
        "transactions/concurrent_calls_on_an_enlisted_transaction",
    ]
)
def writes_back_what_it_read_before_it_waited(patch):
    right = MemTransaction.writing

    async def writing(self):
        staging = await right(self)
        before = [{table: dict(rows) for table, rows in layer.items()} for layer in self.changes.layers]
        await asyncio.sleep(0)
        self.changes.layers[:] = before
        return staging

    patch.setattr(MemTransaction, "writing", writing)


@mutant(
    kills=[
        "transactions/background_work_stays_off_the_transaction",
        "transactions/refused_write_beside_a_transaction_did_nothing",
    ]
)
def writes_on_whatever_transaction_is_open(patch):
    right_begin, right_writing = MemEngine.begin, Autocommit.writing
    opened = []

    async def begin(self):
        opened.append(await right_begin(self))
        return opened[-1]

    async def writing(self):
        if opened and self._engine.database.slot.holder is opened[-1].turn:
            return await opened[-1].writing()
        return await right_writing(self)

    patch.setattr(MemEngine, "begin", begin)
    patch.setattr(Autocommit, "writing", writing)


@mutant(
    kills=[
        "transactions/writing_beside_ones_own_transaction",
        "transactions/writing_beside_ones_own_enlisted_transaction",
    ],
    hangs=True,
)
def waits_for_itself(patch):
    patch.setattr(Turn, "is_mine", lambda _: False)


@mutant(kills=["transactions/reading_beside_ones_own_transaction", "transactions/reads_see_own_writes"])
def refuses_to_read_beside_a_transaction(patch):
    right = Autocommit.reading

    async def reading(self):
        holder = self._engine.database.slot.holder
        if holder is not None and holder.is_mine():
            raise DatabaseError("this task holds an open transaction: read on that")
        return await right(self)

    patch.setattr(Autocommit, "reading", reading)


@mutant(
    kills=["transactions/other_tasks_wait_for_the_writer", "transactions/background_work_stays_off_the_transaction"]
)
def refuses_everybody_beside_a_transaction(patch):
    right = WriterSlot.take

    async def take(self, turn, busy_timeout):
        if self.holder is not None:
            raise DatabaseError("a transaction is open: wait for its end")
        await right(self, turn, busy_timeout)

    patch.setattr(WriterSlot, "take", take)


@mutant(kills=["transactions/waiting_for_the_writer_ends"], hangs=True)
def waits_for_the_writer_for_ever(patch):
    right = WriterSlot.take
    patch.setattr(WriterSlot, "take", lambda self, turn, _: right(self, turn, 1e6))


@mutant(kills=["transactions/handle_that_a_task_returned_and_nobody_took"])
def keeps_the_task_that_began_it(patch):
    rewrite(patch, Turn, "__init__", "weakref.ref(task)", "(lambda: task)")


@mutant(kills=["transactions/late_statement_lands_nowhere"])
def lets_a_kept_connection_write(patch):
    rewrite(patch, WriterSlot, "check", "if self.holder is not turn", "if self.holder is None")
