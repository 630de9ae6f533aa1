"""The outbox: deliveries that leave if, and only if, the transaction commits (contract section 8).

A helper over queues: everything here can be written by hand with them.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from alkstore_core.cancellation import see_through
from alkstore_core.errors import AlkstoreError
from alkstore_core.names import RESERVED_PREFIX, failure_text, shared_name
from alkstore_core.options import OUTBOX_QUEUE_OPTIONS
from alkstore_core.queues import JobHandle, Queue

if TYPE_CHECKING:
    from alkstore_core.store import Store

Delivery = Callable[[JobHandle], Awaitable[object]]
"""Delivers one job; returning means delivered, raising means try again later."""


def backing_queue(outbox: str) -> str:
    """The name of an outbox's queue: under the reserved prefix, so that nothing else can reach it (O1)."""
    return f"{RESERVED_PREFIX}outbox:{shared_name('outbox', outbox)}"


class Outbox:
    """A handle on one outbox. Made by `Store.outbox`; it never touches the database by itself (T1)."""

    def __init__(self, store: "Store", name: str) -> None:
        self._name = name
        self._queue = Queue(store, backing_queue(name), OUTBOX_QUEUE_OPTIONS)

    def __repr__(self) -> str:
        return f"<Outbox {self._name!r}>"

    @property
    def name(self) -> str:
        """The outbox's name."""
        return self._name

    @property
    def queue(self) -> Queue:
        """The backing queue, for a `Worker` or for looking a delivery up. Its name is reserved."""
        return self._queue

    async def enqueue(
        self,
        payload: object,
        *,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
    ) -> int:
        """Add one delivery by itself; its id. Inside a transaction use `Transaction.outbox_enqueue`.

        Options and errors are those of `Queue.enqueue`; a claim lasts 60 s, at most 5 attempts (Q2).
        """
        return await self._queue.enqueue(
            payload, delay=delay, run_at=run_at, expires=expires, max_attempts=max_attempts, priority=priority
        )

    async def run_once(self, worker_id: str, delivery: Delivery) -> bool:
        """Claim one job and deliver it; whether there was one (O2).

        `delivery` is awaited with the job's handle. Returning acks; raising retries with ``str(error)``; nothing of it
        propagates. A delivery that settles the handle itself is left at that. One slower than its deadline may happen
        again elsewhere, and its late ack does nothing (O3): long ones call ``handle.heartbeat``. Cancelled, the claim
        is given back, or left to lapse where that fails, and the cancellation goes on.
        """
        handle = await self._queue.claim_one(worker_id)
        if handle is None:
            return False
        try:
            await delivery(handle)
        except Exception as error:
            if not handle.settled:
                await handle.retry(failure_text(error))
        except BaseException:
            if not handle.settled:
                with suppress(AlkstoreError):
                    await see_through(handle.release)
            raise
        else:
            if not handle.settled:
                await handle.ack()
        return True
