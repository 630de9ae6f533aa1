"""Streams, saved offsets: by themselves, and with the work they are the checkpoint of (contract section 6)."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from alkstore_core import Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.events import both_forms, offsets_of, received
from alkstore_contract_suite.proofs import got_nothing


async def save_offset(store: Store, in_transaction: bool, offset: int) -> None:
    """Save an offset of "reader" on "orders" in one of `both_forms`."""
    if not in_transaction:
        await store.stream("orders").save_offset("reader", offset)
        return
    async with store.transaction() as tx:
        await tx.save_offset("orders", "reader", offset)


# saved offsets


@leg(rules="S4", since="1.0")
async def test_offsets_are_saved_explicitly_only(store: Store, witness: Witness) -> None:
    """Reading, subscribing, receiving and closing save no offset; what was received is given again."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(["a", "b"])
    for _ in range(2):
        assert offsets_of(await stream.read_from_consumer("reader")) == offsets
        async with store.transaction() as tx:
            assert offsets_of(await tx.read_from_consumer("orders", "reader")) == offsets
        async with stream.subscribe("reader") as receiver:
            assert await received(receiver, 2) == offsets
            assert await receiver.try_recv() is None
    assert await witness.offset("orders", "reader") is None


@both_forms
@leg(rules="S4", since="1.0")
async def test_saved_offsets_are_monotone(store: Store, witness: Witness, in_transaction: bool) -> None:
    """A higher offset replaces the saved one; a lower or the same one is silently ignored."""
    for offset, expected in ((5, 5), (4, 5), (5, 5), (-1, 5), (0, 5), (7, 7), (INT64_MIN, 7), (INT64_MAX, INT64_MAX)):
        await save_offset(store, in_transaction, offset)
        assert await store.stream("orders").get_offset("reader") == expected
        assert await witness.offset("orders", "reader") == expected
    await save_offset(store, not in_transaction, 9)
    assert await store.stream("orders").get_offset("reader") == INT64_MAX


@pytest.mark.parametrize("first", [INT64_MIN, -7, 0, INT64_MAX])
@both_forms
@leg(rules="S4", since="1.0")
async def test_first_saved_offset_is_stored_as_it_is(
    store: Store, witness: Witness, in_transaction: bool, first: int
) -> None:
    """The first offset that a consumer saves is stored whatever it is: negative, zero, or at an int64 limit."""
    await save_offset(store, in_transaction, first)
    assert await store.stream("orders").get_offset("reader") == first
    assert await witness.offset("orders", "reader") == first
    async with store.transaction() as tx:
        assert await tx.get_offset("orders", "reader") == first


@leg(rules="S4", since="1.0")
async def test_negative_saved_offset_grows(store: Store) -> None:
    """A saved negative offset is compared like any other, and everything is read after it."""
    stream = store.stream("orders")
    published = await stream.publish("x")
    for offset, expected in ((-7, -7), (-8, -7), (-3, -3), (0, 0)):
        await stream.save_offset("reader", offset)
        assert await stream.get_offset("reader") == expected
        assert offsets_of(await stream.read_from_consumer("reader")) == [published]


@leg(rules="S4", since="1.0")
async def test_unknown_consumer_is_at_zero(store: Store, witness: Witness) -> None:
    """A consumer that never saved an offset is at 0, in both forms, and asking saves none."""
    await store.stream("orders").save_offset("somebody else", 3)
    assert await store.stream("orders").get_offset("reader") == 0
    assert await store.stream("no such stream").get_offset("reader") == 0
    async with store.transaction() as tx:
        assert await tx.get_offset("orders", "reader") == 0
    assert await witness.offset("orders", "reader") is None


@leg(rules="S4 S9 V2", since="1.0")
async def test_offsets_belong_to_stream_and_consumer(store: Store) -> None:
    """Each consumer of each stream has an offset of its own; consumers' names are free, the reserved prefix too."""
    places = {
        ("orders", "a"): 1,
        ("orders", "A"): 2,
        ("orders", " a"): 3,
        ("orders", "__alkstore_a"): 4,
        ("mails", "a"): 5,
        ("mails", "orders"): 6,
    }
    for (stream, consumer), offset in places.items():
        await store.stream(stream).save_offset(consumer, offset)
    found = {place: await store.stream(place[0]).get_offset(place[1]) for place in places}
    assert found == places


