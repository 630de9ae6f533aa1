"""Seeing something through to its outcome although the caller is cancelled (T4, T13)."""

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
    """Run `work` in a task of its own and wait for its `outcome`: it is never cancelled with its caller."""
    return await outcome(own_task(work()))


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
