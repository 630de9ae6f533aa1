"""Seeing something through to its outcome although the caller is cancelled (T4, T13)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def see_through(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in a task of its own and wait for its end, however often the caller is cancelled meanwhile.

    ``asyncio.shield`` gives way to the second cancellation, and an anyio scope cancels again and again; this does not.
    A cancellation that came goes on once the outcome is known, unless `work` failed, which is what is raised then.
    """
    task = asyncio.ensure_future(work())
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
