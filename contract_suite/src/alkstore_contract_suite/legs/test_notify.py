"""notify and listen: hints that something changed (contract section 5)."""

import asyncio
import dataclasses
import threading
from random import Random

import pytest
from alkstore_core import LISTENER_RECONNECTED, Store, Wake, WakeReceiver
from alkstore_core.errors import ClosedError
from alkstore_core.testing import running_tasks

from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import collect_quietly, grown_since, kinds_of_objects
from alkstore_contract_suite.proofs import caught_up, heard_nothing


@leg(rules="N2 N3", since="1.0")
async def test_listen_starts_from_now(store: Store, second_store: Store) -> None:
    """A receiver hears every notify committed after `listen` returned, and none from before."""
    await store.notify("orders")
    await second_store.notify("orders")
    async with store.listen("orders") as receiver:
        await heard_nothing(store, receiver)
        for sender in (store, second_store):
            await sender.notify("orders")
            assert await receiver.recv() == Wake("orders")


@leg(rules="N2", since="1.0")
async def test_listen_hears_nothing_earlier(store: Store, second_store: Store) -> None:
    """However soon `listen` follows a notify, by whichever store, that notify is not heard."""
    for number in range(60):
        sender = (store, second_store)[number % 2]
        if number % 3:
            await sender.notify("orders")
        else:
            async with sender.transaction() as tx:
                await tx.notify("orders")
        async with store.listen("orders") as receiver:
            await heard_nothing(store, receiver)


@leg(rules="N2", since="1.0")
async def test_listen_hears_everything_later(store: Store, second_store: Store) -> None:
    """However soon a notify follows `listen`, by whichever store and form, it is heard."""
    for number in range(60):
        sender = (store, second_store)[number % 2]
        async with store.listen("orders") as receiver:
            if number % 3:
                await sender.notify("orders")
            else:
                async with sender.transaction() as tx:
                    await tx.notify("orders")
            assert await receiver.recv() == Wake("orders")


@leg(rules="N2", since="1.0")
async def test_no_gap_between_listening_and_waiting(store: Store, second_store: Store) -> None:
    """Who listens, then reads, then waits, misses nothing: what is committed between the last two ends the waiting."""
    for number in range(40):
        async with store.listen("orders") as receiver:
            assert len(await store.stream("orders").read_since(0)) == number
            sender = (store, second_store)[number % 2]
            async with sender.transaction() as tx:
                await tx.publish("orders", number)
                await tx.notify("orders")
            assert await receiver.recv() == Wake("orders")
            assert len(await store.stream("orders").read_since(0)) == number + 1


@leg(rules="N2 N4", since="1.0")
async def test_no_lost_wake_in_a_race(store: Store, second_store: Store) -> None:
    """A consumer that reads until nothing is left and then waits sees every event, whenever they are committed."""
    draw = Random(5)

    async def produce(stream: str) -> None:
        for number in range(2):
            for _ in range(draw.randrange(6)):
                await asyncio.sleep(0)
            async with (store, second_store)[draw.randrange(2)].transaction() as tx:
                await tx.publish(stream, number)
                await tx.notify("orders")

    for number in range(60):
        stream, seen = f"orders {number}", 0
        async with store.listen("orders") as receiver, asyncio.TaskGroup() as group:
            group.create_task(produce(stream))
            while seen < 2:
                events = await store.stream(stream).read_since(0)
                for _ in range(draw.randrange(3)):
                    await asyncio.sleep(0)  # whatever a consumer does meanwhile
                if len(events) == seen:
                    assert await receiver.recv() == Wake("orders")
                seen = len(events)


