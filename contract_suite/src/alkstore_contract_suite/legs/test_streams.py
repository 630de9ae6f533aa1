"""Streams: append, read from an offset, follow (contract section 6)."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest
from alkstore_core import EventReceiver, Store, Stream, StreamEvent, Transaction
from alkstore_core.errors import ClosedError, CodecError, DatabaseError, InvalidNameError
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.proofs import caught_up, got_nothing, heard_nothing

both_forms = pytest.mark.parametrize("in_transaction", [False, True], ids=["auto-commit", "transaction"])
"""The operation by itself, and on a transaction."""


async def publish(store: Store, in_transaction: bool, payload: object, key: str | None = None) -> int:
    """Publish to "orders" in one of `both_forms`."""
    if not in_transaction:
        return await store.stream("orders").publish(payload, key=key)
    async with store.transaction() as tx:
        return await tx.publish("orders", payload, key=key)


async def save_offset(store: Store, in_transaction: bool, offset: int) -> None:
    """Save an offset of "reader" on "orders" in one of `both_forms`."""
    if not in_transaction:
        await store.stream("orders").save_offset("reader", offset)
        return
    async with store.transaction() as tx:
        await tx.save_offset("orders", "reader", offset)


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


async def takes_turns(store: Store, tx: Transaction) -> bool:
    """Whether nobody else can write while this task's `tx` is open: an engine with one writer says so at once (T11)."""
    assert tx.is_open
    try:
        await store.stream("probe").publish("probe")
    except DatabaseError:
        return True
    return False


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


# trimming


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


# following


@leg(rules="S7", since="1.0")
async def test_subscription_resumes_after_the_saved_offset(store: Store) -> None:
    """A subscription gives first what lies above its consumer's saved offset, then what is published."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(4)))
    await stream.save_offset("reader", offsets[1])
    async with stream.subscribe("reader") as receiver, stream.subscribe("another") as other:
        offsets.append(await stream.publish("live"))
        assert await received(receiver, 3) == offsets[2:]
        assert await received(other, 5) == offsets
        await got_nothing(stream, receiver, other)


@leg(rules="S7", since="1.0")
async def test_new_events_are_delivered_as_they_commit(store: Store, second_store: Store) -> None:
    """A waiting subscriber gets each new event, in whatever form and by whichever store it is published."""
    async with store.stream("orders").subscribe("reader") as receiver:
        for publisher in (store, second_store):
            for in_transaction in (False, True):
                waiting = asyncio.create_task(receiver.recv())
                await caught_up(store)
                offset = await publish(publisher, in_transaction, "x")
                event = await waiting
                assert event is not None
                assert event.offset == offset
            waiting = asyncio.create_task(receiver.recv())
            await caught_up(store)
            offsets = await publisher.stream("orders").publish_many(["x", "y"])
            event = await waiting
            assert event is not None
            assert [event.offset, *await received(receiver, 1)] == offsets


@leg(rules="S7 S8", since="1.0")
async def test_no_wake_is_lost(store: Store, second_store: Store) -> None:
    """An event that commits at any moment between a subscriber's empty read and its wait is given."""
    async with store.stream("orders").subscribe("reader") as receiver:
        for number in range(60):
            waiting = asyncio.create_task(receiver.recv())
            await turns(number % 10)
            offset = await (store, second_store)[number % 2].stream("orders").publish(number)
            event = await waiting
            assert event is not None
            assert (event.offset, event.payload_as(int)) == (offset, number)


@leg(rules="S7", since="1.0")
async def test_events_around_subscribing_are_given(store: Store, second_store: Store) -> None:
    """An event that commits while a subscription is being opened is given, once."""
    last = 0
    for number in range(30):
        await store.stream("orders").save_offset("reader", last)
        opening = asyncio.create_task(_subscribed(store.stream("orders")))
        await turns(number % 6)
        last = await second_store.stream("orders").publish(number)
        async with await opening as receiver:
            assert await received(receiver, 1) == [last]
            assert await receiver.try_recv() is None


async def _subscribed(stream: Stream) -> EventReceiver:
    return await stream.subscribe("reader")


