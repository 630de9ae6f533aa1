"""Engines whose store is wrong: what it offers, how it closes, what a cancellation leaves, where it may be used."""

import asyncio
import inspect
import os
import threading
import weakref

from alkstore_contract_suite.mutation import mutant
from alkstore_core import (
    EventReceiver,
    Job,
    Queue,
    StopToken,
    Store,
    Stream,
    StreamEvent,
    WakeReceiver,
    cancellation,
)
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.home import Home
from alkstore_core.opening import Opening
from alkstore_core.values import Wake
from alkstore_mem import MemStore
from alkstore_mem.database import Changes
from alkstore_mem.engine import MemEngine
from alkstore_mem.harness import MemHarness
from alkstore_mem.locks import LockSession
from alkstore_mem.queues import QueueSession
from alkstore_mem.streams import StreamSession
from alkstore_mem.transaction import MemTransaction
from alkstore_mem.writer import Turn


async def _turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


# what it offers


@mutant(kills=["store/surface"])
def takes_an_option_of_its_own(patch):
    right = Store.notify

    async def notify(self, channel, payload=None, ttl=None):
        assert ttl is None
        await right(self, channel, payload)

    patch.setattr(MemStore, "notify", notify, raising=False)


@mutant(kills=["store/surface"])
def reads_a_thousand_by_default(patch):
    right = Stream.read_since

    async def read_since(self, offset, limit=1000):
        return await right(self, offset, limit)

    patch.setattr(Stream, "read_since", read_since)


@mutant(kills=["store/no_capability_query"])
def tells_its_capabilities(patch):
    patch.setattr(MemStore, "supports_cross_process_wakes", False, raising=False)


@mutant(kills=["store/open_belongs_to_the_engine"])
def opens_a_store_of_no_class_of_its_own(patch):
    def open_store(self, **_):
        return Store.opening(MemEngine(self._name, self.clock, 5.0))

    patch.setattr(MemHarness, "open", open_store)


@mutant(kills=["store/option_sets_are_closed"])
def ignores_options_that_it_does_not_know(patch):
    for kind, name in ((Store, "queue"), (Queue, "enqueue")):
        right = getattr(kind, name)
        known = inspect.signature(right).parameters

        def lenient(self, first, right=right, known=known, **options):
            return right(self, first, **{option: value for option, value in options.items() if option in known})

        patch.setattr(kind, name, lenient)


@mutant(kills=["store/open_refuses_unknown_schemes_and_opens_by_url"], engine="sqlite")
def takes_the_url_for_the_path(patch):
    from alkstore_sqlite import SqliteStore

    right = SqliteStore.from_url
    patch.setattr(SqliteStore, "from_url", lambda url, **options: right(f"{url}.db", **options))


@mutant(kills=["store/values_do_not_change"])
def lets_values_change(patch):
    for kind in (Job, StreamEvent, Wake):
        patch.setattr(kind, "__setattr__", object.__setattr__)


@mutant(kills=["store/values_do_not_change"])
def names_states_otherwise(patch):
    from alkstore_core import JobState

    patch.setattr(JobState.DEAD, "_value_", "failed")


@mutant(kills=["store/stop_token"], hangs=True)
def tells_one_waiter_only(patch):
    def cancel(self):
        self._cancelled = True
        waiter = next(iter(self._waiters))
        waiter.get_loop().call_soon_threadsafe(lambda: waiter.done() or waiter.set_result(None))

    patch.setattr(StopToken, "cancel", cancel)


@mutant(kills=["store/stop_token"])
def forgets_that_it_was_cancelled(patch):
    patch.setattr(StopToken, "is_cancelled", property(lambda _: False))


# handles and opening


@mutant(kills=["store/handles_touch_nothing"])
def looks_a_new_handle_up(patch):
    right = Store.queue

    def queue(self, name, **options):
        looking.append(asyncio.ensure_future(self.session().next_due(name)))
        return right(self, name, **options)

    looking = []
    patch.setattr(Store, "queue", queue)