@leg(rules="N1", since="1.0")
async def test_transaction_notifies_at_the_commit(store: Store, second_store: Store) -> None:
    """A notify on a transaction is heard after the commit and not before, and never after a rollback."""
    async with store.listen("orders") as receiver, second_store.listen("orders") as other:
        async with store.begin_tx() as tx:
            await tx.notify("orders")
            await tx.read_since("orders", 0)
            for each in (receiver, other):
                assert await each.try_recv() is None
            await tx.rollback()
        for each_store, each in ((store, receiver), (second_store, other)):
            await heard_nothing(each_store, each)
        async with second_store.begin_tx() as tx:
            await tx.notify("orders")
            await tx.read_since("orders", 0)
            for each in (receiver, other):
                assert await each.try_recv() is None
            await tx.commit()
        for each in (receiver, other):
            assert await each.recv() == Wake("orders")


@leg(rules="N1", since="1.0")
async def test_notify_is_not_kept(harness: Harness, store: Store, second_store: Store) -> None:
    """A notify that nobody listened to is gone: neither a later listener nor a store opened later hears it."""
    for number in range(20):
        await store.notify("orders", {"number": number})
    async with store.listen("orders") as here, second_store.listen("orders") as there:
        await heard_nothing(store, here)
        await heard_nothing(second_store, there)
    async with harness.open() as later, later.listen("orders") as receiver:
        await heard_nothing(later, receiver)


@leg(rules="N1 N7", since="1.0")
async def test_every_listener_hears(store: Store, second_store: Store) -> None:
    """A notify wakes all receivers of its channel, of any number and of every store."""
    receivers = [await each.listen("orders") for each in (store, second_store) for _ in range(10)]
    for sender in (store, second_store):
        await sender.notify("orders")
        for receiver in receivers:
            assert await receiver.recv() == Wake("orders")
        for each in (store, second_store):
            await caught_up(each)
        for receiver in receivers:
            await receiver.try_recv()  # repeated wakes are legal


@leg(rules="N3", since="1.0")
async def test_channels_keep_apart(store: Store, second_store: Store) -> None:
    """A notify wakes nobody on another channel, nor does an event or a job of that name."""
    async with store.listen("orders") as receiver, second_store.listen("orders") as other:
        for sender in (store, second_store):
            await sender.notify("payments")
            await sender.notify("order")
            await sender.notify("orders2")
            await sender.stream("orders").publish(1)
            await sender.queue("orders").enqueue(1)
            await sender.outbox("orders").enqueue(1)
            async with sender.transaction() as tx:
                await tx.notify("payments")
                await tx.publish("orders", 1)
                await tx.enqueue("orders", 1)
        await heard_nothing(store, receiver)
        await heard_nothing(second_store, other)


@leg(rules="N3", since="1.0")
async def test_wake_carries_its_channel_only(store: Store) -> None:
    """A wake has its channel's name, and nothing of what was notified."""
    async with store.listen("orders") as receiver:
        for payload in ({"secret": 7}, None, "secret"):
            await store.notify("orders", payload)
            wake = await receiver.recv()
            assert wake is not None
            assert wake == Wake("orders")
            assert wake.channel == "orders"
            assert [getattr(wake, field.name) for field in dataclasses.fields(wake)] == ["orders"]
            await caught_up(store)
            await receiver.try_recv()


# recv and try_recv


@leg(rules="N4", since="1.0")
async def test_recv_waits(store: Store) -> None:
    """A recv waits for a wake that comes later."""
    async with store.listen("orders") as receiver:
        receiving = asyncio.create_task(receiver.recv())
        await caught_up(store)
        assert not receiving.done()
        await store.notify("orders")
        assert await receiving == Wake("orders")


@leg(rules="N4", since="1.0")
async def test_try_recv_does_not_wait(store: Store) -> None:
    """try_recv gives a wake that is there, None when there is none, and takes it away."""
    async with store.listen("orders") as receiver:
        assert await receiver.try_recv() is None
        await store.notify("orders")
        await caught_up(store)
        assert await receiver.try_recv() == Wake("orders")
        await caught_up(store)
        await receiver.try_recv()  # a repeated one, perhaps
        assert await receiver.try_recv() is None