@leg(rules="S7 S3", since="1.0")
async def test_long_backlog_is_replayed_whole(store: Store) -> None:
    """A backlog longer than any page is given whole and in order, and what is published meanwhile after it."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(1100)))
    async with stream.subscribe("reader") as receiver:
        given = await received(receiver, 500)
        offsets.append(await stream.publish("meanwhile"))
        given += await received(receiver, 601)
        await got_nothing(stream, receiver)
    assert given == offsets


@leg(rules="S7 T3", since="1.0")
async def test_rolled_back_event_is_not_delivered(store: Store, second_store: Store) -> None:
    """A subscriber never gets an event of a transaction that was rolled back."""
    stream = second_store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        for _ in range(3):
            async with store.begin_tx() as tx:
                await tx.publish("orders", "undone")
                assert await receiver.try_recv() is None
            await got_nothing(stream, receiver)


@leg(rules="S7", since="1.0")
async def test_subscribers_are_independent(store: Store, second_store: Store) -> None:
    """Every subscription gets every event, also two of one consumer and those of several stores."""
    stream = store.stream("orders")
    async with (
        stream.subscribe("reader") as first,
        stream.subscribe("reader") as second,
        second_store.stream("orders").subscribe("reader") as third,
    ):
        offsets = await stream.publish_many(["a", "b"])
        assert await received(first, 2) == offsets
        await first.save_offset()
        offsets.append(await second_store.stream("orders").publish("c"))
        assert await received(second, 3) == offsets
        assert await received(third, 3) == offsets
        assert await received(first, 1) == offsets[2:]


@leg(rules="S7", since="1.0")
async def test_concurrent_recvs_share_the_events(store: Store) -> None:
    """Several tasks that receive from one subscription get each event once between them."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        given: list[int] = []

        async def receive_some() -> None:
            for _ in range(10):
                given.extend(await received(receiver, 1))

        receiving = [asyncio.create_task(receive_some()) for _ in range(4)]
        offsets = [await stream.publish(number) for number in range(20)]
        offsets += await stream.publish_many(list(range(20)))
        await asyncio.gather(*receiving)
        assert sorted(given) == offsets
        await got_nothing(stream, receiver)


@leg(rules="S7", since="1.0")
async def test_cancelled_recv_loses_and_repeats_nothing(store: Store, second_store: Store) -> None:
    """However often a recv is cancelled, each event is given once, in order."""
    random = Random(7)
    published: list[int] = []
    given: list[int] = []
    async with store.stream("orders").subscribe("reader") as receiver:
        for number in range(80):
            receiving = asyncio.create_task(receiver.recv())
            publishing = asyncio.create_task(second_store.stream("orders").publish(number))
            await turns(random.randrange(8))
            if number % 2:  # at a moment when the event is on its way to the receiver
                await asyncio.wait((publishing,))
                await turns(random.randrange(4))
            receiving.cancel()
            await asyncio.wait((receiving, publishing))
            published.append(publishing.result())
            if not receiving.cancelled() and (event := receiving.result()) is not None:
                given.append(event.offset)
        given += await received(receiver, len(published) - len(given))
        await got_nothing(store.stream("orders"), receiver)
    assert given == published


@leg(rules="S7", since="1.0")
async def test_timed_out_recv_loses_and_repeats_nothing(store: Store) -> None:
    """A recv that times out gives nothing up: the next one has the next event."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receiver.recv(), 0.001)
            offset = await stream.publish(number)
            assert await received(receiver, 1) == [offset]
        await got_nothing(stream, receiver)


@leg(rules="S7", since="1.0")
async def test_closed_receiver_ends(store: Store) -> None:
    """Once closed, a receiver gives None for ever after, to whoever waits too, and its try_recv raises ClosedError."""
    stream = store.stream("orders")
    receiver = await stream.subscribe("reader")
    waiting = asyncio.create_task(receiver.recv())
    await caught_up(store)
    await receiver.close()
    assert await waiting is None
    await stream.publish_many(["a", "b"])
    assert await receiver.recv() is None
    assert await receiver.recv() is None
    assert [event async for event in receiver] == []
    with pytest.raises(ClosedError):
        await receiver.try_recv()
    await receiver.close()


@leg(rules="S7", since="1.0")
async def test_closed_receiver_gives_nothing_read_ahead(store: Store) -> None:
    """A receiver that is closed with events read ahead gives none of them; the next subscription does."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(["a", "b", "c"])
    async with stream.subscribe("reader") as receiver:
        assert await received(receiver, 1) == offsets[:1]
        await receiver.save_offset()
    assert await receiver.recv() is None
    async with stream.subscribe("reader") as receiver:
        assert await received(receiver, 2) == offsets[1:]