@mutant(kills=["store/handles_touch_nothing"])
def registers_a_new_stream(patch):
    right = Store.stream

    def stream(self, name):
        self.engine.database.events.store(0, StreamEvent(0, name, None, b"null", 0), 0)
        return right(self, name)

    patch.setattr(Store, "stream", stream)


@mutant(kills=["store/handles_of_one_name_are_independent"])
def gives_the_handle_that_it_gave_before(patch):
    right = Store.queue
    given = {}

    def queue(self, name, **options):
        return given.setdefault((self, name), right(self, name, **options))

    patch.setattr(Store, "queue", queue)


@mutant(kills=["store/opened_by_await_or_with", "store/close_is_idempotent", "store/cancelled_close_is_seen_through"])
def takes_jobs_when_closed(patch):
    right = Queue.enqueue

    async def enqueue(self, payload, **options):
        try:
            return await right(self, payload, **options)
        except ClosedError:
            return 0

    patch.setattr(Queue, "enqueue", enqueue)


@mutant(kills=["store/others_are_opened_by_await_or_with"], hangs=True)
def leaves_receivers_open_that_were_entered(patch):
    right = Opening.__aexit__

    async def leave(self, *raised):
        if isinstance(self._opened, WakeReceiver | EventReceiver):
            self._opened = None
        await right(self, *raised)

    patch.setattr(Opening, "__aexit__", leave)


# closing


@mutant(kills=["store/closed_store_refuses_everything"])
def reads_on_when_closed(patch):
    right = Stream.read_since

    async def read_since(self, offset, limit=100):
        try:
            return await right(self, offset, limit)
        except ClosedError:
            return []

    patch.setattr(Stream, "read_since", read_since)


@mutant(kills=["store/close_is_idempotent", "store/cancelled_close_is_seen_through"])
def refuses_to_close_twice(patch):
    right = Store.close

    async def close(self):
        if self._session is None:
            raise ClosedError("this store is closed: it cannot be closed again")
        await right(self)

    patch.setattr(Store, "close", close)


@mutant(kills=["store/cancelled_close_is_seen_through"], hangs=True)
def breaks_off_a_cancelled_close(patch):
    async def close(self):
        if self._session is not None:
            self._session = None
            await _turns(3)
            await self.engine.close()

    patch.setattr(Store, "close", close)


_LEAKY = [
    "store/close_leaves_nothing_running",
    "store/cancelled_listening_leaves_nothing",
    "store/cancelled_open_leaves_nothing",
    "store/cancellations_leave_nothing_running",
]


@mutant(kills=_LEAKY)
def leaves_a_task_running(patch):
    right = MemEngine.open

    async def open_engine(self):
        await right(self)
        kept.append(asyncio.ensure_future(asyncio.Event().wait()))

    kept = []
    patch.setattr(MemEngine, "open", open_engine)


@mutant(kills=_LEAKY)
def leaves_a_thread_running(patch):
    right = MemEngine.open

    async def open_engine(self):
        await right(self)
        threading.Thread(target=threading.Event().wait, args=(2,), daemon=True).start()

    patch.setattr(MemEngine, "open", open_engine)


@mutant(kills=["store/close_leaves_nothing_running", "store/cancelled_open_leaves_nothing"])
def leaves_a_file_open(patch):
    right = MemEngine.open

    async def open_engine(self):
        await right(self)
        weakref.finalize(self._loop, os.close, os.open(__file__, os.O_RDONLY))  # until the leg's loop is gone

    patch.setattr(MemEngine, "open", open_engine)


@mutant(kills=["store/closing_one_store_leaves_others_alone"])
def takes_the_locks_along_when_it_closes(patch):
    right = MemEngine.close

    async def close(self):
        self.database.locks.rows.clear()
        await right(self)

    patch.setattr(MemEngine, "close", close)


@mutant(kills=["store/closing_one_store_leaves_others_alone"])
def closes_all_receivers_when_one_store_closes(patch):
    right = MemEngine.close

    async def close(self):
        engines = list(self.database.engines)
        await right(self)
        for engine in engines:
            engine._hub.close()

    patch.setattr(MemEngine, "close", close)


