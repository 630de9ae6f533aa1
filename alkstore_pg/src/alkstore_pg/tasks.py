"""The tasks that an engine runs beside its callers, and what goes on there once a caller is cancelled (T12, T13)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
from alkstore_core.cancellation import Run, in_this_task

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


async def unless_cancelled(
    work: Coroutine[Any, Any, T], tasks: "Tasks", orphaned: Callable[["asyncio.Task[T]"], Awaitable[object]]
) -> T:
    """Run `work`; where the caller is cancelled meanwhile, the rest of it is a task of `tasks`, and goes on.

    Args:
        work: as for `unbroken`.
        tasks: owns the task.
        orphaned: awaited with the task before the cancellation goes on.
    """
    run: Run[T] = await in_this_task(work)
    if run.cancelled is None:
        return run.result
    await orphaned(run.task(tasks.start))
    raise run.cancelled


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
