"""What keeps a mailbox's hot rows at hand, however long its history is."""

from collections.abc import AsyncIterator

import pytest
from alkstore_core import Holder
from alkstore_mem import MemStore
from alkstore_mem.database import Database
from alkstore_mem.engine import MemEngine

HISTORY = 2000


@pytest.fixture
async def store() -> AsyncIterator[MemStore]:
    """A store of its own data."""
    async with MemStore.open() as opened:
        yield opened


def database_of(store: MemStore) -> Database:
    assert isinstance(store.engine, MemEngine)
    return store.engine.database


async def test_suppressed_batches_are_not_walked_over(store: MemStore) -> None:
    """Batches that nobody acknowledged, all read, stay behind the oldest unread message, and are not looked at."""
    mailbox = store.mailbox("box")
    holder = await mailbox.attach(source="run", subject="7")
    for number in range(HISTORY):
        message = await mailbox.send(number)
        await mailbox.check(holder)
        await mailbox.mark_read([message])
    database = database_of(store)
    assert len(database.deliveries.rows) == HISTORY
    assert await mailbox.check(holder) is None
    await mailbox.send("new")
    delivery = await mailbox.check(holder)
    first = database.messages.first("box")
    assert [row.id for row in database.deliveries.open("box", first)] == [delivery.id]
    assert len(list(database.deliveries.open("box", 0))) == HISTORY + 1
    await mailbox.acknowledge(holder, delivery.id)
    assert database.messages.unread == {}
    assert database.messages.types == {}


async def test_rerouted_mail_is_in_its_place(store: MemStore) -> None:
    """Unread mail is in order of sending also where older messages come in later, and its types are counted there."""
    left, right = store.mailbox("left"), store.mailbox("right")
    for number in range(6):
        await (left if number % 2 else right).send(number, f"type {number % 3}")
    assert await left.reroute(to="right") == 3
    database = database_of(store)
    assert [message.payload for message in database.messages.unread["right"].values()] == [
        str(number).encode() for number in range(6)
    ]
    assert database.messages.types == {"right": {"type 0": 2, "type 1": 2, "type 2": 2}}
    holder = await right.attach(source="run", subject="7")
    assert [message.payload_as(int) for message in (await right.check(holder, 4)).messages] == [0, 1, 2, 3]


async def test_fenced_batches_leave_no_entry(store: MemStore) -> None:
    """A consumer that is replaced again and again leaves rows, and nothing that is looked through."""
    mailbox = store.mailbox("box")
    await mailbox.send(1)
    for generation in range(1, 100):
        holder = await mailbox.attach(source="run", subject="7")
        assert holder == Holder("run", "7", generation)
        assert (await mailbox.check(holder)).replayed is False
    database = database_of(store)
    assert len(database.deliveries.rows) == 99
    assert len(list(database.deliveries.open("box", 0))) == 1
