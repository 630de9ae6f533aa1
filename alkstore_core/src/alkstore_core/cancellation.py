"""Seeing something through to its outcome although the caller is cancelled (T4, T13).

Nearly no caller is cancelled, and a task for each piece of work costs more than many a statement does: what is done all
the time runs in its caller's own task, and moves to one of its own only once that caller is cancelled (`unbroken`).
"""

import asyncio
import types
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")


async def outcome(future: asyncio.Future[T]) -> T:
    """Wait for the end of `future`, however often the caller is cancelled meanwhile, and give its result.

    ``asyncio.shield`` gives way to the first cancellation, and an anyio scope cancels again and again; this does not.
    A cancellation that came goes on once the outcome is known, unless `future` failed, which is what is raised then.
    """
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # else a scope would cancel, and wake, this in every turn of the loop
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError as error:
                cancelled = error
    result = future.result()
    if cancelled is not None:
        raise cancelled
    return result


async def see_through(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in a task of its own and wait for its `outcome`: it is never cancelled with its caller.

    For whatever `unbroken` must not run, and what is not worth a second look.
    """
    return await outcome(own_task(work()))


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, whatever happens to the caller: a cancellation goes on afterwards, as with `outcome`.

    Nothing in `work` may be about the task that it runs in, as ``asyncio.timeout`` and anyio's scopes are: that is the
    caller's at first, and may be another afterwards.
    """
    # Measured on Postgres with a transaction of two inserts, beside the bare driver's on its pool: with a task and a
    # wait for each of its steps, and a timer for each statement, 0.60 of its rate; so, 0.78.
    run: Run[T] = await in_this_task(work)
    if run.cancelled is None:
        return run.result
    await outcome(run.task(own_task))
    raise run.cancelled


def own_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for `work` that only alkstore cancels. Whoever starts it waits for its end.

    ``asyncio.run`` ends by cancelling all tasks there are, and programs do the same; a commit under way must not be one
    of them. They still wait for it, through the caller's own task, which is.
    """
    task = asyncio.get_running_loop().create_task(work)
    unlist(task)
    return task


def unlist(task: "asyncio.Task[Any] | None") -> None:
    """Leave `task` out of ``asyncio.all_tasks``, by the call that asyncio documents for other kinds of tasks."""
    if task is not None:
        asyncio._unregister_task(task)  # noqa: SLF001
        unlisted.add(task)


unlisted: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
"""The tasks that were left out, for who looks for leaks."""


class Run(Generic[T]):
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

    __slots__ = ("_asyncio_future_blocking", "_context", "_future", "_wake", "task_is_cancelled")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._future = future
        self.task_is_cancelled = False
        """Whether the task was cancelled while it waited, whatever became of the future."""
        self._asyncio_future_blocking = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Any = None) -> None:
        self._wake = wake
        self._context = context
        self._future.add_done_callback(wake, context=context)

    def remove_done_callback(self, wake: Callable[[Any], object]) -> int:
        return self._future.remove_done_callback(wake)

    def done(self) -> bool:
        return self._future.done()  # anyio's ``wait_all_tasks_blocked`` asks

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def cancel(self, msg: object = None) -> bool:
        del msg
        self.task_is_cancelled = True
        if self._future.remove_done_callback(self._wake):
            loop = self._future.get_loop()
            woken = loop.create_future()
            woken.set_result(None)
            loop.call_soon(self._wake, woken, context=self._context)
        return False  # not cancelled itself: the task's next step is told of it


@types.coroutine
def in_this_task(work: Coroutine[Any, Any, Any]) -> Generator[Any, None, Run[Any]]:
    """Drive `work` step by step, as its task would; what it waits for does not hear of a cancellation."""
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as end:
            return Run(end.value)
        sheltered = None if awaited is None else _Sheltered(awaited)
        try:
            yield sheltered
        except asyncio.CancelledError as error:
            if sheltered is not None and sheltered.cancelled() and not sheltered.task_is_cancelled:
                continue  # that is what it was, and the work hears of it as it goes on
            return Run(None, work, awaited, error)
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
