"""Delivering what an outbox holds, as one worker."""

import aiohttp
from alkstore_core import JobHandle, StopToken, Store, Worker
from pydantic import BaseModel

SLOTS = 4
"""How many deliveries one worker has under way at once."""
_TIMEOUT = aiohttp.ClientTimeout(total=5)
"""A delivery that takes longer has failed, and is tried again: well before its claim lapses, after a minute."""


class Parcel(BaseModel):
    """What the outbox holds for one webhook; `body` is delivered as it stands."""

    line: int
    event: str
    body: str


async def deliver(store: Store, outbox: str, sink: str, name: str, stop: StopToken) -> None:
    """Deliver to the URL `sink`, as the worker `name`, until stopped."""
    slots = list(range(SLOTS))

    async def send(handle: JobHandle) -> None:
        parcel = handle.job.payload_as(Parcel)
        slot = slots.pop()
        try:
            headers = {"X-Delivery": str(parcel.line), "X-Worker": name, "X-Slot": str(slot), "X-Event": parcel.event}
            async with client.post(sink, data=parcel.body.encode(), headers=headers) as response:
                response.raise_for_status()
            await handle.ack()
        finally:
            slots.append(slot)

    async with aiohttp.ClientSession(timeout=_TIMEOUT) as client:
        await Worker(store.outbox(outbox).queue, send, concurrency=SLOTS, worker_id=name).run(stop)