@mutant(kills=["store/close_loses_nothing_under_way"])
def takes_back_what_is_done_when_it_closes(patch):
    right = QueueSession.insert_jobs

    async def insert_jobs(self, *arguments):
        ids = await right(self, *arguments)
        await _turns(2)
        assert self._engine.database  # raises where the store was closed
        return ids

    patch.setattr(QueueSession, "insert_jobs", insert_jobs)


@mutant(kills=["store/close_loses_nothing_under_way"], hangs=True)
def leaves_those_hanging_who_wait_when_it_closes(patch):
    right = StreamSession.append_events

    async def append_events(self, *arguments):
        try:
            return await right(self, *arguments)
        except ClosedError:
            await asyncio.Event().wait()

    patch.setattr(StreamSession, "append_events", append_events)


# cancellation


@mutant(kills=["store/cancelled_write_happens_or_does_not", "store/cancelled_caller_harms_no_other"])
def inserts_one_after_the_other(patch):
    right = QueueSession.insert_jobs
    batches = {}

    async def insert_jobs(self, queue, payloads, stamp):
        # A batch that its callers share, and that ends with whoever of them is cancelled.
        batch = batches.get(self._engine)
        if batch is None or batch.done():
            batch = batches[self._engine] = asyncio.get_running_loop().create_future()
            batch.get_loop().call_soon(lambda: batch.get_loop().call_soon(lambda: batch.done() or batch.set_result(0)))
        await batch
        return [job_id for payload in payloads for job_id in await right(self, queue, [payload], stamp)]

    patch.setattr(QueueSession, "insert_jobs", insert_jobs)


@mutant(kills=["store/cancelled_write_happens_or_does_not"])
def says_done_before_it_is(patch):
    right = StreamSession.save_offset

    async def save_offset(self, *arguments):
        saving = asyncio.ensure_future(right(self, *arguments))
        await asyncio.sleep(0)
        if saving.cancel():
            return

    patch.setattr(StreamSession, "save_offset", save_offset)


@mutant(kills=["store/cancelled_claim_is_given_back"])
def keeps_the_claims_of_the_cancelled(patch):
    right = QueueSession.claim_jobs

    async def claim_jobs(self, *arguments):
        claims = await right(self, *arguments)
        await asyncio.sleep(0)
        return claims

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["store/cancelled_claim_is_given_back"])
def counts_the_attempts_of_the_cancelled(patch):
    right = QueueSession.claim_jobs

    async def claim_jobs(self, *arguments):
        claims = await right(self, *arguments)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            for claim in claims:
                await self.retry_claim(claim, "cancelled", 0)
            raise
        return claims

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["store/cancelled_lock_is_given_back"])
def keeps_the_lock_of_the_cancelled(patch):
    right = LockSession.take_lock

    async def take_lock(self, *arguments):
        grant = await right(self, *arguments)
        await asyncio.sleep(0)
        return grant

    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["store/cancelled_asking_again_keeps_the_lock"])
def gives_back_what_it_held_before(patch):
    right = LockSession.take_lock

    async def take_lock(self, *arguments):
        grant = await right(self, *arguments)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if grant is not None:
                await self.release_lock(grant)
            raise
        return grant

    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["store/cancelled_begin_leaves_no_transaction"])
def leaves_the_transaction_of_a_cancelled_begin(patch):
    async def begin(self):
        turn = Turn(self)
        await self.database.slot.take(turn, 5.0)
        await asyncio.sleep(0)
        return MemTransaction(self, turn, Changes(self.database))

    patch.setattr(MemEngine, "begin", begin)


@mutant(kills=["store/cancelled_transaction_happens_or_does_not", "store/cancelled_end_is_decided"])
def lets_a_commit_be_cancelled(patch):
    right = MemTransaction.commit

    async def commit(self):
        await _turns(2)
        await right(self)

    patch.setattr(MemTransaction, "commit", commit)


@mutant(kills=["store/cancelled_end_is_decided"])
def decides_a_cancelled_end_in_the_background(patch):
    for name in ("commit", "rollback"):
        right = getattr(MemTransaction, name)

        async def later(self, right=right):
            await _turns(4)
            await right(self)

        async def end(self, later=later):
            ending = asyncio.ensure_future(later(self))
            _endings.add(ending)
            await asyncio.shield(ending)

        patch.setattr(MemTransaction, name, end)


