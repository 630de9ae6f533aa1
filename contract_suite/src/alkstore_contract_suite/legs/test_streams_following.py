"""Streams, following: what a subscriber is given, when, and until when (contract section 6)."""

import asyncio
from random import Random

import pytest
from alkstore_core import EventReceiver, Store, Stream
from alkstore_core.errors import ClosedError, DatabaseError

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.events import publish, received, received_now, turns
from alkstore_contract_suite.proofs import caught_up, got_nothing


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
