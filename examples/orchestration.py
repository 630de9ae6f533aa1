"""A coordinator hands tasks to workers that may be stopped, replaced and come back, and nothing is done twice.

Each worker is a process with a mailbox for its tasks; the coordinator has one for what they report. The first worker is
stopped (SIGSTOP) with a batch in its hands, another takes its place and does the batch, and the first one comes back
(SIGCONT) and is refused. A heartbeat that its task's completion made obsolete is suppressed together with the report of
it. The second worker is settled, and the tasks that it has not begun move on to a third.
"""

import asyncio
import json
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from alkstore_core import Mailbox, Store, open_store
from rich.console import Console
from rich.table import Table

WORKER = Path(__file__).with_name("orchestration_worker.py")
PATIENCE_S = 60.0
"""Nothing here takes long: whatever does, hangs."""
COORDINATOR = "coordinator"


class UnexpectedError(Exception):
    """Something went otherwise than the story goes."""


@dataclass
class Timeline:
    """What happened, in order: seconds since the beginning, who, and what."""

    started: float = field(default_factory=time.monotonic)
    entries: list[tuple[float, str, str]] = field(default_factory=list)

    def note(self, who: str, what: str) -> None:
        """Enter what `who` just did."""
        self.entries.append((time.monotonic() - self.started, who, what))

    def table(self) -> Table:
        """All of it, for people."""
        table = Table("seconds", "who", "what", title="What happened", expand=False)
        for seconds, who, what in self.entries:
            table.add_row(f"{seconds:.3f}", who, what)
        return table


