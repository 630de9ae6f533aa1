"""Streams, trimming: what goes, and what stays as it was (contract section 6)."""

import asyncio

from alkstore_core import Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.events import offsets_of, received
from alkstore_contract_suite.proofs import got_nothing, heard_nothing


@leg(rules="S6 S3", since="1.0")
async def test_trim_deletes_up_to_the_horizon(store: Store, witness: Witness) -> None:
    """Trimming deletes the events at and below the horizon, says how many, and leaves the others where they were."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(6)))
    before = await stream.read_since(0)
    for horizon, expected, left in ((offsets[1], 2, 2), (offsets[1], 0, 2), (offsets[0], 0, 2), (offsets[4], 3, 5)):
        assert await stream.trim_to(horizon) == expected
        assert await stream.read_since(0) == before[left:]
        assert await witness.events("orders") == offsets[left:]
    assert await stream.trim_to(offsets[5]) == 1
    assert await stream.read_since(0) == []
    assert await witness.events("orders") == []


@leg(rules="S6 S3", since="1.0")
async def test_reads_resume_after_a_trimmed_region(store: Store) -> None:
    """From within a trimmed region, reads and subscriptions go on at the first event that is left."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(5)))
    await stream.save_offset("reader", offsets[1])
    await stream.trim_to(offsets[2])
    for offset in (INT64_MIN, 0, offsets[0], offsets[2]):
        assert offsets_of(await stream.read_since(offset, 1)) == [offsets[3]]
    assert await stream.get_offset("reader") == offsets[1]
    assert offsets_of(await stream.read_from_consumer("reader")) == offsets[3:]
    async with stream.subscribe("reader") as receiver:
        assert await received(receiver, 2) == offsets[3:]
    await stream.save_offset("reader", offsets[3])
    assert offsets_of(await stream.read_from_consumer("reader")) == offsets[4:]


@leg(rules="S6", since="1.0")
async def test_trim_hides_nothing_that_comes_later(store: Store) -> None:
    """A horizon beyond the end trims what is there, and nothing that is published afterwards."""
    stream = store.stream("orders")
    last = await stream.publish("trimmed")
    async with stream.subscribe("reader") as receiver:
        for beyond in (last + 50, INT64_MAX):
            await stream.trim_to(beyond)
            later = await stream.publish("kept")
            assert offsets_of(await stream.read_since(0)) == [later]
            while (given := await received(receiver, 1)) != [later]:
                assert given == [last]  # it may have been read before it was trimmed


@leg(rules="S6 S1", since="1.0")
async def test_trim_counts_events_and_not_offsets(store: Store) -> None:
    """Where rollbacks and other streams leave gaps, trimming to the newest n leaves exactly n."""
    stream = store.stream("orders")
    offsets = []
    for number in range(12):
        if number % 3 == 2:
            async with store.begin_tx() as tx:
                await tx.publish("orders", "undone")
        await store.stream("mails").publish(number)
        offsets.append(await stream.publish(number))
    for left in (7, 3, 1):
        before = len(await stream.read_since(0))
        assert await stream.trim_to(offsets[-left] - 1) == before - left
        assert offsets_of(await stream.read_since(0)) == offsets[-left:]
    assert len(await store.stream("mails").read_since(0)) == 12


@leg(rules="S6", since="1.0")
async def test_trim_racing_publishes(store: Store, second_store: Store) -> None:
    """A trim that races with publishes deletes everything up to its horizon and nothing above it."""
    there = [await store.stream("orders").publish("first")]
    for _ in range(15):
        publishing = [(store, second_store)[number % 2].stream("orders").publish(number) for number in range(4)]
        trimmed, *published = await asyncio.gather(second_store.stream("orders").trim_to(there[-1]), *publishing)
        assert trimmed == len(there)
        assert offsets_of(await store.stream("orders").read_since(0)) == sorted(published)
        there = sorted(published)


@leg(rules="S6", since="1.0")
async def test_saved_offset_outlives_a_trim(store: Store, witness: Witness) -> None:
    """A saved offset stays as it is when the events around it are trimmed, and stays monotone."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(4)))
    await stream.save_offset("reader", offsets[1])
    await stream.trim_to(offsets[3])
    assert await stream.get_offset("reader") == offsets[1]
    await stream.save_offset("reader", offsets[0])
    assert await witness.offset("orders", "reader") == offsets[1]
    await stream.save_offset("reader", offsets[2])
    assert await witness.offset("orders", "reader") == offsets[2]


@leg(rules="S6 S7", since="1.0")
async def test_subscriber_keeps_its_place_through_a_trim(store: Store, second_store: Store) -> None:
    """A subscriber whose events are trimmed behind and before it gets every later event, once."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        first = await stream.publish("first")
        assert await received(receiver, 1) == [first]
        assert await second_store.stream("orders").trim_to(first) == 1
        second = await stream.publish("second")
        assert await received(receiver, 1) == [second]
        await second_store.stream("orders").publish_many(["unseen", "unseen"])
        await second_store.stream("orders").trim_to(INT64_MAX)
        await got_nothing(stream, receiver)
        last = await second_store.stream("orders").publish("last")
        assert await received(receiver, 1) == [last]


@leg(rules="S6 N2", since="1.0")
async def test_trim_wakes_nobody(store: Store, second_store: Store) -> None:
    """Neither a trim nor a publish wakes a channel that has the stream's name."""
    async with store.listen("orders") as receiver:
        await second_store.stream("orders").publish_many(["a", "b"])
        await second_store.stream("orders").trim_to(INT64_MAX)
        await store.stream("orders").publish("c")
        await store.stream("orders").trim_to(INT64_MAX)
        await heard_nothing(store, receiver)


@leg(rules="S6", since="1.0")
async def test_nothing_is_trimmed_by_itself(harness: Harness, store: Store) -> None:
    """However much time passes, events and saved offsets stay."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(["a", "b"])
    await stream.save_offset("reader", offsets[0])
    for seconds in (1, 86_400, 10**10):
        await harness.advance(seconds)
        offsets.append(await stream.publish("later"))
        assert offsets_of(await stream.read_since(0)) == offsets
        assert await stream.get_offset("reader") == offsets[0]
