"""One worker process of ``orchestration.py``, which starts it: it takes batches of tasks until its input ends."""

import asyncio
import json
import signal
import sys

from alkstore_core import Delivery, Holder, Mailbox, Store, open_store
from alkstore_core.errors import ConsumerFencedError


async def work(url: str, tasks: str, reports: str, seat: str, name: str) -> None:
    """Attach to the mailbox of tasks, and do what comes, a batch at a time."""
    orders = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with open_store(url) as store:
        mailbox = store.mailbox(tasks)
        holder = await mailbox.attach(source="seat", subject=seat)
        say("attached", f"attaches to {mailbox.name!r} as generation {holder.generation}")
        try:
            await until_input_ends(store, mailbox, holder, reports, name, orders)
        except ConsumerFencedError as error:
            say("refused", f"is refused, and ends: {error}")
    pipe.close()


async def until_input_ends(
    store: Store, mailbox: Mailbox, holder: Holder, reports: str, name: str, orders: asyncio.StreamReader
) -> None:
    """Take batch after batch; while there is none, wait to be told that there is more.

    Raises:
        ConsumerFencedError: somebody else took this worker's place, or it was settled.
    """
    while True:
        delivery = await mailbox.check(holder)
        if delivery is None:
            say("idle", "finds no mail")
            if not await orders.readline():
                return
            continue
        heartbeat = await store.mailbox(reports).send({"by": name}, type="heartbeat")
        numbers = numbers_of(delivery)
        told = f"is handed tasks {', '.join(map(str, numbers))} as …{delivery.id[-6:]}, and sends a heartbeat"
        say("holding", told, tasks=numbers, delivery=delivery.id)
        if not await orders.readline():  # here the work is done, and takes its time
            return
        # Acknowledged first, and reported then: who was replaced meanwhile has nothing to report.
        await mailbox.acknowledge(holder, delivery.id)
        async with store.transaction() as tx:
            for number in numbers:
                await tx.send(reports, {"task": number, "by": name}, type="result")
            await tx.mark_read(reports, [heartbeat])  # that it is at work is no news any more
        say("finished", "acknowledges the batch, then reports its results and suppresses its heartbeat, in one commit")


def numbers_of(delivery: Delivery) -> list[int]:
    """The tasks in a delivery."""
    return [message.payload_as(dict)["task"] for message in delivery.messages]


def say(event: str, told: str, **facts: object) -> None:
    """Tell the coordinator what is going on."""
    sys.stdout.write(json.dumps({"event": event, "told": told, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent decides
    asyncio.run(work(*sys.argv[1:]))
