"""What child processes of legs run. Each body says what it reached; see `child.Child`."""

import asyncio
import os
import warnings
from random import Random
from typing import Any

from alkstore_core import StopToken
from alkstore_core.errors import ConsumerFencedError, DatabaseError, LeadershipLostError

from alkstore_contract_suite.child import Child

# killed


async def enqueues(child: Child, queue: str) -> None:
    """Enqueue one job, and block once it is acknowledged."""
    async with child.open() as store:
        job_id = await store.queue(queue).enqueue({"from": "child"})
        await child.barrier("acknowledged", job_id)


async def commits(child: Child) -> None:
    """Commit a transaction with everything in it, and block once that is acknowledged."""
    async with child.open() as store:
        async with store.transaction() as tx:
            await child.write(tx, "order 7")
            job_id = await tx.enqueue("emails", {"order": 7})
            offset = await tx.publish("orders", {"id": 7})
            await tx.save_offset("orders", "reader", offset)
        await child.barrier("committed", [job_id, offset])


async def leaves_a_transaction_open(child: Child) -> None:
    """Do everything on a transaction, and block without deciding it."""
    async with child.open() as store, store.transaction() as tx:
        await child.write(tx, "order 7")
        await tx.enqueue("emails", {"order": 7})
        await tx.outbox_enqueue("mail", {"order": 7})
        offset = await tx.publish("orders", {"id": 7})
        await tx.save_offset("orders", "reader", offset)
        await tx.notify("orders")
        await child.barrier("open")


async def enqueues_batches(child: Child, queue: str, size: int) -> None:
    """Enqueue batches without end, from several tasks, and say the ids of each once it is acknowledged."""
    async with child.open() as store:

        async def enqueue() -> None:
            while True:
                child.reached("acknowledged", await store.queue(queue).enqueue_many(range(size)))

        await asyncio.gather(*(enqueue() for _ in range(4)))


async def claims(child: Child, queue: str, count: int) -> None:
    """Claim jobs, and block with them."""
    async with child.open() as store:
        batch = await store.queue(queue).claim_batch("child", count)
        await child.barrier("claimed", [handle.job.id for handle in batch])


async def uses_up_numbers(child: Child) -> None:
    """Draw an id, an offset and a token, leave no row of any of them, and block."""
    async with child.open() as store:
        queue, stream = store.queue("emails"), store.stream("orders")
        job_id = await queue.enqueue("gone")
        assert await queue.cancel(job_id)
        offset = await stream.publish("gone")
        assert await stream.trim_to(offset) == 1
        lock = await store.try_lock("leader", "child", 60)
        assert lock is not None
        assert await lock.release()
        await child.barrier("used up", [job_id, offset, lock.token])


async def holds_a_lock(child: Child, name: str, ttl: int) -> None:
    """Take a lock, and block holding it."""
    async with child.open() as store:
        lock = await store.try_lock(name, "child", ttl)
        await child.barrier("held", None if lock is None else lock.token)


async def consumes(child: Child, stream: str, consumer: str) -> None:
    """Write a business row for each event, with the checkpoint in the same transaction, and say each commit."""
    async with child.open() as store, store.stream(stream).subscribe(consumer) as receiver:
        async for event in receiver:
            async with store.transaction() as tx:
                await child.write(tx, event.payload_as(str))
                await tx.save_offset(stream, consumer, event.offset)
            child.reached("consumed", event.offset)


async def runs_schedules(child: Child) -> None:
    """Run the scheduler without end; the parent moves the clock."""
    async with child.open() as store:
        child.reached("running")
        await store.run_schedules(StopToken())


# beside others


async def listens(child: Child, channel: str, times: int) -> None:
    """Listen, and say each wake."""
    async with child.open() as store, store.listen(channel) as receiver:
        child.reached("listening")
        for _ in range(times):
            wake = await receiver.recv()
            child.reached("woken", None if wake is None else wake.channel)


async def follows(child: Child, stream: str, consumer: str, count: int) -> list[Any]:
    """Follow a stream; the first `count` events."""
    async with child.open() as store, store.stream(stream).subscribe(consumer) as receiver:
        child.reached("following")
        events = [await receiver.recv() for _ in range(count)]
        return [None if event is None else [event.offset, event.payload_as(object)] for event in events]


async def listens_and_follows(child: Child, channel: str, stream: str) -> list[Any]:
    """Listen and follow; the first wake's channel, and the first event's offset and payload."""
    async with (
        child.open() as store,
        store.listen(channel) as wakes,
        store.stream(stream).subscribe("reader") as events,
    ):
        child.reached("listening")
        wake, event = await wakes.recv(), await events.recv()
        return [wake and wake.channel, event and event.offset, event and event.payload_as(object)]


async def announces(child: Child, channel: str, stream: str) -> None:
    """Commit a notify and an event."""
    async with child.open() as store, store.transaction() as tx:
        await tx.notify(channel)
        await tx.publish(stream, "from the child")


