"""The writer thread, and the slot that batches and callers' transactions take turns for.

Whatever is queued when the thread looks becomes one commit (`commits`). A caller's transaction gets the slot as a
`Lease`, between two batches, and holds it until it ends. Who waits for longer than the busy timeout is told so.
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

from alkstore_core.cancellation import outcome
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.wakes import WakeHub

from alkstore_sqlite.commits import Build, GroupCommit, Outcome, Request, Undo
from alkstore_sqlite.database import Database
from alkstore_sqlite.gate import Gate

BATCH_LIMIT = 1024
"""The most operations in one commit."""
_LOOK_S = 0.05
"""While the slot is taken, how often the waiting are looked at for one that has waited too long."""


class Lease:
    """The writer slot, in the hands of one caller's transaction until `release`: from any thread, once or more."""

    __slots__ = ("release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release


class LeaseRequest:
    """A caller's transaction that waits for the slot."""

    __slots__ = ("future", "released", "since")

    def __init__(self, future: "asyncio.Future[Lease]") -> None:
        self.future = future
        self.released = threading.Event()
        self.since = time.monotonic()


class Writer:
    """Serves every write of one store."""

    def __init__(self, database: Database, gate: Gate, commits: GroupCommit, hub: WakeHub) -> None:
        self._database = database
        self._gate = gate
        self._commits = commits
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[Request | LeaseRequest | asyncio.Future[None] | None] = SimpleQueue()
        self._requests: deque[Request] = deque()
        self._leases: deque[LeaseRequest] = deque()
        self._slot = threading.Lock()
        self._idle = False
        self._closing = self._draining = False
        self._drained: asyncio.Future[None] = self._loop.create_future()
        """Done when all that was queued before the store was closed has been answered."""
        self._undoing: set[asyncio.Future[None]] = set()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="alkstore-sqlite-writer", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    # called on the loop

    def submit(self, build: Build, arguments: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """Have an operation committed; a future of what it returns."""
        if self._ended.done():
            raise ClosedError("this store is closed: open another one")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._incoming.put(Request(build, arguments, future))
        return future

    async def run(self, build: Build, arguments: tuple[Any, ...], undo: Undo) -> Any:
        """As `submit`, for what must not stay unseen: if the caller is cancelled, it is undone before that goes on."""
        if self._ended.done():
            raise ClosedError("this store is closed: open another one")
        request = Request(build, arguments, self._loop.create_future(), undo)
        self._incoming.put(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            if not request.future.cancelled():  # it was told the result, and cancelled before it could take it
                self._take_back(request, request.future.result() if request.future.exception() is None else None)
            elif request.taken and not request.told:
                request.taken_back = self._loop.create_future()
            if request.taken_back is not None:
                await outcome(request.taken_back)
            raise

    async def lease(self) -> Lease:
        """The slot, in turn.

        Raises:
            DatabaseError: it did not come within the busy timeout.
        """
        if self._ended.done():
            raise ClosedError("this store is closed: open another one")
        # With nobody before it a transaction takes the slot here and now: a hop to the thread and back would cost
        # it 0.1 ms.
        if self._idle and not self._commits.disk_full and self._incoming.empty() and self._slot.acquire(blocking=False):
            entered = False
            try:
                entered = self._gate.try_enter()
            except OSError as error:
                raise self._database.failed(error) from error
            finally:
                if not entered:
                    self._slot.release()
            if entered:
                return Lease(_once(self._leave))
        request = LeaseRequest(self._loop.create_future())
        self._incoming.put(request)
        try:
            return await request.future
        except BaseException:
            request.released.set()  # if it is granted all the same, it is given back at once
            raise

    def note_full_disk(self) -> None:
        """A caller's transaction met a full disk: whoever has the slot next makes room before anything else."""
        self._commits.disk_full = True

    async def close(self) -> None:
        """Finish what is queued, and undo what nobody waits for any more; then end the thread, close the connection."""
        self._incoming.put(self._drained)
        await asyncio.wait((self._drained, self._ended), return_when=asyncio.FIRST_COMPLETED)
        while self._undoing:
            await asyncio.wait(self._undoing)
        self.forget()
        await self._ended
        self._thread.join()

    def forget(self) -> None:
        """End the thread without waiting for it."""
        self._incoming.put(None)

    # the thread

    def _run(self) -> None:
        try:
            while not (self._closing and not self._requests and not self._leases and self._incoming.empty()):
                self._collect()
                if self._requests:
                    self._serve_batch()
                if self._leases:
                    self._serve_lease(self._leases.popleft())
                if self._draining and not self._requests and not self._leases:
                    self._draining = False
                    self._post(self._drained.set_result, None)
        finally:
            self._close_connection()
            self._post(self._end)

    def _close_connection(self) -> None:
        """Close behind the gate: the last connection to a database checkpoints when it closes.

        If somebody has the gate, it has the database open too, and this is not the last.
        """
        entered = False
        with contextlib.suppress(OSError):
            entered = self._gate.try_enter()
        self._commits.close()
        if entered:
            self._gate.leave()

    def _collect(self) -> None:
        """Take what has arrived; wait for something if there is nothing to do."""
        if not self._requests and not self._leases and not self._closing:
            self._idle = True
            item = self._incoming.get()
            self._idle = False
            self._sort(item)
        self._take_all()

    def _take_all(self) -> None:
        for _ in range(self._incoming.qsize()):  # nobody else takes from it
            self._sort(self._incoming.get_nowait())

    def _sort(self, item: Request | LeaseRequest | asyncio.Future[None] | None) -> None:
        if item is None:
            self._closing = True
        elif isinstance(item, asyncio.Future):
            self._draining = True
        elif isinstance(item, Request):
            self._requests.append(item)
        else:
            self._leases.append(item)

    def _serve_batch(self) -> None:
        deadline = self._requests[0].since + self._database.busy_timeout
        outcomes: list[Outcome] = []
        topics: Collection[str] = ()
        try:
            if not self._enter(deadline):
                return
            try:
                if self._commits.begin(deadline, self._expire):
                    outcomes, topics = self._commit_batch()
                else:
                    self._expire()
            finally:
                self._leave()
        except DatabaseError as error:  # nothing can be written at all
            outcomes = [(request, None, error) for request in self._requests]
            self._requests.clear()
        # Last of all: the loop's thread wakes, and would wait for the interpreter's lock while this one is at work.
        if outcomes:
            self._answer(outcomes, topics)

    def _commit_batch(self) -> tuple[list[Outcome], Collection[str]]:
        batch: list[Request] = []
        while self._requests and len(batch) < BATCH_LIMIT:
            request = self._requests.popleft()
            request.taken = True
            if not request.future.cancelled():
                batch.append(request)
            elif request.undo is not None:
                self._answer([(request, None, asyncio.CancelledError())], ())
        if batch:
            return self._commits.run(batch)
        self._commits.roll_back()
        return [], ()

    def _serve_lease(self, request: LeaseRequest) -> None:
        if request.released.is_set():
            return
        try:
            if not self._enter(request.since + self._database.busy_timeout):
                raise self._database.too_busy()
        except DatabaseError as error:
            self._post(_fail, request.future, error)
            return
        try:
            if not self._post(_grant, request):
                return  # nobody is there to take it
            while not request.released.wait(_LOOK_S):
                self._expire()
        finally:
            self._leave()

    def _enter(self, deadline: float) -> bool:
        """Wait for the slot and at the gate; whether that was done by `deadline`.

        Raises:
            DatabaseError: the gate cannot be used.
        """
        while not self._slot.acquire(timeout=_LOOK_S):
            self._expire()
            if time.monotonic() >= deadline:
                return False
        entered = False
        try:
            entered = self._gate.enter(deadline, self._expire)
        except OSError as error:
            raise self._database.failed(error) from error
        finally:
            if not entered:
                self._slot.release()
        if entered:
            self._commits.make_room()
        else:
            self._expire()
        return entered

    def _leave(self) -> None:
        self._gate.leave()
        self._slot.release()

    def _expire(self, cause: sqlite3.Error | None = None) -> None:
        """While nothing can be written: take what arrives, and tell those who have waited for too long."""
        self._take_all()
        oldest = time.monotonic() - self._database.busy_timeout
        late: list[Outcome] = []
        while self._requests and self._requests[0].since <= oldest:
            late.append((self._requests.popleft(), None, self._database.too_busy(cause)))
        if late:
            self._answer(late, ())
        while self._leases and self._leases[0].since <= oldest:
            self._post(_fail, self._leases.popleft().future, self._database.too_busy(cause))

    def _answer(self, outcomes: list[Outcome], topics: Collection[str]) -> None:
        self._post(self._resolve, outcomes, topics)

    def _post(self, callback: Callable[..., object], *arguments: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            return False
        return True

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
            elif request.undo is not None:
                self._take_back(request, None if error is not None else result)

    def _end(self) -> None:
        self._ended.set_result(None)
        waiting: list[asyncio.Future[Any]] = [item.future for item in self._requests]
        waiting += [item.future for item in self._leases]
        for future in waiting:  # there are some only where the thread itself failed
            _fail(future, DatabaseError(f"the writer of {self._database.path} failed: open the store again"))
        with contextlib.suppress(Empty):
            while True:  # what came too late for the thread to see
                item = self._incoming.get_nowait()
                if isinstance(item, Request | LeaseRequest):
                    _fail(item.future, ClosedError("this store is closed: open another one"))

    def _take_back(self, request: Request, result: Any) -> None:
        """Undo what was done for a caller who does not wait any more; `result` is None if nothing was."""
        request.told = True
        ended = request.taken_back = request.taken_back or self._loop.create_future()
        undoing = request.undo(result) if request.undo is not None and result is not None else None
        if undoing is None or self._ended.done():
            ended.set_result(None)
            return
        undone = Request(*undoing, self._loop.create_future())

        def end(future: "asyncio.Future[Any]") -> None:
            future.exception()  # failed or not: what could not be undone lapses by itself
            ended.set_result(None)

        undone.future.add_done_callback(end)
        self._undoing.add(ended)
        ended.add_done_callback(self._undoing.discard)
        self._incoming.put(undone)


def _grant(request: LeaseRequest) -> None:
    if request.future.done():
        request.released.set()
    else:
        request.future.set_result(Lease(request.released.set))


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """`call`, the first time only, from whichever thread."""
    left = [call]

    def called() -> None:
        with contextlib.suppress(IndexError):
            left.pop()()

    return called
