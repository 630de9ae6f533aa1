"""Following a stream: every event once and in order, whoever else asks the receiver meanwhile (S7, S8)."""

import asyncio
import gc

import pytest
from alkstore_core.errors import ClosedError, CodecError, DatabaseError, InvalidNameError
from alkstore_core.streams import _PAGE


async def idle(*waits: "asyncio.Task[object]") -> bool:
    """Whether all still wait after everything that can run has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not any(wait.done() for wait in waits)


async def test_a_subscriber_replays_and_then_follows(store) -> None:
    """From its saved offset on, and its own save is what the next one resumes at (S4, S7)."""
    stream = store.stream("orders")
    offsets = await stream.publish_many(["a", "b", "c"], keys=["k", None, "k"])
    await stream.save_offset("c", offsets[0])
    async with stream.subscribe("c") as events:
        assert [(await events.recv()).payload_as(str) for _ in range(2)] == ["b", "c"]
        waiting = asyncio.create_task(events.recv())
        assert await idle(waiting)
        await stream.publish("d")
        event = await waiting
        assert (event.offset, event.stream, event.key, event.payload) == (offsets[2] + 1, "orders", None, b'"d"')
        await events.save_offset()
    assert await events.recv() is None
    assert await stream.get_offset("c") == event.offset
    async with stream.subscribe("c") as again:
        await stream.publish("e")
        assert (await again.recv()).payload == b'"e"'


async def test_saving_before_anything_was_given_saves_nothing(store) -> None:
    """And the consumer stays unknown (S7)."""
    async with store.stream("orders").subscribe("c") as events:
        await events.save_offset()
    assert await store.stream("orders").get_offset("c") == 0


async def test_many_pages_come_in_order(store) -> None:
    """What is read ahead is bounded, and nothing is skipped at the seams."""
    stream = store.stream("orders")
    count = 2 * _PAGE + 3
    await stream.publish_many(range(count))
    async with stream.subscribe("c") as events:
        got = []
        for _ in range(count):
            got.append((await events.recv()).payload_as(int))
            assert len(events._buffer) < _PAGE
        assert got == list(range(count))
        assert await events.try_recv() is None


async def test_try_recv_never_waits_although_a_recv_does(store) -> None:
    """None when idle (N4, S7), and the waiting recv gets what comes."""
    async with store.stream("orders").subscribe("c") as events:
        waiting = asyncio.create_task(events.recv())
        assert await idle(waiting)
        async with asyncio.timeout(5):
            assert await events.try_recv() is None
        await store.stream("orders").publish(1)
        assert (await waiting).payload == b"1"


async def test_events_are_given_once_to_whoever_asks_first(store) -> None:
    """Many tasks that wait and many that look share one receiver: all of it is given, once, and none waits on."""
    stream = store.stream("orders")
    given: list[int] = []
    number = 0
    all_given = asyncio.Event()

    def give(event) -> None:
        given.append(event.payload_as(int))
        if len(given) == number:
            all_given.set()

    async def wait() -> None:
        while (event := await events.recv()) is not None:
            give(event)
            await asyncio.sleep(0)

    async def look() -> None:
        while True:
            if (event := await events.try_recv()) is not None:
                give(event)
            await asyncio.sleep(0)

    async with stream.subscribe("c") as events:
        waiters = [asyncio.create_task(wait()) for _ in range(4)]
        lookers = [asyncio.create_task(look()) for _ in range(2)]
        for size in [1, 2, 1, 5, 3] * 40:
            first, number = number, number + size
            all_given.clear()
            await stream.publish_many(range(first, number))
            await all_given.wait()
        for looker in lookers:
            looker.cancel()
        await asyncio.gather(*lookers, return_exceptions=True)
    await asyncio.gather(*waiters)
    assert sorted(given) == list(range(number))


async def test_two_that_wait_share_what_one_wake_brings(store) -> None:
    """The second does not wait for a second wake."""
    stream = store.stream("orders")
    async with stream.subscribe("c") as events:
        waits = [asyncio.create_task(events.recv()) for _ in range(3)]
        assert await idle(*waits)
        await stream.publish_many([1, 2, 3])
        assert [(await wait).payload for wait in waits] == [b"1", b"2", b"3"]


async def test_a_look_does_not_take_the_wake_of_one_that_waits(store) -> None:
    """Two events come with one wake; whoever looks before the waiting task has run gets one, and that one the other."""
    stream = store.stream("orders")
    async with stream.subscribe("c") as events:
        waiting = asyncio.create_task(events.recv())
        assert await idle(waiting)
        await stream.publish_many([1, 2])
        looked = await events.try_recv()
        assert sorted([looked.payload, (await waiting).payload]) == [b"1", b"2"]


async def test_it_reads_no_oftener_than_it_must(store, faults) -> None:
    """Those who ask at once share one read, and a wake that a read has answered causes no second one."""
    stream = store.stream("orders")
    await stream.publish_many(range(5))
    async with stream.subscribe("c") as events:
        got = await asyncio.gather(*(events.try_recv() for _ in range(5)))
        assert [event.payload_as(int) for event in got] == list(range(5))
        assert faults.names().count("read_settled_events") == 1
        await stream.publish(5)
        assert (await events.recv()).payload == b"5"
        waiting = asyncio.create_task(events.recv())
        assert await idle(waiting)
        assert faults.names().count("read_settled_events") == 3
    assert await waiting is None


async def test_a_receiver_closed_while_it_reads_gives_nothing_more(store, faults) -> None:
    """The event is the next subscription's."""
    stream = store.stream("orders")
    await stream.publish(1)
    events = await stream.subscribe("c")
    faults.stalled = {"read_settled_events"}
    reading = asyncio.create_task(events.recv())
    await faults.reached("read_settled_events")
    await events.close()
    faults.flowing.set()
    assert await reading is None
    async with stream.subscribe("c") as again:
        assert (await again.recv()).payload == b"1"


