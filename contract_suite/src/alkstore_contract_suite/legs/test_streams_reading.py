"""Streams, reading from an offset, and streams beside one another (contract section 6)."""

from alkstore_core import Store
from alkstore_core.numbers import INT64_MAX

from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.events import offsets_of, received
from alkstore_contract_suite.proofs import got_nothing

# reading


@leg(rules="S3", since="1.0")
async def test_reads_ascend(store: Store, second_store: Store) -> None:
    """Reading gives the events above the offset, ascending, from wherever one begins."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(5)))
    offsets.append(await second_store.stream("orders").publish(5))
    for place, offset in enumerate(offsets):
        assert offsets_of(await stream.read_since(offset)) == offsets[place + 1 :]
        assert offsets_of(await second_store.stream("orders").read_since(offset - 1)) == offsets[place:]


@leg(rules="S3 S4", since="1.0")
async def test_read_limits(store: Store) -> None:
    """A limit of n gives the first n events, and without one at most 100, in every form."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(103)))
    assert offsets_of(await stream.read_since(0)) == offsets[:100]
    assert offsets_of(await stream.read_from_consumer("reader")) == offsets[:100]
    for limit, expected in ((1, offsets[:1]), (102, offsets[:102]), (INT64_MAX, offsets)):
        assert offsets_of(await stream.read_since(0, limit)) == expected
        assert offsets_of(await stream.read_from_consumer("reader", limit)) == expected
    async with store.transaction() as tx:
        assert offsets_of(await tx.read_since("orders", 0)) == offsets[:100]
        assert offsets_of(await tx.read_since("orders", offsets[0], 2)) == offsets[1:3]
        assert offsets_of(await tx.read_from_consumer("orders", "reader")) == offsets[:100]
        assert offsets_of(await tx.read_from_consumer("orders", "reader", 2)) == offsets[:2]


@leg(rules="S3", since="1.0")
async def test_unknown_stream_is_empty(store: Store) -> None:
    """A stream that nobody published to reads as empty, trims nothing, and can be followed."""
    stream = store.stream("orders")
    assert await stream.read_since(0) == []
    assert await stream.read_from_consumer("reader") == []
    assert await stream.trim_to(INT64_MAX) == 0
    async with stream.subscribe("reader") as receiver:
        assert await receiver.try_recv() is None
        await got_nothing(stream, receiver)


@leg(rules="T6 S3 S4", since="1.0")
async def test_transaction_reads_its_own_writes(store: Store, second_store: Store) -> None:
    """Reads on a transaction see what it published and saved, after what was there; others do not before the commit."""
    stream = second_store.stream("orders")
    before = await stream.publish("before")
    async with store.transaction() as tx:
        own = [await tx.publish("orders", "own"), await tx.publish("orders", "own too")]
        assert offsets_of(await tx.read_since("orders", 0)) == [before, *own]
        assert offsets_of(await tx.read_from_consumer("orders", "reader")) == [before, *own]
        await tx.save_offset("orders", "reader", own[0])
        assert await tx.get_offset("orders", "reader") == own[0]
        assert offsets_of(await tx.read_from_consumer("orders", "reader")) == [own[1]]
        assert offsets_of(await stream.read_since(0)) == [before]
        assert await stream.get_offset("reader") == 0
        assert offsets_of(await stream.read_from_consumer("reader")) == [before]
    assert offsets_of(await stream.read_since(0)) == [before, *own]
    assert offsets_of(await stream.read_from_consumer("reader")) == [own[1]]


# streams beside one another


@leg(rules="S9", since="1.0")
async def test_interleaved_streams_do_not_mix(store: Store, second_store: Store) -> None:
    """Two streams with interleaved publishes each read back their own events, in order, at growing offsets."""
    expected: dict[str, list[tuple[int, int]]] = {"orders": [], "mails": []}
    for number in range(12):
        name = ("orders", "mails")[number % 2]
        expected[name].append((await (store, second_store)[number % 3 % 2].stream(name).publish(number), number))
    async with store.transaction() as tx:
        for number, name in ((12, "mails"), (13, "orders"), (14, "mails")):
            expected[name].append((await tx.publish(name, number), number))
    for name, events in expected.items():
        assert events == sorted(events)
        found = await store.stream(name).read_since(0)
        assert [(event.stream, event.offset, event.payload_as(int)) for event in found] == [
            (name, *event) for event in events
        ]
        async with store.stream(name).subscribe("reader") as receiver:
            assert await received(receiver, len(events)) == [offset for offset, _ in events]
            await got_nothing(store.stream(name), receiver)


@leg(rules="S9 S7", since="1.0")
async def test_subscriber_gets_its_stream_only(store: Store) -> None:
    """Events of another stream neither reach a subscriber nor move its place."""
    orders, mails = store.stream("orders"), store.stream("mails")
    async with orders.subscribe("reader") as receiver, mails.subscribe("reader") as other:
        for _ in range(3):
            mail = await mails.publish("mail")
            order = await orders.publish("order")
            assert await received(receiver, 1) == [order]
            assert await received(other, 1) == [mail]
        await mails.publish("mail")
        await got_nothing(orders, receiver)


@leg(rules="S9 S6", since="1.0")
async def test_trim_is_of_one_stream(store: Store) -> None:
    """Trimming one stream leaves another one whole, whatever its offsets."""
    orders, mails = store.stream("orders"), store.stream("mails")
    for number in range(3):
        await orders.publish(number)
        await mails.publish(number)
    before = await mails.read_since(0)
    assert await orders.trim_to(INT64_MAX) == 3
    assert await mails.read_since(0) == before
    assert len(before) == 3
