"""Streams, publishers that commit out of offset order: no event is skipped (contract section 6)."""

import asyncio
from random import Random

import pytest
from alkstore_core import EventReceiver, Store, Transaction
from alkstore_core.errors import DatabaseError

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.legs.events import offsets_of, received, received_now, turns
from alkstore_contract_suite.proofs import caught_up, got_nothing


async def takes_turns(store: Store, tx: Transaction) -> bool:
    """Whether nobody else can write while this task's `tx` is open: an engine with one writer says so at once (T11)."""
    assert tx.is_open
    try:
        await store.stream("probe").publish("probe")
    except DatabaseError:
        return True
    return False


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