class WorkerProcess:
    """One worker. It says what it does, line by line, and waits where its work would take its time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, timeline: Timeline) -> None:
        self.name = name
        self._process = process
        self._timeline = timeline

    async def says(self, expected: str) -> dict[str, Any]:
        """The next thing that it says, which must be of that kind.

        Raises:
            UnexpectedError: it says something else, or ends.
        """
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {"event": "the end"}
        if said["event"] != expected:
            raise UnexpectedError(f"{self.name} says {said} instead of {expected!r}")
        self._timeline.note(self.name, said["told"])
        return said

    async def go_on(self) -> None:
        """Its work is done, or there is more of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go on\n")
        await self._process.stdin.drain()

    def stop(self) -> None:
        """Freeze it where it stands, as a debugger, a suspended machine or a long pause would."""
        self._process.send_signal(signal.SIGSTOP)
        self._timeline.note(COORDINATOR, f"stops {self.name} with SIGSTOP, batch in hand")

    def resume(self) -> None:
        """Let it go on as if nothing had happened."""
        self._process.send_signal(signal.SIGCONT)
        self._timeline.note(COORDINATOR, f"lets {self.name} go on with SIGCONT")

    async def end(self) -> None:
        """See it end: it does so by itself once its input does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self._process.wait()

    def kill(self) -> None:
        """End it now, if it has not ended: stopped or not."""
        if self._process.returncode is None:
            self._process.kill()


class Coordinator:
    """The one who hands out and reads reports; a consumer of a mailbox itself."""

    def __init__(self, store: Store, url: str, run: str, timeline: Timeline) -> None:
        self.reports = store.mailbox(f"{run}:{COORDINATOR}")
        self.done: Counter[int] = Counter()
        self._store = store
        self._url = url
        self._run = run
        self._timeline = timeline

    def mailbox(self, seat: str) -> Mailbox:
        """The mailbox of a seat, whoever sits there."""
        return self._store.mailbox(f"{self._run}:{seat}")

    async def attach(self) -> None:
        """Become the consumer of the reports."""
        self._holder = await self.reports.attach(source="run", subject=self._run)
        self._timeline.note(COORDINATOR, f"reads {self.reports.name!r} as generation {self._holder.generation}")

    async def hand_out(self, seat: str, *tasks: int) -> None:
        """Send tasks to whoever sits there, all at one moment."""
        async with self._store.transaction() as tx:
            for task in tasks:
                await tx.send(self.mailbox(seat), {"task": task}, type="task")
        self._timeline.note(COORDINATOR, f"sends tasks {_listed(tasks)} to {seat!r}")

    @asynccontextmanager
    async def hired(self, name: str, seat: str) -> AsyncIterator[WorkerProcess]:
        """A worker process on a seat, attached; it is gone at the end, whatever happens."""
        arguments = (self._url, self.mailbox(seat).name, self.reports.name, seat, name)
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(WORKER), *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        worker = WorkerProcess(name, process, self._timeline)
        try:
            await worker.says("attached")
            yield worker
            await worker.end()
        finally:
            worker.kill()
            await process.wait()

    async def take_heartbeat(self, *, keep: bool) -> None:
        """Read a heartbeat; acknowledge it, or keep the delivery in hand as one who is busy does."""
        delivery = await self.reports.check(self._holder, types=["heartbeat"])
        if delivery is None:
            raise UnexpectedError("no heartbeat has come")
        senders = _listed(message.payload_as(dict)["by"] for message in delivery.messages)
        self._timeline.note(COORDINATOR, f"is handed a heartbeat of {senders} as {_short(delivery.id)}")
        if not keep:
            await self.reports.acknowledge(self._holder, delivery.id)
            self._timeline.note(COORDINATOR, f"acknowledges {_short(delivery.id)}")

    async def take_results(self, *, after_heartbeat: bool = False) -> None:
        """Read results and acknowledge them, each once."""
        delivery = await self.reports.check(self._holder)
        if delivery is None:
            raise UnexpectedError("no result has come")
        if delivery.replayed or any(message.type != "result" for message in delivery.messages):
            raise UnexpectedError(f"an obsolete heartbeat is in the way: {delivery}")
        results = [message.payload_as(dict) for message in delivery.messages]
        self.done.update(result["task"] for result in results)
        told = _listed(f"{result['task']} by {result['by']}" for result in results)
        suppressed = "; the heartbeat in hand was suppressed and is not replayed" if after_heartbeat else ""
        self._timeline.note(COORDINATOR, f"is handed the results {told} as {_short(delivery.id)}{suppressed}")
        receipt = await self.reports.acknowledge(self._holder, delivery.id)
        again = await self.reports.acknowledge(self._holder, delivery.id)
        if receipt.duplicate or not again.duplicate or again.acknowledged_at != receipt.acknowledged_at:
            raise UnexpectedError(f"acknowledged as {receipt}, and again as {again}")
        self._timeline.note(COORDINATOR, f"acknowledges {_short(delivery.id)}")

    async def retire(self, seat: str, to: str) -> None:
        """Settle whoever sits there, and give what is unread to another seat."""
        await self.mailbox(seat).settle(source="seat", subject=seat)
        moved = await self.mailbox(seat).reroute(to=self.mailbox(to).name)
        self._timeline.note(COORDINATOR, f"settles the worker of {seat!r}, and reroutes {moved} tasks to {to!r}")


async def tell(url: str, timeline: Timeline) -> Counter[int]:
    """The story, from the first task to the last; how often each task was done.

    Raises:
        UnexpectedError: it went otherwise.
    """
    async with open_store(url) as store:
        coordinator = Coordinator(store, url, f"run-{uuid.uuid4().hex[:6]}", timeline)
        await coordinator.attach()
        await coordinator.hand_out("left", 1, 2, 3)
        async with coordinator.hired("ann", "left") as ann:
            taken = await ann.says("holding")
            await coordinator.take_heartbeat(keep=False)
            ann.stop()
            async with coordinator.hired("bob", "left") as bob:
                again = await bob.says("holding")
                if again["tasks"] != taken["tasks"] or again["delivery"] == taken["delivery"]:
                    raise UnexpectedError(f"ann had {taken}, and bob has {again}")
                await coordinator.take_heartbeat(keep=True)
                await bob.go_on()
                await bob.says("finished")
                await coordinator.take_results(after_heartbeat=True)
                ann.resume()
                await ann.go_on()
                await ann.says("refused")
                await bob.says("idle")
                await coordinator.hand_out("left", 4, 5)
                await coordinator.retire("left", to="right")
                await bob.go_on()
                await bob.says("refused")
        async with coordinator.hired("cid", "right") as cid:
            rerouted = await cid.says("holding")
            if rerouted["tasks"] != [4, 5]:
                raise UnexpectedError(f"cid has {rerouted}")
            await cid.go_on()
            await cid.says("finished")
            await coordinator.take_results()
            await cid.says("idle")
        left = await coordinator.reports.pending()
        if left:
            raise UnexpectedError(f"left unread: {left}")
        return coordinator.done


def _listed(things: Any) -> str:
    return ", ".join(map(str, things))


def _short(delivery_id: str) -> str:
    return f"…{delivery_id[-6:]}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--store", "url", default="", help="A store's URL; without it a SQLite file that is removed at the end.")
def main(url: str) -> None:
    """Tell the story, print its timeline, and exit with 0 if each task was done once."""
    console = Console()
    timeline = Timeline()
    with tempfile.TemporaryDirectory(prefix="alkstore-") if not url else nullcontext() as directory:
        try:
            done = asyncio.run(tell(url or f"sqlite:///{directory}/orchestration.db", timeline))
        except UnexpectedError as error:
            console.print(timeline.table())
            console.print(f"[bold red]It went otherwise: {error}")
            sys.exit(1)
    console.print(timeline.table())
    once = done == Counter(range(1, 6))
    console.print(
        f"[bold {'green' if once else 'red'}]{len(done)} tasks, each done {'once' if once else f'as often as {done}'}"
    )
    sys.exit(not once)


if __name__ == "__main__":
    main()
