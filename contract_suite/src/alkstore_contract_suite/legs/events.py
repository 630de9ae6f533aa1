"""Events, as the legs of streams publish and receive them."""

import asyncio
from collections.abc import Sequence

import pytest
from alkstore_core import EventReceiver, Store, StreamEvent

both_forms = pytest.mark.parametrize("in_transaction", [False, True], ids=["auto-commit", "transaction"])
"""The operation by itself, and on a transaction."""


async def publish(store: Store, in_transaction: bool, payload: object, key: str | None = None) -> int:
    """Publish to "orders" in one of `both_forms`."""
    if not in_transaction:
        return await store.stream("orders").publish(payload, key=key)
    async with store.transaction() as tx:
        return await tx.publish("orders", payload, key=key)


def offsets_of(events: Sequence[StreamEvent]) -> list[int]:
    """Their offsets."""
    return [event.offset for event in events]


async def received(receiver: EventReceiver, count: int) -> list[int]:
    """The offsets of the next `count` events that it gives."""
    events = [await receiver.recv() for _ in range(count)]
    return offsets_of([event for event in events if event is not None])


async def received_now(receiver: EventReceiver) -> list[int]:
    """The offsets of the events that it can give without waiting."""
    given = []
    while (event := await receiver.try_recv()) is not None:
        given.append(event.offset)
    return given


async def turns(count: int) -> None:
    """Let other tasks go on, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