@leg(rules="N4", since="1.0")
@pytest.mark.parametrize("way", ["close", "block", "store"])
async def test_closed_receiver_says_so_for_ever(harness: Harness, way: str) -> None:
    """Once closed, by itself, its block or its store, recv gives None, try_recv ClosedError, iteration ends: always."""
    async with harness.open() as store:
        receiver = await store.listen("orders")
        await store.notify("orders")
        await caught_up(store)
        if way == "close":
            await receiver.close()
            await receiver.close()
        elif way == "block":
            async with receiver as entered:
                assert entered is receiver
        else:
            await store.close()
        for _ in range(3):
            assert await receiver.recv() is None
            with pytest.raises(ClosedError):
                await receiver.try_recv()
            assert [wake async for wake in receiver] == []
        if way != "store":
            async with store.listen("orders") as another:
                await store.notify("orders")
                assert await another.recv() == Wake("orders")
                assert await receiver.recv() is None


@leg(rules="N4 T12", since="1.0")
@pytest.mark.parametrize("way", ["close", "store"])
async def test_closing_ends_the_waiting(harness: Harness, way: str) -> None:
    """Whoever waits in recv, or iterates, when the receiver or its store closes, is given None, or ends."""
    async with harness.open() as store:
        receivers = [await store.listen("orders") for _ in range(4)]

        async def iterate(receiver: WakeReceiver) -> list[Wake]:
            return [wake async for wake in receiver]

        waiting = [asyncio.create_task(receiver.recv()) for receiver in receivers[:2]]
        iterating = [asyncio.create_task(iterate(receiver)) for receiver in receivers[2:]]
        await caught_up(store)
        if way == "close":
            for receiver in receivers:
                await receiver.close()
        else:
            await store.close()
        assert await asyncio.gather(*waiting, *iterating) == [None, None, [], []]


@leg(rules="N4 N3", since="1.0")
async def test_iteration_gives_wakes(store: Store) -> None:
    """Iterating over a receiver gives its wakes until it is closed."""
    async with store.listen("orders") as receiver:
        count = 0
        await store.notify("orders")
        async for wake in receiver:
            assert wake == Wake("orders")
            count += 1
            if count == 5:
                await receiver.close()
            else:
                await store.notify("orders")
    assert count == 5


@leg(rules="N4 T13", since="1.0")
async def test_cancelled_recv_loses_nothing(store: Store, second_store: Store) -> None:
    """A recv that is cancelled around a notify either gave the wake or left it for the next one."""
    draw = Random(44)
    async with store.listen("orders") as receiver:
        for number in range(150):
            receiving = asyncio.create_task(receiver.recv())
            notifying = asyncio.create_task((store, second_store)[number % 2].notify("orders"))
            for _ in range(draw.randrange(12)):
                await asyncio.sleep(0)
            receiving.cancel()
            await notifying
            try:
                wake = await receiving
            except asyncio.CancelledError:
                wake = await receiver.recv()
            assert wake == Wake("orders")
            await caught_up(store)
            await receiver.try_recv()  # a repeated one, perhaps


@leg(rules="N4 T13", since="1.0")
async def test_timed_out_recv_loses_nothing(store: Store) -> None:
    """A recv that timed out leaves the next wake to the next recv."""
    async with store.listen("orders") as receiver:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await receiver.recv()
            await store.notify("orders")
            assert await receiver.recv() == Wake("orders")
            await caught_up(store)
            await receiver.try_recv()


@leg(rules="N4 N6", since="1.0")
async def test_waits_in_vain_leave_nothing_behind(store: Store) -> None:
    """Thousands of recv calls that timed out or were cancelled leave no task, thread or object behind."""
    async with store.listen("orders") as receiver:

        async def wait_in_vain(times: int) -> None:
            for _ in range(times):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await receiver.recv()

        await wait_in_vain(10)
        tasks, threads, kinds = running_tasks(), threading.active_count(), kinds_of_objects()
        await wait_in_vain(2000)
        assert running_tasks() == tasks
        assert threading.active_count() <= threads
        assert grown_since(kinds, by_more_than=200) == {}
        await store.notify("orders")
        assert await receiver.recv() == Wake("orders")


