"""Settling: how a worker tells the database what its jobs have come to (W3, W4)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from alkstore_core.engine import Claim
from alkstore_core.errors import DatabaseError
from alkstore_core.heartbeat import log_lost
from alkstore_core.queues import JobHandle
from alkstore_core.waiting import Backoff, all_of

if TYPE_CHECKING:
    from alkstore_core.store import Store


class Settler:
    """Settles the jobs of one worker, in one task: while one call is under way, the next one's jobs gather.

    What an outage keeps from landing is kept, and sent again until it lands or its claim must have lapsed.

    Args:
        store: where the jobs live.
        progress: called when jobs were settled.
        log: where lost claims and outages are reported.
    """

    def __init__(self, store: "Store", progress: Callable[[], None], log: logging.Logger) -> None:
        self._store = store
        self._progress = progress
        self._log = log
        self._acks: list[JobHandle] = []
        self._releases: list[JobHandle] = []
        self._retries: dict[JobHandle, str] = {}
        self._unsettled = 0
        self._gathered = asyncio.Event()
        self._backoff = Backoff(longest_s=1.0)
        self._pausing: anyio.CancelScope | None = None

    def __len__(self) -> int:
        """How many jobs are not settled yet."""
        return self._unsettled

    def ack(self, handle: JobHandle) -> None:
        """It is done."""
        self._acks.append(handle)
        self._add()

    def retry(self, handle: JobHandle, error: str) -> None:
        """It failed."""
        self._retries[handle] = error
        self._add()

    def release(self, handle: JobHandle) -> None:
        """It was not begun, or a shutdown cut it short."""
        self._releases.append(handle)
        self._add()

    def hurry(self) -> None:
        """The worker ends: from now on pause no more than a moment between attempts."""
        self._backoff = Backoff(0.02, 0.1)
        if self._pausing is not None:
            self._pausing.cancel()

    async def run(self) -> None:
        """Settle until cancelled.

        Raises:
            ClosedError: the store was closed.
        """
        while True:
            await self._gathered.wait()
            self._gathered.clear()
            try:
                await self._flush()
            except DatabaseError as error:
                with anyio.CancelScope() as self._pausing:
                    await self._backoff.pause(self._log, f"{self._unsettled} jobs cannot be settled", error)
                self._pausing = None
                self._give_up_lapsed()
                self._gathered.set()
            else:
                self._backoff.reset()
            self._progress()

    def _add(self) -> None:
        self._unsettled += 1
        self._gathered.set()

    async def _flush(self) -> None:
        session = self._store.session()
        acks, self._acks = self._acks, []
        releases, self._releases = self._releases, []
        retries, self._retries = self._retries, {}
        works: list[Callable[[], Awaitable[object]]] = [partial(self._retry, *retry) for retry in retries.items()]
        if acks:
            works.append(partial(self._send, session.ack_claims, acks, self._acks))
        if releases:
            works.append(partial(self._send, session.release_claims, releases, self._releases))
        await all_of(works)  # together: an engine may share one commit

    async def _send(
        self,
        settle: Callable[[Sequence[Claim]], Awaitable[list[bool]]],
        handles: list[JobHandle],
        kept: list[JobHandle],
    ) -> None:
        try:
            landed = await settle([handle.claim for handle in handles])
        except DatabaseError:
            kept += handles
            raise
        self._conclude(handles, landed)

    async def _retry(self, handle: JobHandle, error: str) -> None:
        try:
            landed = await handle.retry(error)
        except DatabaseError:
            self._retries[handle] = error
            raise
        self._conclude((handle,), (landed,))

    def _conclude(self, handles: Collection[JobHandle], landed: Iterable[bool]) -> None:
        self._unsettled -= len(handles)
        for handle, has_landed in zip(handles, landed, strict=True):
            if not has_landed:
                log_lost(self._log, handle)

    def _give_up_lapsed(self) -> None:
        """Drop what no attempt can settle any more: somebody else may have the job by now."""
        now = self._store.engine.now()
        lapsed = [h for h in (*self._acks, *self._releases, *self._retries) if h.lapses_at <= now]
        if lapsed:
            self._acks = [handle for handle in self._acks if handle.lapses_at > now]
            self._releases = [handle for handle in self._releases if handle.lapses_at > now]
            self._retries = {handle: error for handle, error in self._retries.items() if handle.lapses_at > now}
            self._conclude(lapsed, [False] * len(lapsed))
