"""A consumer loop over a queue's own operations (contract section 11)."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio

from alkstore_core.cancellation import outcome, own_task, see_through
from alkstore_core.errors import AlkstoreError, DatabaseError, shown
from alkstore_core.heartbeat import Heartbeat
from alkstore_core.names import failure_text, free_name
from alkstore_core.numbers import at_least
from alkstore_core.queues import JobHandle, Queue
from alkstore_core.settling import Settler
from alkstore_core.stopping import StopToken
from alkstore_core.waiting import Alarm, Backoff, first_of, hear
from alkstore_core.wakes import queue_topic

Handler = Callable[[JobHandle], Awaitable[object]]
"""Does one job; returning means done, raising means try again later."""

_RESCAN_S = 5.0
"""How often, in real time, a worker claims without a reason, should a wake have been lost."""
_INSIST_S = 5.0
"""After how long a running job that outlives its cancellation, which may be cleaning up, is cancelled again."""
_FLUSH_S = 0.75
"""How long, after the shutdown's time is up, what is left to settle may take."""

_log = logging.getLogger("alkstore.worker")


class Worker:
    """Runs a handler for the jobs of one queue, many at a time, until it is stopped.

    It is woken rather than polling: by a commit to the queue, when a job becomes ready, and when a claim lapses (W2).
    While a job runs, its claim is renewed at a third of its visibility timeout (W3).

    Args:
        queue: whose jobs it does; ``outbox.queue`` for an outbox's.
        handler: awaited with each job's handle. Returning acks; raising retries with ``str(error)``. It may settle the
            handle itself, and then nothing more is done about it (W1).
        concurrency: how many jobs run at a time, at least 1.
        worker_id: who claims; without it a name made of the host, the process and a random part.
        shutdown_timeout: how many seconds a stop leaves the running jobs to finish. Then they are cancelled and given
            back, without the attempt being counted.

    Raises:
        TypeError, ValueError: `queue`, `concurrency` or `shutdown_timeout`.
        InvalidNameError: `worker_id` (V2).
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        *,
        concurrency: int = 10,
        worker_id: str | None = None,
        shutdown_timeout: float = 30.0,
    ) -> None:
        if not isinstance(queue, Queue):
            raise TypeError(f"queue must be a Queue such as store.queue(name) gives, not {type(queue).__name__}")
        self._queue = queue
        self._handler = handler
        self._concurrency = at_least(1, "concurrency", concurrency)
        self._worker_id = _unique_id() if worker_id is None else free_name("worker", worker_id)
        self._shutdown_timeout = _seconds("shutdown_timeout", shutdown_timeout)

    def __repr__(self) -> str:
        return f"<Worker {self._worker_id!r} of {self._queue.name!r}, {self._concurrency} at a time>"

    @property
    def worker_id(self) -> str:
        """Who claims."""
        return self._worker_id

    async def run(self, stop: StopToken) -> None:
        """Work until `stop` is cancelled, and return with nothing left running (W4).

        Then it claims nothing more, lets the running jobs finish within `shutdown_timeout`, gives back what they have
        not, and settles what they have. Cancelling `run` itself is a stop without that time.

        While the database cannot be reached it tries again, with growing pauses; a stop is still obeyed in time, and
        what could not be settled by then is handed out again when its claim lapses.

        Raises:
            ClosedError: the store was closed. The running jobs were cancelled.
        """
        self._queue.store.session()
        if stop.is_cancelled:
            return
        shift = _Shift(self._worker_id, self._queue, self._handler, self._concurrency, self._shutdown_timeout, stop)
        # In a task of its own, so that what a shutdown still has to do is not cancelled with the caller.
        work = own_task(shift.work())
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            shift.abort()
            with suppress(AlkstoreError):
                await outcome(work)
            raise
        work.result()


class _Shift:
    """One call of `Worker.run`."""

    def __init__(
        self, worker_id: str, queue: Queue, handler: Handler, concurrency: int, timeout: float, stop: StopToken
    ) -> None:
        self._worker_id = worker_id
        self._queue = queue
        self._store = queue.store
        self._handler = handler
        self._concurrency = concurrency
        self._timeout = timeout
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._running: dict[JobHandle, asyncio.Task[None]] = {}
        self._settler = Settler(self._store, self._look, _log)
        self._heartbeat = Heartbeat(self._store.engine, self._running, _log)
        self._alarm = Alarm(self._store.engine, self._wake)
        self._maybe_more = False  # a claim might find something
        self._changed = asyncio.Event()  # something did that a waiting loop goes by
        self._aborted = asyncio.Event()
        self._cancelling = False

    def abort(self) -> None:
        """Stop, and leave the running jobs no time."""
        self._aborted.set()

    def _is_stopped(self) -> bool:
        return self._stop.is_cancelled or self._aborted.is_set()

    async def work(self) -> None:
        """Work until stopped.

        Raises:
            ClosedError: the store was closed.
        """

        async def serve() -> None:
            await first_of(self._stop.wait, self._aborted.wait, self._claim)
            await self._wind_down()

        try:
            await first_of(serve, self._listen, self._rescan, self._alarm.run, self._heartbeat.run, self._settler.run)
        finally:
            await see_through(self._cancel_running)

    # What makes it look for jobs.

    def _wake(self) -> None:
        self._maybe_more = True
        self._changed.set()

    def _look(self) -> None:
        self._changed.set()

    async def _listen(self) -> None:
        await hear(self._store, queue_topic(self._queue.name), self._wake, _log)

    async def _rescan(self) -> None:
        while True:
            await asyncio.sleep(_RESCAN_S)
            self._wake()

    # Jobs come, run and go.

    async def _claim(self) -> None:
        outage, vain = Backoff(), Backoff(0.005, 1.0)
        while not self._is_stopped():
            # A job that is done but not settled takes no slot, so that claims and acks go side by side; but where
            # settling falls behind, claiming waits for it.
            free = self._concurrency - len(self._running) - max(0, len(self._settler) - self._concurrency)
            if not self._maybe_more or free <= 0:
                await self._change()
                continue
            self._maybe_more = False
            try:
                handles = await self._queue.claim_batch(self._worker_id, free)
                outage.reset()
                self._start(handles)
                if len(handles) == free:
                    self._maybe_more = True
                    continue
                due = await self._store.session().next_due(self._queue.name)
            except DatabaseError as error:
                self._maybe_more = True
                await outage.pause(_log, f"{self._queue!r} cannot be claimed from", error)
                continue
            if due is not None and due > self._store.engine.now():
                self._alarm.set(due)
            elif due is not None and handles:
                self._maybe_more = True
            elif due is not None and not self._maybe_more:
                # Due, and yet not to be had: another worker's claim of it is under way, or the server's clock is late.
                with anyio.move_on_after(vain.next()):
                    await self._change()
                self._maybe_more = True
                continue
            vain.reset()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _start(self, handles: list[JobHandle]) -> None:
        for handle in handles:
            if self._is_stopped():
                self._settler.release(handle)
            else:
                # Not in a task group: there a task takes 12 us, here 1.5, of the 14 that a no-op job takes in all on
                # the memory engine. `_cancel_running` waits for them.
                task = self._loop.create_task(self._process(handle))
                if not task.done():  # an eager one may be
                    self._running[handle] = task
                    task.add_done_callback(partial(self._note_end, handle))

    def _note_end(self, handle: JobHandle, _: asyncio.Task[None]) -> None:
        if self._running.pop(handle, None) is not None:  # cancelled before it could begin
            self._settler.release(handle)
            self._changed.set()

    async def _process(self, handle: JobHandle) -> None:
        begun = False
        failure: BaseException | None = None
        try:
            begun = await self._heartbeat.begin(handle)
            if begun:
                await self._handler(handle)
        except (KeyboardInterrupt, SystemExit):
            self._settler.release(handle)
            raise
        except asyncio.CancelledError as error:
            failure = error
            # If all tasks are being cancelled, so is the worker's caller: let it say so first.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        except BaseException as error:
            failure = error
        finally:
            self._running.pop(handle, None)
            self._changed.set()
        is_cut_short = failure is not None and (self._cancelling or self._aborted.is_set())
        if handle in self._heartbeat.lost:
            self._heartbeat.lost.remove(handle)
        elif handle.settled:
            pass
        elif not begun or is_cut_short:
            self._settler.release(handle)
        elif failure is None:
            self._settler.ack(handle)
        else:
            self._settler.retry(handle, failure_text(failure))
        if failure is not None and begun and not is_cut_short:
            _log.warning("%r failed", handle, exc_info=failure)

    # The end.

    async def _wind_down(self) -> None:
        deadline = self._loop.time() + self._timeout
        with anyio.move_on_after(self._timeout):
            await first_of(self._aborted.wait, self._finish)
        await self._cancel_running()
        self._settler.hurry()
        left = 0.0 if self._aborted.is_set() else max(0.0, deadline - self._loop.time())
        with anyio.move_on_after(left + _FLUSH_S):
            while len(self._settler):
                await self._change()
        if len(self._settler):
            _log.warning(
                "%d jobs of %r could not be settled in time; their claims lapse", len(self._settler), self._queue
            )

    async def _finish(self) -> None:
        while self._running:
            await self._change()

    async def _cancel_running(self) -> None:
        """Cancel the running jobs, again where one goes on all the same, and wait for their end."""
        self._cancelling = True
        while self._running:
            for task in self._running.values():
                task.cancel()
            await asyncio.wait(self._running.values(), timeout=_INSIST_S)


def _unique_id() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _seconds(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number of seconds, not {type(value).__name__}: {shown(value)}")
    if not value >= 0:
        raise ValueError(f"{what} must be at least 0 seconds, and is {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{what} must be a number of seconds that a float can hold, and is {shown(value)}") from None