# many and slow listeners


@leg(rules="N6 N3", since="1.0")
async def test_unread_wakes_coalesce(store: Store, second_store: Store) -> None:
    """A listener that does not read holds a bounded number of wakes, however many came, and hears on once it reads."""
    async with store.listen("orders") as idle:

        async def flood(times: int) -> None:
            for sender in (store, second_store):
                await asyncio.gather(*(sender.notify("orders") for _ in range(times)))
            await caught_up(store)

        await flood(50)
        kinds = kinds_of_objects()
        await flood(1000)
        assert grown_since(kinds, by_more_than=200) == {}
        held = 0
        while await idle.try_recv() is not None:
            held += 1
        assert 1 <= held <= 10
        await second_store.notify("orders")
        assert await idle.recv() == Wake("orders")


@leg(rules="N6", since="1.0")
async def test_idle_listener_slows_nobody(store: Store) -> None:
    """Beside listeners that never read, others hear every notify and writers go on."""
    idle = [await store.listen("orders") for _ in range(50)]
    async with store.listen("orders") as receiver:
        for _ in range(50):
            await store.notify("orders")
            assert await receiver.recv() == Wake("orders")
    assert all([await each.recv() == Wake("orders") for each in idle])


@leg(rules="N6 N2", since="1.0")
async def test_dropped_listeners_leave_nothing_behind(store: Store) -> None:
    """Receivers that were closed, or dropped unclosed, cost nothing any more, and the others still hear."""

    async def come_and_go(times: int) -> None:
        for number in range(times):
            receiver = await store.listen(f"channel {number}")
            if number % 2:
                await receiver.close()
            del receiver
        collect_quietly()
        await caught_up(store)

    async with store.listen("orders") as receiver:
        await come_and_go(20)
        tasks, threads, kinds = running_tasks(), threading.active_count(), kinds_of_objects()
        await come_and_go(300)
        assert running_tasks() == tasks
        assert threading.active_count() <= threads
        assert grown_since(kinds, by_more_than=200) == {}
        await store.notify("orders")
        assert await receiver.recv() == Wake("orders")


# failure


@leg(rules="N5 T12", since="1.0")
async def test_failed_listen_is_an_error(harness: Harness) -> None:
    """Listening on a store that is closed raises: no receiver is given that could never hear."""
    store = await harness.open()
    await store.close()
    with pytest.raises(ClosedError):
        await store.listen("orders")
    with pytest.raises(ClosedError):
        async with store.listen("orders"):
            pass


@leg(rules="N5", since="1.0", needs=("sever",))
async def test_lost_connection_is_told(harness: Harness, store: Store) -> None:
    """After the connections were cut every receiver is told so, whatever it listens to, and goes on hearing."""
    receivers = {name: await store.listen(name) for name in ("orders", "payments", "silent")}
    for _ in range(3):
        await harness.sever()
        for receiver in receivers.values():
            wake = await receiver.recv()
            while wake != Wake(LISTENER_RECONNECTED):
                assert wake is not None
                wake = await receiver.recv()
        async with harness.open() as sender:
            for name, receiver in receivers.items():
                await sender.notify(name)
                wake = await receiver.recv()
                while wake != Wake(name):
                    assert wake == Wake(LISTENER_RECONNECTED)
                    wake = await receiver.recv()


@leg(rules="N5", since="1.0")
async def test_reconnection_has_a_name_of_its_own(store: Store) -> None:
    """The wake that says so is on a channel that nobody can notify."""
    assert LISTENER_RECONNECTED == "__alkstore_listener_reconnected__"
    for use in (store.notify, store.listen):
        with pytest.raises(Exception, match="__alkstore_"):
            await use(LISTENER_RECONNECTED)