async def test_a_cancelled_or_timed_out_recv_loses_and_repeats_nothing(store) -> None:
    """Wherever it is cancelled: waiting, reading, or with the wake just taken (S7)."""
    stream = store.stream("orders")
    async with stream.subscribe("c") as events:
        for number in range(200):
            waiting = asyncio.create_task(events.recv())
            for _ in range(number % 7):
                await asyncio.sleep(0)
            await stream.publish(number)
            for _ in range(number % 5):
                await asyncio.sleep(0)
            waiting.cancel()
            try:
                event = await waiting
            except asyncio.CancelledError:
                event = await events.recv()
            assert event.payload_as(int) == number
        assert await events.try_recv() is None


async def test_an_outage_is_a_database_error_and_the_next_recv_goes_on(store, faults) -> None:
    """Its only error, and nothing is skipped (S7)."""
    stream = store.stream("orders")
    await stream.publish_many([1, 2])
    async with stream.subscribe("c") as events:
        faults.down = True
        for use in (events.recv, events.try_recv):
            with pytest.raises(DatabaseError, match="away"):
                await use()
        faults.down = False
        assert [(await events.recv()).payload, (await events.try_recv()).payload] == [b"1", b"2"]


async def test_a_subscription_that_fails_leaves_no_place_behind(store, faults) -> None:
    """Failed or cancelled between subscribing and the first read (S7)."""
    hub = store.engine._hub
    faults.after["get_offset"] = lambda: (_ for _ in ()).throw(DatabaseError("no offset"))
    with pytest.raises(DatabaseError, match="no offset"):
        await store.stream("orders").subscribe("c")
    faults.after.clear()
    faults.stalled = {"get_offset"}
    subscribing = asyncio.create_task(_subscribe(store))
    await faults.reached("get_offset")
    assert len(hub) == 1
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    assert len(hub) == 0


async def _subscribe(store) -> None:
    await store.stream("orders").subscribe("c")


async def test_an_event_between_subscribing_and_the_first_read_is_given(store, faults) -> None:
    """Subscribe first, read second."""
    faults.stalled = {"get_offset"}
    subscribing = asyncio.ensure_future(store.stream("orders").subscribe("c")._once())
    await faults.reached("get_offset")
    await store.stream("orders").publish(1)
    faults.flowing.set()
    events = await subscribing
    assert (await events.recv()).payload == b"1"
    await events.close()