@leg(rules="S7 T12", since="1.0")
async def test_closing_the_store_ends_receivers(store: Store, second_store: Store) -> None:
    """When its store is closed, a waiting recv gives None, and so does every later one."""
    receiver = await second_store.stream("orders").subscribe("reader")
    waiting = asyncio.create_task(receiver.recv())
    await caught_up(second_store)
    await second_store.close()
    assert await waiting is None
    await store.stream("orders").publish("x")
    assert await receiver.recv() is None
    with pytest.raises(ClosedError):
        await receiver.try_recv()
    with pytest.raises(ClosedError):
        await second_store.stream("orders").subscribe("reader")


@leg(rules="S7", since="1.0")
async def test_try_recv_gives_what_is_there(store: Store) -> None:
    """try_recv gives the next event if one is committed and None if not, and mixes with recv and iteration."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        assert await receiver.try_recv() is None
        offsets = await stream.publish_many(list(range(5)))
        assert await received_now(receiver) == offsets
        assert await receiver.try_recv() is None
        offsets = await stream.publish_many(list(range(4)))
        first = await receiver.try_recv()
        assert first is not None
        assert [first.offset, *await received(receiver, 1)] == offsets[:2]
        async for event in receiver:
            assert event.offset == offsets[2]
            break
        assert await received_now(receiver) == offsets[3:]


@leg(rules="S7", since="1.0")
async def test_receiver_saves_the_last_event_given(store: Store, witness: Witness) -> None:
    """A receiver's save_offset saves the last event that it gave, none read ahead, and nothing before the first."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(4)))
    async with stream.subscribe("reader") as receiver:
        await receiver.save_offset()
        assert await witness.offset("orders", "reader") is None
        for offset in offsets[:3]:
            assert await received(receiver, 1) == [offset]
            await receiver.save_offset()
            await receiver.save_offset()
            assert await witness.offset("orders", "reader") == offset
    async with stream.subscribe("reader") as receiver:
        assert await received(receiver, 1) == offsets[3:]


@leg(rules="S7 S4", since="1.0")
async def test_receiver_and_direct_saves_mix(store: Store) -> None:
    """The receiver's save and the direct one follow one rule: the higher offset stays, whoever saved it."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(list(range(5)))
    async with stream.subscribe("reader") as receiver:
        await received(receiver, 2)
        await stream.save_offset("reader", offsets[3])
        await receiver.save_offset()
        assert await stream.get_offset("reader") == offsets[3]
        assert await received(receiver, 3) == offsets[2:]  # it goes on from where it is
        await receiver.save_offset()
        await stream.save_offset("reader", offsets[0])
        assert await stream.get_offset("reader") == offsets[4]
    async with store.transaction() as tx:
        await tx.save_offset("orders", "reader", offsets[2])
    async with stream.subscribe("reader") as receiver:
        await got_nothing(stream, receiver)


@leg(rules="S7", since="1.0", needs=("outage",))
async def test_receiver_survives_an_outage(harness: Harness) -> None:
    """While the database cannot be used, recv raises nothing but DatabaseError; afterwards it gives each event once."""
    async with harness.open(patience_s=0.3) as store:
        stream = store.stream("orders")
        offsets = await stream.publish_many(["a", "b"])
        given: list[int] = []
        async with stream.subscribe("reader") as receiver, stream.subscribe("waiting") as other:
            waiting = asyncio.create_task(_received_through_errors(other, 2))
            async with harness.outage():
                with pytest.raises(DatabaseError):
                    await stream.publish("lost")
                for _ in range(2):
                    try:
                        given += await received_now(receiver)
                    except DatabaseError:
                        continue
            offsets.append(await stream.publish("c"))
            given += await received(receiver, 3 - len(given))
            assert given == offsets
            assert await waiting == offsets[:2]
            assert await received(other, 1) == offsets[2:]


async def _received_through_errors(receiver: EventReceiver, count: int) -> list[int]:
    given: list[int] = []
    while len(given) < count:
        try:
            event = await receiver.recv()
        except DatabaseError:
            await asyncio.sleep(0)
            continue
        assert event is not None, "the receiver closed"
        given.append(event.offset)
    return given


# publishers that commit out of offset order


@leg(rules="S8 S3", since="1.0")
async def test_older_publisher_is_waited_for(store: Store) -> None:
    """A subscriber gets a publisher's event that commits after a younger one's, and gets both in order."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        older = await store.begin_tx()
        offsets = [await older.publish("orders", "older")]
        if await takes_turns(store, older):
            await older.commit()
            offsets.append(await stream.publish("younger"))
        else:
            offsets.append(await stream.publish("younger"))
            assert await receiver.try_recv() is None
            await older.commit()
        assert await received(receiver, 2) == offsets
        await got_nothing(stream, receiver)


