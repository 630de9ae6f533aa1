"""What a check and an acknowledgement cost, as a ratio to claiming and acknowledging a batch of jobs of the same size.

Both are done in turns on one store. The machine is shared and noisy: what counts is the ratio.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable

import click
from alkstore_core import Holder, Mailbox, Queue, open_store
from rich.console import Console
from rich.table import Table

BATCH = 50


async def claim_and_ack(queue: Queue) -> None:
    """Claim a batch of jobs, and acknowledge it."""
    handles = await queue.claim_batch("worker", BATCH)
    assert await queue.ack_batch("worker", [handle.job.id for handle in handles]) == BATCH


async def check_and_acknowledge(mailbox: Mailbox, holder: Holder) -> None:
    """Be handed a batch of messages, and acknowledge it."""
    delivery = await mailbox.check(holder, BATCH)
    assert delivery is not None
    assert len(delivery.messages) == BATCH
    await mailbox.acknowledge(holder, delivery.id)


async def taken(work: Callable[[], Awaitable[None]]) -> float:
    """How long it takes, in milliseconds."""
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


async def measure(url: str, rounds: int) -> tuple[float, float]:
    """The medians of both, in milliseconds."""
    jobs, mails = [], []
    async with open_store(url) as store:
        queue, mailbox = store.queue("benchmark"), store.mailbox("benchmark")
        holder = await mailbox.attach(source="benchmark", subject="1")
        for _ in range(rounds):
            payloads = [{"n": number} for number in range(BATCH)]
            await queue.enqueue_many(payloads)
            async with store.transaction() as tx:
                for payload in payloads:
                    await tx.send(mailbox, payload)
            jobs.append(await taken(lambda: claim_and_ack(queue)))
            mails.append(await taken(lambda: check_and_acknowledge(mailbox, holder)))
    return statistics.median(jobs), statistics.median(mails)


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--rounds", default=200, show_default=True, help="How often each is done.")
def main(urls: tuple[str, ...], rounds: int) -> None:
    """Measure on each store; without any, in memory and on SQLite."""
    table = Table("store", "claim + ack", "check + acknowledge", "ratio", title=f"batches of {BATCH}, medians")
    with tempfile.TemporaryDirectory(prefix="alkstore-") as folder:
        for url in urls or ("mem:", f"sqlite:///{folder}/app.db"):
            jobs, mails = asyncio.run(measure(url, rounds))
            table.add_row(url.partition(":")[0], f"{jobs:.2f} ms", f"{mails:.2f} ms", f"{mails / jobs:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
