"""Work that is not cancelled with its caller, and the tasks that an engine runs beside its callers (T12, T13).

Nearly no caller is cancelled, and a task for each piece of work costs more than many a statement does on the client: so
the work runs in its caller's own task, and moves to one of its own only once that caller is cancelled.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import anyio
from alkstore_core.cancellation import outcome, own_task

T = TypeVar("T")

_LINGER_S = 1.0
"""How long a cancelled caller waits for the outcome of what it began: many round trips, and few where there is none."""


async def linger(future: "asyncio.Future[Any]") -> None:
    """Wait for the end of `future`, though cancelled, for a moment: then what it does is decided (T13).

    Where the server does not answer, its end comes later, in the engine's own task.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + _LINGER_S
    with anyio.CancelScope(shield=True):
        while not future.done() and (left := until - loop.time()) > 0:
            try:
                await asyncio.wait((future,), timeout=left)
            except asyncio.CancelledError:
                continue


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, whatever happens to the caller: a cancellation goes on afterwards, as with `outcome`.

    Nothing in `work` may be about the task that it runs in, as ``asyncio.timeout`` and anyio's scopes are: that is the
    caller's at first, and may be another afterwards.
    """
    # Measured on a transaction of two inserts, beside the bare driver's on its pool: with a task and a wait for each of
    # its steps, and a timer for each statement, 0.60 of its rate; so, 0.78.
    run: _Run[T] = await _here(work)
    if run.cancelled is None:
        return run.result
    await outcome(run.task(own_task))
    raise run.cancelled


async def unless_cancelled(
    work: Coroutine[Any, Any, T], tasks: "Tasks", orphaned: Callable[["asyncio.Task[T]"], Awaitable[object]]
) -> T:
    """Run `work`; where the caller is cancelled meanwhile, the rest of it is a task of `tasks`, and goes on.

    Args:
        work: as for `unbroken`.
        tasks: owns the task.
        orphaned: awaited with the task before the cancellation goes on.
    """
    run: _Run[T] = await _here(work)
    if run.cancelled is None:
        return run.result
    await orphaned(run.task(tasks.start))
    raise run.cancelled


class _Run(Generic[T]):
    """What became of work begun in its caller's task: its result, or where it was when the caller was cancelled."""

    __slots__ = ("_awaited", "_work", "cancelled", "result")

    def __init__(
        self, result: T, work: Any = None, awaited: Any = None, cancelled: BaseException | None = None
    ) -> None:
        self.result = result
        self.cancelled = cancelled
        self._work = work
        self._awaited = awaited

    def task(self, start: "Callable[[Coroutine[Any, Any, T]], asyncio.Task[T]]") -> "asyncio.Task[T]":
        """The rest of the work, as a task."""
        return start(_rest_of(self._work, self._awaited))


class _Sheltered:
    """Stands for a future that a task waits for: cancelling the task wakes it, and leaves the future alone.

    What ``asyncio.shield`` does, without a future of its own and the turn of the loop that it takes to pass its end on.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_future", "_wake")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._future = future
        self._asyncio_future_blocking = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Any = None) -> None:
        self._wake = wake
        self._context = context
        self._future.add_done_callback(wake, context=context)

    def remove_done_callback(self, wake: Callable[[Any], object]) -> int:
        return self._future.remove_done_callback(wake)

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def cancel(self, msg: object = None) -> bool:
        del msg
        if self._future.remove_done_callback(self._wake):
            loop = self._future.get_loop()
            woken = loop.create_future()
            woken.set_result(None)
            loop.call_soon(self._wake, woken, context=self._context)
        return False  # not cancelled itself: the task's next step is told of it


@types.coroutine
def _here(work: Coroutine[Any, Any, Any]) -> Generator[Any, None, _Run[Any]]:
    """Drive `work` step by step, as its task would; what it waits for does not hear of a cancellation."""
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as end:
            return _Run(end.value)
        try:
            yield None if awaited is None else _Sheltered(awaited)
        except asyncio.CancelledError as error:
            if awaited is not None and awaited.cancelled():
                continue  # that is what it was, and the work hears of it as it goes on
            return _Run(None, work, awaited, error)
        except GeneratorExit:
            work.close()
            raise
        except BaseException:  # noqa: S110 - how it ended, which the work sees for itself
            pass


async def _rest_of(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    result: T = await _resumed(work, awaited)
    return result


@types.coroutine
def _resumed(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, None, Any]:
    while True:
        failure: BaseException | None = None
        try:
            # A future that was yielded once still says that it is awaited, as a task expects of what it is given.
            yield awaited
        except BaseException as error:
            failure = error
        try:
            awaited = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as end:
            return end.value


class Tasks:
    """Owns every task that is started through it until it has ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Tasks {len(self._running)} running>"

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` in a task of this owner."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever started it hears of it; nobody else needs to

    async def join(self, grace_s: float) -> bool:
        """Wait until all have ended, at most `grace_s` seconds; whether they have."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace_s)
        return not self._running

    async def cancel(self) -> None:
        """Cancel what still runs, and wait for its end."""
        while self._running:
            running = tuple(self._running)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