@leg(rules="S8", since="1.0")
async def test_saved_place_of_a_younger_event_skips_nothing(store: Store) -> None:
    """A subscriber that saves what it got, and begins again, still gets what an older publisher commits later."""
    stream = store.stream("orders")
    older = await store.begin_tx()
    offsets = [await older.publish("orders", "older")]
    given: list[int] = []
    if await takes_turns(store, older):
        await older.commit()
        offsets.append(await stream.publish("younger"))
    else:
        offsets.append(await stream.publish("younger"))
        async with stream.subscribe("reader") as receiver:
            given += await received_now(receiver)
            await receiver.save_offset()
        await older.commit()
    async with stream.subscribe("reader") as receiver:
        given += await received(receiver, 2 - len(given))
        await got_nothing(stream, receiver)
    assert given == offsets


@leg(rules="S8", since="1.0")
async def test_rolled_back_publisher_holds_nobody_up(store: Store) -> None:
    """When an older publisher rolls back, a subscriber that waited for it gets the younger event at once."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        receiving = asyncio.create_task(receiver.recv())
        await caught_up(store)
        older = await store.begin_tx()
        await older.publish("orders", "undone")
        if await takes_turns(store, older):
            await older.rollback()
            younger = await stream.publish("younger")
        else:
            younger = await stream.publish("younger")
            await caught_up(store)
            assert not receiving.done()
            await older.rollback()
        event = await receiving
        assert event is not None
        assert (event.offset, event.payload) == (younger, b'"younger"')


@leg(rules="S8", since="1.0")
async def test_old_publisher_is_waited_for_however_long(harness: Harness, store: Store) -> None:
    """However long a publisher stays open while others commit, its event is given, and in its place."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        older = await store.begin_tx()
        offsets = [await older.publish("orders", "older")]
        if await takes_turns(store, older):
            await harness.advance(10**6)
            await older.commit()
            offsets += [await stream.publish(number) for number in range(50)]
        else:
            for number in range(50):
                offsets.append(await stream.publish(number))
                await harness.advance(10**5)
                assert await receiver.try_recv() is None
            await older.commit()
        assert await received(receiver, 51) == offsets
        await got_nothing(stream, receiver)


@leg(rules="S8", since="1.0")
async def test_unrelated_transaction_holds_nobody_up(harness: Harness, store: Store) -> None:
    """An open transaction that published nothing to the stream keeps no event of it from a subscriber."""
    stream = store.stream("orders")
    offsets = [await stream.publish("before")]
    async with stream.subscribe("reader") as receiver, store.begin_tx() as tx:
        await tx.publish("mails", "unrelated")
        await tx.enqueue("emails", "unrelated")
        await tx.save_offset("orders", "somebody else", 1)
        await tx.read_since("orders", 0)
        await harness.write(tx, "unrelated")
        assert await received(receiver, 1) == offsets
        if not await takes_turns(store, tx):
            offsets.append(await stream.publish("meanwhile"))
            assert await received(receiver, 1) == offsets[1:]
            await got_nothing(stream, receiver)
        async with stream.subscribe("reader too") as another:
            assert await received(another, len(offsets)) == offsets


@leg(rules="S8", since="1.0")
async def test_open_publisher_hides_nothing_older(store: Store) -> None:
    """What was committed before an open publisher's event is given while it is open, and after it ended."""
    stream = store.stream("orders")
    before = await stream.publish_many(["a", "b"])
    async with stream.subscribe("reader") as receiver:
        async with store.transaction() as tx:
            own = await tx.publish("orders", "c")
            assert await received(receiver, 2) == before
            assert await receiver.try_recv() is None
        assert await received(receiver, 1) == [own]


