"""Streams, publishing: offsets, keys, and the first use of a store by many (contract section 6)."""

import asyncio

import pytest
from alkstore_core import Store, StreamEvent
from alkstore_core.errors import CodecError, InvalidNameError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.events import both_forms, offsets_of, publish, received

# publishing


@both_forms
@leg(rules="S1", since="1.0")
async def test_publish_returns_the_offset(store: Store, witness: Witness, in_transaction: bool) -> None:
    """Publishing appends one event and returns the offset that it is read at."""
    await store.stream("mails").publish("beside")
    first = await publish(store, in_transaction, "first")
    second = await publish(store, in_transaction, "second")
    events = await store.stream("orders").read_since(0)
    assert [(event.offset, event.payload) for event in events] == [(first, b'"first"'), (second, b'"second"')]
    assert await witness.events("orders") == [first, second]


@leg(rules="S1", since="1.0")
async def test_offsets_grow(store: Store, second_store: Store) -> None:
    """Offsets are positive int64 and grow with every publish, in whatever form and by whichever store."""
    offsets = [await store.stream("orders").publish(1)]
    offsets += await second_store.stream("orders").publish_many([2, 3])
    async with store.transaction() as tx:
        offsets += [await tx.publish("orders", 4), await tx.publish("orders", 5)]
    offsets.append(await second_store.stream("orders").publish(6))
    assert offsets == sorted(set(offsets))
    assert offsets[0] > 0
    assert offsets[-1] <= INT64_MAX
    events = await store.stream("orders").read_since(0)
    assert [(event.offset, event.payload_as(int)) for event in events] == list(zip(offsets, range(1, 7), strict=True))


@leg(rules="S1", since="1.0")
async def test_offsets_outlive_a_rollback(store: Store) -> None:
    """A rollback may leave a gap, and takes no committed offset with it."""
    stream = store.stream("orders")
    before = await stream.publish("before")
    async with store.begin_tx() as tx:
        await tx.publish("orders", "undone")
    after = await stream.publish("after")
    assert before < after
    events = await stream.read_since(0)
    assert [(event.offset, event.payload) for event in events] == [(before, b'"before"'), (after, b'"after"')]


@leg(rules="S1 S6", since="1.0")
async def test_offsets_are_not_reused_after_a_trim(store: Store) -> None:
    """After everything was trimmed, offsets go on above all earlier ones."""
    stream = store.stream("orders")
    last = (await stream.publish_many([1, 2, 3]))[-1]
    assert await stream.trim_to(last) == 3
    following = await stream.publish(4)
    assert following > last
    assert offsets_of(await stream.read_since(last)) == [following]


@leg(rules="S1", since="1.0", needs=("durable",))
async def test_offsets_are_not_reused_after_a_restart(harness: Harness) -> None:
    """Offsets go on above all earlier ones after everything was trimmed, closed and restarted."""
    async with harness.open() as store:
        last = (await store.stream("orders").publish_many([1, 2, 3]))[-1]
        assert await store.stream("orders").trim_to(INT64_MAX) == 3
    await harness.restart()
    async with harness.open() as store:
        following = await store.stream("orders").publish(4)
        assert following > last
        assert offsets_of(await store.stream("orders").read_since(0)) == [following]


@leg(rules="S1 S3", since="1.0")
async def test_concurrent_publishes_get_offsets_of_their_own(store: Store, second_store: Store) -> None:
    """Publishes at the same moment each get another offset, at which their own event is read."""
    published: dict[int, int] = {}

    async def publish_one(number: int) -> None:
        stream = (store, second_store)[number % 2].stream("orders")
        published[await stream.publish(number)] = number

    await asyncio.gather(*map(publish_one, range(60)))
    events = await store.stream("orders").read_since(0)
    assert [(event.offset, event.payload_as(int)) for event in events] == sorted(published.items())
    assert len(events) == 60


