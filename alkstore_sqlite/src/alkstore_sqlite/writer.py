"""The writer thread: many callers' operations in one commit, and the slot that caller transactions take turns for.

Whatever is queued when the thread looks goes into one transaction, durable as a whole before any caller is told; that
is group commit. An operation that fails is then tried apart from the others, so nobody shares another's failure. A
caller's transaction gets the slot as a `Lease`, between two batches, and holds it until it ends.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue
from typing import Any

from alkstore_core.clock import Clock
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError
from alkstore_core.wakes import WakeHub

from alkstore_sqlite.database import Database, begin_immediate
from alkstore_sqlite.gate import Gate
from alkstore_sqlite.notify import bound_topics, new_stamp, stamp_topics
from alkstore_sqlite.operations import Operation, Scope, drive

BATCH_LIMIT = 1024
"""The most operations in one commit."""
_LOOK_S = 0.05
"""While the slot is taken, how often the waiting are looked at for one that has waited too long."""
_BOUND_TOPICS_BATCHES = 4096
"""After how many batches that wake somebody the number of stamped topics is looked at."""

Build = Callable[..., Operation[Any]]
Undo = Callable[[Any], "tuple[Build, tuple[Any, ...]] | None"]


class Request:
    """One operation that somebody waits for."""

    __slots__ = ("arguments", "build", "future", "since", "undo")

    def __init__(
        self, build: Build, arguments: tuple[Any, ...], future: "asyncio.Future[Any]", undo: Undo | None
    ) -> None:
        self.build = build
        self.arguments = arguments
        self.future = future
        self.undo = undo
        self.since = time.monotonic()


class Lease:
    """The writer slot, in the hands of one caller's transaction until `release`. From any thread; idempotent."""

    __slots__ = ("release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release


class LeaseRequest:
    """A caller's transaction in the queue for the slot."""

    __slots__ = ("future", "released", "since")

    def __init__(self, future: "asyncio.Future[Lease]") -> None:
        self.future = future
        self.released = threading.Event()
        self.since = time.monotonic()


Outcome = tuple[Request, Any, BaseException | None]


class Writer:
    """Owns the writing connection and the thread that uses it."""

    def __init__(self, database: Database, gate: Gate, clock: Clock, hub: WakeHub, stamps: dict[str, int]) -> None:
        self._database = database
        self._gate = gate
        self._clock = clock
        self._hub = hub
        self._stamps = stamps
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[Request | LeaseRequest | None] = SimpleQueue()
        self._requests: deque[Request] = deque()
        self._leases: deque[LeaseRequest] = deque()
        self._slot = threading.Lock()
        self._idle = False
        self._connection: sqlite3.Connection | None = None
        self._file = database.identity()
        self._batches = 0
        self._closing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="alkstore-sqlite-writer", daemon=True)

    def start(self, connection: sqlite3.Connection) -> None:
        """Take over `connection` and begin to serve."""
        self._connection = connection
        self._thread.start()

    # called on the loop

    def submit(self, build: Build, arguments: tuple[Any, ...], undo: Undo | None = None) -> "asyncio.Future[Any]":
        """Have an operation committed; a future of what it returns.

        `undo` gets that result, and names an operation that takes it back, if the future was cancelled meanwhile.
        """
        if self._ended.done():
            raise ClosedError("this store is closed: open another one")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._incoming.put(Request(build, arguments, future, undo))
        return future

    async def lease(self) -> Lease:
        """The slot, in turn.

        Raises:
            DatabaseError: it did not come within the busy timeout.
        """
        # With nobody before it a transaction takes the slot here and now: a hop to the thread and back would cost
        # it 0.1 ms.
        if self._idle and self._incoming.empty() and self._slot.acquire(blocking=False):
            if self._gate.try_enter():
                return Lease(_once(self._leave))
            self._slot.release()
        if self._ended.done():
            raise ClosedError("this store is closed: open another one")
        request = LeaseRequest(self._loop.create_future())
        self._incoming.put(request)
        try:
            return await request.future
        except BaseException:
            request.released.set()  # if it is granted all the same, it is given back at once
            raise

    async def close(self) -> None:
        """Finish what is queued, then end the thread and close the connection."""
        self._incoming.put(None)
        await self._ended
        self._thread.join()

    def forget(self) -> None:
        """End the thread without waiting for it."""
        self._incoming.put(None)

    # the thread

    def _run(self) -> None:
        try:
            while True:
                self._collect()
                if self._requests:
                    self._serve_batch()
                if self._leases:
                    self._serve_lease(self._leases.popleft())
                if self._closing and not self._requests and not self._leases and self._incoming.empty():
                    break
        finally:
            self._close_connection()
            self._post(self._end)

    def _close_connection(self) -> None:
        """Close behind the gate: the last connection to a database checkpoints when it closes."""
        entered = self._gate.enter(time.monotonic() + self._database.busy_timeout)
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()
        if entered:
            self._gate.leave()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _collect(self) -> None:
        """Take what has arrived; wait for something if there is nothing to do."""
        if self._requests or self._leases or self._closing:
            self._take_all()
            return
        self._idle = True
        item = self._incoming.get()
        self._idle = False
        self._sort(item)
        self._take_all()

    def _take_all(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._sort(self._incoming.get_nowait())

    def _sort(self, item: Request | LeaseRequest | None) -> None:
        if item is None:
            self._closing = True
        elif isinstance(item, Request):
            self._requests.append(item)
        else:
            self._leases.append(item)

    def _serve_batch(self) -> None:
        batch: list[Request] = []
        while self._requests and len(batch) < BATCH_LIMIT:
            request = self._requests.popleft()
            if not request.future.cancelled():
                batch.append(request)
        if not batch:
            return
        try:
            self._enter(batch[0].since + self._database.busy_timeout)
        except AlkstoreError as error:
            self._answer([(request, None, error) for request in batch], ())
            return
        try:
            outcomes, topics = self._commit(batch)
        finally:
            self._leave()
        self._answer(outcomes, topics)

    def _commit(self, batch: list[Request]) -> tuple[list[Outcome], set[str]]:
        """Run and commit `batch` as one; if anything fails, each apart from the others."""
        try:
            cursor = self._begin(batch[0].since + self._database.busy_timeout)
        except AlkstoreError as error:
            return [(request, None, error) for request in batch], set()
        scope = Scope(self._clock)
        outcomes: list[Outcome] = []
        try:
            for request in batch:
                result = drive(cursor, request.build(scope, *request.arguments))
                outcomes.append((request, result, None))
            self._finish(cursor, scope)
        except BaseException as error:
            self._roll_back()
            failure = self._failure(error)
            if len(batch) == 1:
                return [(batch[0], None, failure)], set()
            if self._connection is None:
                return [(request, None, failure) for request in batch], set()
        else:
            return outcomes, scope.topics
        outcomes, topics = [], set()
        for request in batch:
            alone, woken = self._commit([request])
            outcomes += alone
            topics |= woken
        return outcomes, topics

    def _begin(self, deadline: float) -> sqlite3.Cursor:
        """A cursor in a new writing transaction.

        Raises:
            DatabaseError: the connection cannot be had again, or the database stayed locked.
        """
        if self._database.identity() != self._file:
            raise self._database.replaced()
        try:
            if self._connection is None:
                self._connection = self._database.connect(checkpoints=True)
            cursor = self._connection.cursor()
            begin_immediate(cursor, deadline)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return cursor

    def _finish(self, cursor: sqlite3.Cursor, scope: Scope) -> None:
        if scope.topics:
            stamp = new_stamp()
            drive(cursor, stamp_topics(scope.topics, stamp))
            self._batches += 1
            if self._batches % _BOUND_TOPICS_BATCHES == 0:
                drive(cursor, bound_topics())
            for topic in self._hub.topics() & scope.topics if len(self._hub) else ():
                self._stamps[topic] = stamp
        cursor.execute("COMMIT")
        if self._database.identity() != self._file:
            raise self._database.replaced()

    def _roll_back(self) -> None:
        """Undo the open transaction; a connection that cannot is thrown away, and replaced by the next (T9)."""
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.cursor().execute("ROLLBACK")
        except sqlite3.Error:
            self._connection = None
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _failure(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        failure = self._database.failed(error)
        failure.__cause__ = error
        return failure

    def _serve_lease(self, request: LeaseRequest) -> None:
        if request.released.is_set():
            return
        try:
            self._enter(request.since + self._database.busy_timeout)
        except AlkstoreError as error:
            self._post(_fail, request.future, error)
            return
        try:
            self._post(_grant, request)
            while not request.released.wait(_LOOK_S):
                self._expire()
        finally:
            self._leave()

    def _enter(self, deadline: float) -> None:
        """Wait for the slot and at the gate; everybody who waits behind is told when it takes too long for them.

        Raises:
            DatabaseError: the deadline passed.
        """
        while not self._slot.acquire(timeout=_LOOK_S):
            self._expire()
            if time.monotonic() >= deadline:
                raise self._too_busy()
        try:
            entered = self._gate.enter(deadline, self._expire)
        except OSError as error:
            self._slot.release()
            raise self._database.failed(error) from error
        if not entered:
            self._slot.release()
            raise self._too_busy()

    def _leave(self) -> None:
        self._gate.leave()
        self._slot.release()

    def _expire(self) -> None:
        """While the slot is not free: take what arrives, and tell those who have waited for too long."""
        self._take_all()
        oldest = time.monotonic() - self._database.busy_timeout
        late: list[Outcome] = []
        while self._requests and self._requests[0].since < oldest:
            late.append((self._requests.popleft(), None, self._too_busy()))
        if late:
            self._answer(late, ())
        while self._leases and self._leases[0].since < oldest:
            self._post(_fail, self._leases.popleft().future, self._too_busy())

    def _too_busy(self) -> DatabaseError:
        return DatabaseError(
            f"{self._database.path}: the writer was taken for {self._database.busy_timeout:g} s by another "
            "transaction, of this process or another: end it sooner, or raise busy_timeout"
        )

    def _answer(self, outcomes: list[Outcome], topics: Collection[str]) -> None:
        self._post(self._resolve, outcomes, topics)

    def _post(self, callback: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)

    # back on the loop

    def _resolve(self, outcomes: list[Outcome], topics: Collection[str]) -> None:
        if topics:
            self._hub.wake(topics)
        for request, result, error in outcomes:
            future = request.future
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            elif error is None and request.undo is not None:
                taken_back = request.undo(result)
                if taken_back is not None:
                    self._incoming.put(Request(*taken_back, self._loop.create_future(), None))


def _grant(request: LeaseRequest) -> None:
    if request.future.done():
        request.released.set()
    else:
        request.future.set_result(Lease(request.released.set))


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """`call`, the first time only, from whichever thread."""
    left = [call]

    def called() -> None:
        with contextlib.suppress(IndexError):
            left.pop()()

    return called


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