@leg(rules="S8 S3", since="1.0")
async def test_read_since_shows_committed_events_at_once(store: Store) -> None:
    """Direct reads show every committed event, also above an offset whose publisher is still open."""
    stream = store.stream("orders")
    async with store.transaction() as older:
        offsets = [await older.publish("orders", "older")]
        if not await takes_turns(store, older):
            offsets.append(await stream.publish("younger"))
            assert offsets_of(await stream.read_since(0)) == offsets[1:]
            assert offsets_of(await stream.read_from_consumer("reader")) == offsets[1:]
    assert offsets_of(await stream.read_since(0)) == offsets
    assert offsets_of(await stream.read_from_consumer("reader")) == offsets


@pytest.mark.parametrize("seed", range(3))
@leg(rules="S8 S1 S3", since="1.0")
async def test_random_commit_orders(store: Store, seed: int) -> None:
    """Of transactions that publish in turns and commit in any order, or not at all, a live subscriber skips nothing.

    One task drives them all, so that each order of commits is exactly that of its seed. After every step the
    subscriber has been given a beginning of what is committed, in order.
    """
    random = Random(seed)
    async with store.begin_tx() as probe:
        at_once = 1 if await takes_turns(store, probe) else 4
    committed: list[int] = []
    given: list[int] = []
    async with store.stream("orders").subscribe("reader") as receiver:
        for _ in range(40):
            open_transactions = [(await store.begin_tx(), list[int]()) for _ in range(random.randint(1, at_once))]
            for _ in range(random.randint(1, 6)):
                tx, offsets = random.choice(open_transactions)
                await tx.publish("mails", "beside")
                offsets.append(await tx.publish("orders", "x"))
            random.shuffle(open_transactions)
            for tx, offsets in open_transactions:
                if random.random() < 0.13:
                    await tx.rollback()
                else:
                    await tx.commit()
                    committed += offsets
                if random.random() < 0.7:
                    given += await received_now(receiver)
                    assert given == sorted(committed)[: len(given)]
        given += await received(receiver, len(committed) - len(given))
        await got_nothing(store.stream("orders"), receiver)
    assert given == sorted(committed)


@pytest.mark.parametrize("seed", range(2))
@leg(rules="S8 S1 S3", since="1.0")
async def test_concurrent_publishers(store: Store, second_store: Store, seed: int) -> None:
    """Of eight publishers in transactions at once, some rolled back, subscribers get every event once, in order."""
    committed: list[int] = []
    given: list[list[int]] = [[], []]

    async def publish_on(which: Store, random: Random) -> None:
        for number in range(12):
            tx = await which.begin_tx()
            await turns(random.randrange(3))
            offsets = []
            for _ in range(random.randint(1, 3)):
                offsets.append(await tx.publish("orders", number))
                await turns(random.randrange(4))
            if random.random() < 0.12:
                await tx.rollback()
            else:
                await tx.commit()
                committed.extend(offsets)

    async def follow(receiver: EventReceiver, given: list[int]) -> None:
        async for event in receiver:
            if event.payload == b'"end"':
                break
            given.append(event.offset)

    async with (
        store.stream("orders").subscribe("reader") as first,
        second_store.stream("orders").subscribe("reader") as second,
    ):
        following = [asyncio.create_task(follow(*pair)) for pair in zip((first, second), given, strict=True)]
        publishing = [publish_on((store, second_store)[n % 2], Random(8 * seed + n)) for n in range(8)]
        await asyncio.gather(*publishing)
        await store.stream("orders").publish("end")
        await asyncio.gather(*following)
    assert given == [sorted(committed)] * 2


@leg(rules="S8 T3", since="1.0", needs=("child",))
async def test_killed_publisher_holds_nobody_up(store: Store, children: Children) -> None:
    """A process that is killed with a publish uncommitted leaves no event, and subscribers go on at once."""
    stream = store.stream("orders")
    async with stream.subscribe("reader") as receiver:
        child = await children.start(child_bodies.publishes_and_holds, "orders")
        await child.reached("published")
        await child.kill()
        await got_nothing(stream, receiver)


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