_endings: set[object] = set()


@mutant(kills=["store/cancelled_call_on_a_transaction_tells_no_lie"])
def undoes_a_transaction_at_a_cancelled_call(patch):
    right = StreamSession.append_events

    async def append_events(self, *arguments):
        try:
            return await right(self, *arguments)
        except asyncio.CancelledError:
            if isinstance(self, MemTransaction):
                self.changes.layers[:] = [{}]
            raise

    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["store/cancelled_read_harms_nothing"], hangs=True)
def loses_a_reader_to_each_cancelled_read(patch):
    right = StreamSession.read_events
    readers = asyncio.Semaphore(3)

    async def read_events(self, *arguments):
        await readers.acquire()
        await asyncio.sleep(0)
        events = await right(self, *arguments)
        readers.release()
        return events

    patch.setattr(StreamSession, "read_events", read_events)


@mutant(kills=["store/cancelled_listening_leaves_nothing"])
def keeps_the_subscription_of_a_cancelled_listen(patch):
    right = MemEngine.watch

    async def watch(self, topic):
        subscription = await right(self, topic)
        await asyncio.sleep(0)
        return subscription

    patch.setattr(MemEngine, "watch", watch)


@mutant(kills=["store/cancelled_scheduler_lets_go"])
def leads_on_when_cancelled(patch):
    right = LockSession.release_lock

    async def release_lock(self, grant):
        return True if grant.name.startswith("__") else await right(self, grant)

    patch.setattr(LockSession, "release_lock", release_lock)


# a commit whose outcome is in doubt


def _severed(patch, outcome):
    """A server whose connections can be cut, which memory is not: a cut during a commit ends in `outcome`."""
    right = MemTransaction.commit
    cuts = [0]

    async def sever(_):
        cuts[0] += 1

    async def commit(self):
        before = cuts[0]
        await _turns(5)
        if cuts[0] == before:
            await right(self)
        else:
            await outcome(self, right)

    patch.setattr(MemHarness, "unsupported", {})
    patch.setattr(MemHarness, "sever", sever)
    patch.setattr(MemTransaction, "commit", commit)


@mutant(kills=["store/commit_around_a_lost_connection"])
def reports_an_unknown_commit_as_a_plain_failure(patch):
    async def outcome(self, right):
        await right(self)
        raise DatabaseError("the connection was lost: try again")

    _severed(patch, outcome)


@mutant(kills=["store/commit_around_a_lost_connection"])
def reports_a_lost_commit_as_done(patch):
    async def outcome(self, _):
        await self.rollback()

    _severed(patch, outcome)


# where it may be used


@mutant(
    kills=[
        "store/other_loop_is_refused_everywhere",
        "store/other_loop_is_refused_on_a_transaction",
        "store/store_belongs_to_the_loop_that_opened_it",
        "store/forked_child_is_refused_and_harms_nothing",
    ]
)
def is_at_home_on_every_loop(patch):
    patch.setattr(Home, "check", lambda _: None)


@mutant(kills=["store/other_loop_is_refused_everywhere"])
def receives_on_every_loop(patch):
    async def try_recv(self):
        woken = self._subscription.take()
        return None if woken is None else self._wake(woken)

    patch.setattr(WakeReceiver, "try_recv", try_recv)


@mutant(kills=["store/forked_child_is_refused_and_harms_nothing"])
def drops_the_parents_store_in_a_fork(patch):
    patch.setattr(Home, "is_forked", property(lambda _: False))


def _list_all_tasks(patch):
    patch.setattr(cancellation, "unlist", lambda _: None)


@mutant(kills=["store/cancelling_all_tasks_gives_jobs_back"])
def lists_the_tasks_of_its_workers(patch):
    _list_all_tasks(patch)


@mutant(kills=["store/cancelling_all_tasks_wedges_nothing"], engine="sqlite")
def lists_the_tasks_that_end_things(patch):
    _list_all_tasks(patch)
