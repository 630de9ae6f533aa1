"""Webhooks come in; each is stored, published and delivered, or none of the three.

For each line of the input one transaction writes a row into a table of ours, publishes to a stream and puts a delivery
into an outbox. Worker processes deliver to an HTTP server, a subscriber counts events, and at the end what came out is
held against what went in. With ``--crash`` workers are killed at random moments meanwhile, and nothing may be lost.
"""

import asyncio
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import anyio
import click
from alkstore_core import JobState, Queue, StopToken, Store, Stream, open_store
from alkstore_core.errors import DatabaseError
from rich.console import Console

from webhooks_demo.business import BusinessTable, business_table
from webhooks_demo.crew import Crew, WorkerEndedError, hire
from webhooks_demo.delivery import Parcel, deliver
from webhooks_demo.embedded import EMBEDDED, NoPostgresError, embedded_postgres
from webhooks_demo.hurried import SPEED, clock_options
from webhooks_demo.intake import InputError, read_webhooks
from webhooks_demo.screen import Bars, Outcome, show
from webhooks_demo.sink import Sink, open_sink
from webhooks_demo.verdict import fingerprint, judge

SAMPLE = Path(__file__).with_name("webhooks.sample.jsonl")
KILLS = 8
"""How often ``--crash`` kills."""
ATTEMPTS = KILLS + 5
"""How often a delivery is attempted: more often than workers are killed, so kills alone cannot use them up."""
END = "end of run"
"""The key of the event that tells the subscriber that there are no more."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, under a name that keeps it apart from others in the same database."""

    name: str

    @property
    def stream(self) -> str:
        """What it publishes to."""
        return f"webhooks {self.name}"

    @property
    def outbox(self) -> str:
        """Where its deliveries wait."""
        return f"deliveries {self.name}"


async def put_through(path: Path, url: str, workers: int, crash: bool, console: Console) -> Outcome:
    """Put the file's webhooks through the store that `url` names, and see what comes out."""
    sent = {webhook.line: fingerprint(webhook.body) for webhook in read_webhooks(path)}
    run = Run(uuid.uuid4().hex[:8])
    table = business_table(url)
    counts: Counter[str] = Counter()
    hurried_since = time.time() if crash else 0
    async with open_store(url, **clock_options(hurried_since)) as store:
        async with store.transaction() as tx:
            await table.create(tx)
        with Bars(console, len(sent)) as bars:
            async with (
                open_sink(bars.delivered) as sink,
                at_work(workers, store, url, run, sink, hurried_since, len(sent)) as kills,
            ):
                started = time.monotonic()
                async with anyio.create_task_group() as group:
                    group.start_soon(count_events, store.stream(run.stream), counts, bars)
                    jobs = await take_in(store, table, run, path, bars)
                    await all_settled(store.outbox(run.outbox).queue, jobs)
                seconds = time.monotonic() - started
        async with store.transaction() as tx:
            stored = await table.count(tx, run.name)
    return Outcome(len(sent), stored, counts, judge(sent, sink.arrivals, kills), len(kills), seconds)


async def take_in(store: Store, table: BusinessTable, run: Run, path: Path, bars: Bars) -> list[int]:
    """Store, publish and send each webhook, all three or none; the deliveries' ids."""
    jobs = []
    for webhook in read_webhooks(path):
        parcel = Parcel(line=webhook.line, event=webhook.event, body=webhook.body)
        async with store.transaction() as tx:
            await table.insert(tx, run.name, webhook)
            await tx.publish(run.stream, webhook.payload, key=webhook.event)
            jobs.append(await tx.outbox_enqueue(run.outbox, parcel, max_attempts=ATTEMPTS))
        bars.stored(len(jobs))
    await store.stream(run.stream).publish(None, key=END)
    return jobs


async def count_events(stream: Stream, counts: Counter[str], bars: Bars) -> None:
    """Count what is published, by key, until the end of the run."""
    async with stream.subscribe("counts") as events:
        async for event in events:
            if event.key == END:
                break
            counts[event.key or ""] += 1
            bars.counted(counts.total())
        await events.save_offset()


async def all_settled(deliveries: Queue, jobs: list[int]) -> None:
    """Return once each delivery is acknowledged, and so gone, or given up."""
    for job_id in jobs:
        # An acknowledgement wakes nobody, so this looks again and again.
        while (job := await deliveries.get_job(job_id)) is not None and job.state is not JobState.DEAD:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def at_work(
    workers: int, store: Store, url: str, run: Run, sink: Sink, hurried_since: float, total: int
) -> AsyncIterator[Mapping[str, float]]:
    """Workers at work, as processes unless the store cannot be shared; gives who was killed when, as it happens."""
    if url.startswith("mem:"):
        stop = StopToken()
        async with anyio.create_task_group() as group:
            for number in range(1, workers + 1):
                group.start_soon(deliver, store, run.outbox, sink.url, f"worker-{number}", stop)
            yield {}
            stop.cancel()
    else:
        async with (
            hire(workers, url, run.outbox, sink.url, str(hurried_since)) as crew,
            killing(crew, sink, total) if hurried_since else nullcontext(),
        ):
            yield crew.kills


@asynccontextmanager
async def killing(crew: Crew, sink: Sink, total: int) -> AsyncIterator[None]:
    """Workers are killed meanwhile, each a random moment after a random one of `total` arrivals."""

    async def kill_at_random() -> None:
        for arrivals in sorted(random.choices(range(total), k=KILLS)):
            await sink.wait_for(arrivals)
            await asyncio.sleep(random.uniform(0, 0.05))
            await crew.kill_one()

    async with anyio.create_task_group() as group:
        group.start_soon(kill_at_random)
        yield
        group.cancel_scope.cancel()


@click.command(help=__doc__)
@click.option(
    "--input",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=SAMPLE,
    help="JSON lines, each with id, event and payload. Without it: a sample.",
)
@click.option(
    "--store",
    "url",
    help=f"sqlite:///app.db, postgresql://…, mem:, or {EMBEDDED}: a Postgres that lasts as long as the run. Without it:"
    " a new SQLite file.",
)
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="How many deliver.")
@click.option("--crash", is_flag=True, help=f"Kill workers with SIGKILL, {KILLS} times, and start them again.")
def main(path: Path, url: str | None, workers: int, crash: bool) -> None:
    """Run it, show it, and exit with 1 unless everything came out as it must."""
    console = Console()
    if url is not None and url.startswith("mem:"):
        if crash:
            raise click.UsageError("mem: lives in this one process, so there is no worker process to kill")
        console.print("mem: lives in one process, so the workers run inside this one.")
    if crash:
        console.print(f"A killed worker's claims lapse after a minute: the store's clock runs {SPEED} times as fast.")
    try:
        with store_for(url) as own:
            outcome = asyncio.run(put_through(path, own, workers, crash, console))
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--input") from error
    except (DatabaseError, NoPostgresError) as error:
        raise click.BadParameter(str(error), param_hint="--store") from error
    except ExceptionGroup as group:
        if ended := group.subgroup(WorkerEndedError):
            raise click.ClickException(str(leaf(ended))) from group
        raise
    show(console, outcome)
    raise SystemExit(0 if outcome.good else 1)


@contextmanager
def store_for(url: str | None) -> Iterator[str]:
    """The URL of the store to use, which lasts as long as the block unless it was there before."""
    if url is None:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/webhooks.db"
    elif url == EMBEDDED:
        with embedded_postgres() as dsn:
            yield dsn
    else:
        yield url


def leaf(error: BaseException) -> BaseException:
    """The first error in a group of errors, however deep."""
    return leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    main()
