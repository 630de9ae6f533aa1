"""Seeing something through to its outcome although the caller is cancelled (T4, T13)."""

import asyncio
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
    return await outcome(asyncio.ensure_future(work()))