async def test_closing_ends_waits_and_gives_what_was_read_ahead_again(store) -> None:
    """None for ever, ClosedError for a look; the next subscription has the rest."""
    stream = store.stream("orders")
    await stream.publish_many([1, 2])
    events = await stream.subscribe("c")
    assert (await events.recv()).payload == b"1"
    await events.save_offset()
    await events.close()
    await events.close()
    assert not events._buffer
    assert await events.recv() is None
    with pytest.raises(ClosedError, match="subscribe again"):
        await events.try_recv()
    async with stream.subscribe("c") as again:
        assert (await again.recv()).payload == b"2"
        waiting = asyncio.create_task(again.recv())
        assert await idle(waiting)
    assert await waiting is None


async def test_closing_the_store_ends_a_receiver_without_an_error(store, faults) -> None:
    """Also one that reads at that very moment (T12, S7)."""
    waiting_on = await store.stream("orders").subscribe("c")
    reading_on = await store.stream("orders").subscribe("d")
    waiting = asyncio.create_task(waiting_on.recv())
    assert await idle(waiting)
    faults.stalled = {"read_settled_events"}
    reading = asyncio.create_task(reading_on.recv())
    await faults.reached("read_settled_events")
    faults.after["read_settled_events"] = lambda: None
    await store.close()
    late = asyncio.create_task(reading_on.recv())
    faults.flowing.set()
    assert await asyncio.gather(waiting, reading, late) == [None, None, None]


async def test_a_receiver_that_is_dropped_frees_its_place(store) -> None:
    """Nobody has to close it."""
    events = await store.stream("orders").subscribe("c")
    hub = store.engine._hub
    assert len(hub) == 1
    del events
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(hub) == 0


async def test_arguments_are_checked_before_anything_is_stored(store, faults) -> None:
    """Keys, lengths, numbers, payloads, consumers (S2, V1, V2, V5, P2)."""
    stream = store.stream("orders")
    refused = [
        (InvalidNameError, lambda: stream.publish(1, key="")),
        (InvalidNameError, lambda: stream.publish(1, key="\ud800")),
        (InvalidNameError, lambda: stream.publish(1, key=7)),
        (CodecError, lambda: stream.publish(b"x")),
        (CodecError, lambda: stream.publish_many([1, b"x"])),
        (ValueError, lambda: stream.publish_many([1, 2], keys=["a"])),
        (InvalidNameError, lambda: stream.publish_many([1, 2], keys=["a", ""])),
        (TypeError, lambda: stream.read_since(0.0)),
        (TypeError, lambda: stream.read_since(True)),
        (ValueError, lambda: stream.read_since(2**63)),
        (TypeError, lambda: stream.read_since(0, "1")),
        (InvalidNameError, lambda: stream.read_from_consumer(" ")),
        (InvalidNameError, lambda: stream.save_offset("", 1)),
        (ValueError, lambda: stream.save_offset("c", -(2**63) - 1)),
        (InvalidNameError, lambda: stream.get_offset("a\0")),
        (TypeError, lambda: stream.trim_to(None)),
    ]
    for error, call in refused:
        with pytest.raises(error):
            await call()
    with pytest.raises(InvalidNameError):
        stream.subscribe("\t")
    assert [await stream.publish_many([]), await stream.read_since(0, 0), await stream.read_from_consumer("c", -5)] == [
        [],
        [],
        [],
    ]
    assert faults.calls == []


async def test_big_events_are_read_few_at_a_time(store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a receiver holds in memory is bounded in bytes; small events are soon read in full pages again."""
    monkeypatch.setattr("alkstore_core.streams._PAGE_BYTES", 10_000)
    stream, sizes = store.stream("s"), []
    big, small = "b" * 2_000, "s"
    await stream.publish_many([big] * 40 + [small] * 1000)
    async with stream.subscribe("c") as events:
        while (event := await events.try_recv()) is not None:
            sizes.append(sum(len(held.payload) for held in (event, *events._buffer)))
    assert max(sizes[16:]) <= 12_000
    assert events._page > 100