async def claims_all(child: Child, queue: str, worker: str) -> list[int]:
    """Claim one job after the other at a start signal, until none is left; their ids."""
    async with child.open() as store:
        await child.barrier("ready")
        claimed = []
        while (handle := await store.queue(queue).claim_one(worker)) is not None:
            claimed.append(handle.job.id)
        return claimed


async def tries_locks(child: Child, owner: str, count: int) -> list[str]:
    """Try `count` locks at a start signal; the names of those that it got."""
    async with child.open() as store:
        await child.barrier("ready")
        names = [f"lock {number}" for number in range(count)]
        return [name for name in names if await store.try_lock(name, owner, 60) is not None]


async def opens_first(child: Child) -> int:
    """Open the store at a start signal, together with others, and enqueue a job; its id."""
    await child.barrier("ready")
    async with child.open() as store:
        return await store.queue("emails").enqueue("first")


async def opens_and_closes(child: Child, times: int) -> None:
    """Open, use and close the store again and again."""
    for _ in range(times):
        async with child.open() as store, store.listen("orders"):
            await store.notify("orders")


async def reads_then_writes(child: Child, times: int) -> None:
    """Run transactions that read before they write, one after the other."""
    async with child.open() as store:
        await child.barrier("ready")
        for _ in range(times):
            async with store.transaction() as tx:
                offset = await tx.get_offset("orders", "writers")
                await tx.save_offset("orders", "writers", offset + 1)


# alone with the rules of processes


async def uses_its_store_in_a_fork(child: Child) -> str:
    """Fork with an open store, use it in the fork, and use it here after that; how the fork went."""
    async with child.open() as store:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of what this is about
            pid = os.fork()
        if pid == 0:
            os._exit(_outcome_in_the_fork(store.notify("orders")))
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        async with store.listen("orders") as receiver:
            await store.notify("orders")
            assert await receiver.recv() is not None
        return {0: "worked", 1: "refused"}.get(os.waitstatus_to_exitcode(status), "broke")


def _outcome_in_the_fork(use: Any) -> int:
    try:
        asyncio.new_event_loop().run_until_complete(use)
    except DatabaseError:
        return 1
    except BaseException:
        return 2
    return 0


async def forgets_its_store(child: Child) -> None:
    """End with a store, a listener and a subscriber open."""
    _forgotten.append(store := await child.open())
    _forgotten.append(await store.listen("orders"))
    _forgotten.append(await store.stream("orders").subscribe("reader"))
    await store.queue("emails").enqueue("kept")


_forgotten: list[object] = []


async def publishes_and_holds(child: Child, stream: str) -> None:
    """Publish an event on a transaction, and block before the commit."""
    async with child.open() as store, store.transaction() as tx:
        await child.barrier("published", await tx.publish(stream, "uncommitted"))


async def runs_schedules_until_it_lost(child: Child, seconds: int) -> str:
    """Run the scheduler by a clock that the parent moves, until it has lost the lead and its clock was moved so far."""
    until = child.clock.now() + seconds
    async with child.open() as store:
        child.reached("running")
        try:
            await store.run_schedules(StopToken())
        except LeadershipLostError:
            await child.clock.sleep_until(until)  # it may look, and lose, before the parent moves the clock
            return "lost"
        return "ended"


# mailboxes


async def holds_a_batch(child: Child, name: str) -> None:
    """Attach, check, and block with the batch in hand."""
    async with child.open() as store:
        mailbox = store.mailbox(name)
        holder = await mailbox.attach(source="run", subject="7")
        delivery = await mailbox.check(holder)
        assert delivery is not None
        await child.barrier("checked", [holder.generation, delivery.id])


async def sends_mail(child: Child, name: str) -> None:
    """Send a message by itself, and then one on a transaction, each when it is told to."""
    async with child.open() as store:
        await child.barrier("by itself")
        await store.mailbox(name).send("by itself")
        await child.barrier("on a transaction")
        async with store.transaction() as tx:
            await tx.send(name, "on a transaction")


async def races_for_mail(child: Child, name: str, subject: str, rounds: int, seed: int) -> list[list[str]]:
    """Attach now and then, check and acknowledge in between; the message ids of each batch that landed."""
    draw = Random(seed)
    landed: list[list[str]] = []
    async with child.open() as store:
        mailbox = store.mailbox(name)
        await child.barrier("ready")
        holder = await mailbox.attach(source="run", subject="7")
        for _ in range(rounds):
            try:
                delivery = await mailbox.check(holder, draw.randrange(1, 8))
                if delivery is not None:
                    for _ in range(draw.randrange(3)):
                        await asyncio.sleep(0)
                    receipt = await mailbox.acknowledge(holder, delivery.id)
                    assert not receipt.duplicate, f"{subject} acknowledged {delivery.id} twice"
                    landed.append([message.id for message in delivery.messages])
            except ConsumerFencedError:
                holder = await mailbox.attach(source="run", subject="7")
    return landed