@leg(rules="Q12 S1", since="1.0")
async def test_publish_many_in_order(store: Store, witness: Witness) -> None:
    """Publishing many appends them all and returns their offsets in the order given, growing."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(["a", "b", "a", "c"], keys=["k", None, "k", "l"])
    assert offsets == sorted(set(offsets))
    events = await stream.read_since(0)
    found = [(event.offset, event.payload, event.key) for event in events]
    expected = zip(offsets, (b'"a"', b'"b"', b'"a"', b'"c"'), ("k", None, "k", "l"), strict=True)
    assert found == list(expected)
    assert await stream.publish_many([]) == []
    assert await witness.events("orders") == offsets


@leg(rules="Q12 S2", since="1.0")
async def test_publish_many_is_all_or_nothing(store: Store, witness: Witness) -> None:
    """Where one of many payloads or keys is refused, none of them is published."""
    stream = store.stream("orders")
    with pytest.raises(CodecError):
        await stream.publish_many(["good", float("nan")])
    with pytest.raises(InvalidNameError):
        await stream.publish_many(["good", "good"], keys=["good", ""])
    assert await stream.read_since(0) == []
    assert await witness.events("orders") == []


@both_forms
@leg(rules="S2", since="1.0")
async def test_event_carries_everything(
    harness: Harness, store: Store, second_store: Store, clock: ManualClock, in_transaction: bool
) -> None:
    """An event has its offset, its stream, its key or None, its encoded payload and the second it was published in."""
    times = [clock.now()]
    first = await publish(store, in_transaction, {"id": 7, "name": "żółw"}, key="7")
    await harness.advance(90)
    times.append(clock.now())
    second = await publish(store, in_transaction, None)
    assert await second_store.stream("orders").read_since(0) == [
        StreamEvent(first, "orders", "7", '{"id":7,"name":"żółw"}'.encode(), times[0]),
        StreamEvent(second, "orders", None, b"null", times[1]),
    ]
    async with second_store.stream("orders").subscribe("reader") as receiver:
        assert await receiver.recv() == StreamEvent(first, "orders", "7", '{"id":7,"name":"żółw"}'.encode(), times[0])
        assert await receiver.recv() == StreamEvent(second, "orders", None, b"null", times[1])


KEYS = (None, "7", " ", "\t\n", "__alkstore_key", "None", "ключ 🔑", "e\u0301", "é", "A", "a", "k" * 5000)


@both_forms
@leg(rules="S2", since="1.0")
async def test_keys_round_trip(store: Store, in_transaction: bool) -> None:
    """None and every key that is not empty come back exactly; the same key may come again."""
    for key in (*KEYS, "7"):
        await publish(store, in_transaction, "x", key=key)
    await store.stream("orders").publish_many(["x"] * len(KEYS), keys=list(KEYS))
    events = await store.stream("orders").read_since(0)
    assert [event.key for event in events] == [*KEYS, "7", *KEYS]


@leg(rules="S2 V3", since="1.0")
async def test_keys_refused(store: Store, witness: Witness) -> None:
    """An empty key, and one with a NUL or a lone surrogate, is refused in every form, and nothing is published."""
    stream = store.stream("orders")
    for key in ("", "a\0b", "\ud800"):
        with pytest.raises(InvalidNameError):
            await stream.publish("x", key=key)
        with pytest.raises(InvalidNameError):
            await stream.publish_many(["x"], keys=[key])
        async with store.transaction() as tx:
            with pytest.raises(InvalidNameError):
                await tx.publish("orders", "x", key=key)
    assert await stream.read_since(0) == []
    assert await witness.events("orders") == []


# first use


@pytest.mark.parametrize("round", range(5))
@leg(rules="S1 X2", since="1.0")
async def test_first_use_by_many(harness: Harness, witness: Witness, round: int) -> None:
    """Stores that open an empty place and publish to a new stream at the same moment all succeed."""
    assert round >= 0

    async def first_use(number: int) -> int:
        async with harness.open() as store:
            async with store.stream("orders").subscribe("reader") as receiver:
                offset = await store.stream("orders").publish(number)
                while offset not in await received(receiver, 1):
                    pass
            return offset

    offsets = await asyncio.gather(*map(first_use, range(8)))
    assert len(set(offsets)) == 8
    assert await witness.events("orders") == sorted(offsets)