@leg(rules="S4", since="1.0")
async def test_read_from_consumer_reads_after_the_saved_offset(store: Store) -> None:
    """Reading for a consumer gives what lies above its saved offset, whether or not there is an event at it."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(4)))
    assert offsets_of(await stream.read_from_consumer("reader")) == offsets
    for saved, expected in (
        (offsets[0], offsets[1:]),
        (offsets[2], offsets[3:]),
        (offsets[3], []),
        (offsets[3] + 10, []),
        (INT64_MAX, []),
    ):
        await stream.save_offset("reader", saved)
        assert offsets_of(await stream.read_from_consumer("reader")) == expected
        async with store.transaction() as tx:
            assert offsets_of(await tx.read_from_consumer("orders", "reader")) == expected
    assert offsets_of(await stream.read_from_consumer("another")) == offsets


@leg(rules="S4", since="1.0")
async def test_concurrent_saves_keep_the_highest(store: Store, second_store: Store) -> None:
    """Of offsets saved at the same moment, the highest stays."""
    random = Random(4)
    for highest in range(20, 200, 20):
        offsets = list(range(highest - 19, highest + 1))
        random.shuffle(offsets)
        streams = [(store, second_store)[offset % 2].stream("orders") for offset in offsets]
        await asyncio.gather(*(s.save_offset("reader", offset) for s, offset in zip(streams, offsets, strict=True)))
        assert await store.stream("orders").get_offset("reader") == highest


# work and checkpoint in one transaction


@leg(rules="S5", since="1.0")
async def test_checkpoint_commits_with_the_work(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """An offset saved on a transaction is seen by others when its work is, and not before."""
    stream = second_store.stream("orders")
    offset = await stream.publish("x")
    async with store.transaction() as tx:
        await tx.save_offset("orders", "worker", offset)
        await harness.write(tx, "worked")
        assert await stream.get_offset("worker") == 0
        assert await witness.offset("orders", "worker") is None
    assert await stream.get_offset("worker") == offset
    assert await witness.offset("orders", "worker") == offset
    assert await witness.business() == ["worked"]
    async with stream.subscribe("worker") as receiver:
        await got_nothing(stream, receiver)


@leg(rules="S5", since="1.0")
async def test_checkpoint_rolls_back_with_the_work(harness: Harness, store: Store, witness: Witness) -> None:
    """An offset saved on a transaction is gone when its work is, and the event is given again."""
    stream = store.stream("orders")
    offset = await stream.publish("x")

    async def fail() -> None:
        async with store.transaction() as tx:
            await tx.save_offset("orders", "worker", offset)
            await harness.write(tx, "worked")
            raise _WorkFailedError

    async def roll_back() -> None:
        async with store.begin_tx() as tx:
            await tx.save_offset("orders", "worker", offset)
            await harness.write(tx, "worked")

    for undone in (fail, roll_back):
        with suppress(_WorkFailedError):
            await undone()
        assert await stream.get_offset("worker") == 0
        assert await witness.offset("orders", "worker") is None
        assert await witness.business() == []
        async with stream.subscribe("worker") as receiver:
            assert await received(receiver, 1) == [offset]


@leg(rules="S5 S7", since="1.0")
async def test_work_happens_exactly_once(harness: Harness, store: Store, witness: Witness) -> None:
    """Work that saves its offset in its transaction is done once per event, however often the worker fails."""
    random = Random(5)
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(12)))
    failures = 0
    while await stream.get_offset("worker") < offsets[-1]:
        try:
            async with stream.subscribe("worker") as receiver:
                async for event in receiver:
                    async with store.transaction() as tx:
                        # In either order, so that neither can hide behind the other.
                        if event.offset % 2:
                            await harness.write(tx, str(event.offset))
                            _fail_sometimes(random)
                            await tx.save_offset("orders", "worker", event.offset)
                        else:
                            await tx.save_offset("orders", "worker", event.offset)
                            _fail_sometimes(random)
                            await harness.write(tx, str(event.offset))
                        _fail_sometimes(random)
                    if event.offset == offsets[-1]:
                        break
        except _WorkFailedError:
            failures += 1
    assert failures > 5
    assert await witness.business() == [str(offset) for offset in offsets]


class _WorkFailedError(Exception):
    """What a consumer's own work raises."""


def _fail_sometimes(random: Random) -> None:
    if random.random() < 0.3:
        raise _WorkFailedError
