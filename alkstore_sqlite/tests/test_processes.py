"""Several processes on one file: kills, fairness, and what may be opened how (N7, T3; the gate)."""

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import killed
import pytest
from alkstore_core.testing import ManualClock
from alkstore_sqlite import SqliteStore

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["alkstore_core", "alkstore_sqlite"])  # so that a child starts in milliseconds

KILLS = 200


class Child:
    """One process, and what it has reported."""

    def __init__(self, body: Callable[..., None], *arguments: Any) -> None:
        self.report, theirs = FORKS.Pipe()
        self.process: BaseProcess = FORKS.Process(target=body, args=(*arguments, theirs))
        self.process.start()
        theirs.close()

    def kill(self) -> list[Any]:
        """SIGKILL it, and give all that it had said."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        return self.said(to_the_end=True)

    def said(self, *, to_the_end: bool = False) -> list[Any]:
        """What it has said since last asked."""
        reports: list[Any] = []
        try:
            while to_the_end or self.report.poll():
                reports.append(self.report.recv())
        except (EOFError, OSError):  # it ended, perhaps in the middle of a word
            self.report.close()
        return reports


def test_two_hundred_kills_lose_nothing_and_leave_no_ghost(path: Path) -> None:
    """Producers and workers are killed at random under load: all that was acknowledged is done or still there."""
    dice = random.Random(11)
    asyncio.run(prepared(path))
    names = iter(range(10_000))

    def start(body: Callable[..., None]) -> Child:
        return Child(body, str(path), next(names))

    children = {start(killed.produce): killed.produce for _ in range(2)}
    children |= {start(killed.consume): killed.consume for _ in range(2)}
    stored: set[int] = set()
    done: list[int] = []

    def note(reports: list[Any]) -> None:
        for what, number in reports:
            stored.add(number) if what == "stored" else done.append(number)

    kills = 0
    while kills < KILLS:
        # Something must have happened since the last kill, so that it meets work in progress.
        ready = wait([child.report for child in children], timeout=30)
        assert ready, "nobody reports any more: somebody holds what a killed process left"
        for child in list(children):
            note(child.said())
        victim = dice.choice(list(children))
        body = children.pop(victim)
        note(victim.kill())
        children[start(body)] = body
        kills += 1
    for child in children:
        note(child.kill())
    left, events, business = asyncio.run(audited(path))
    everything = set(done) | left
    assert stored <= everything, stored - everything
    assert len(stored) > KILLS
    # No ghosts: a business row, its job and its event are there together or not at all.
    assert {number for number in everything if number % 10 == 0} == business == events


async def prepared(path: Path) -> None:
    async with SqliteStore.open(path) as store, store.transaction() as tx:
        await tx.connection.execute("CREATE TABLE business (number INTEGER PRIMARY KEY)")


async def audited(path: Path) -> tuple[set[int], set[int], set[int]]:
    """The jobs, events and business rows, long after every claim has lapsed: no row is stranded."""
    async with SqliteStore.open(path, clock=ManualClock(int(time.time()) + 100_000)) as store:
        handles = await store.queue("q").claim_batch("auditor", 10**6)
        numbers = {handle.job.payload_as(int) for handle in handles}
        assert len(numbers) == len(handles)
        events = [event.payload_as(int) for event in await store.stream("s").read_since(0, 10**6)]
        assert len(events) == len(set(events))
        async with store.begin_tx() as tx:
            rows = await tx.connection.execute_fetchall("SELECT number FROM business")
            (rest,) = await tx.connection.execute_fetchall("SELECT count(*) FROM alkstore_jobs")
            (checked,) = await tx.connection.execute_fetchall("PRAGMA integrity_check")
        assert rest == (len(handles),)
        assert checked == ("ok",)
    return numbers, set(events), {row[0] for row in rows}


def test_six_writers_get_their_turns(path: Path) -> None:
    """Of six processes that write as fast as they can, the slowest gets at least half of the fastest's commits."""
    asyncio.run(prepared(path))
    children = [Child(killed.write_until, str(path), name, 3000) for name in range(6)]
    for child in children:
        assert child.report.recv() == "ready"
    for child in children:
        child.report.send("go")
    counts = sorted(child.report.recv() for child in children)
    for child in children:
        child.process.join()
        child.report.close()
    assert counts[0] >= counts[-1] / 2, counts


_AUDITED = """
import asyncio, os, sys
path = sys.argv[1]
def hook(event, arguments):
    if event in ("open", "os.open") or event.startswith("shutil"):
        name = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes, os.PathLike)) else ""
        if name in (path, path + "-wal", path + "-shm"):
            print("opened", name)
sys.addaudithook(hook)
from alkstore_sqlite import SqliteStore
async def main():
    for _ in range(50):
        async with SqliteStore.open(path) as store:
            receiver = await store.listen("c")
            await store.queue("q").enqueue(1)
            async with store.transaction() as tx:
                await tx.notify("c")
            await receiver.recv()
asyncio.run(main())
print("end")
open(path).close()
"""


def test_the_database_is_never_opened_but_through_sqlite(path: Path) -> None:
    """Closing any descriptor of the file drops the process's locks on it; the last line shows that the hook sees."""
    ended = subprocess.run(
        [sys.executable, "-c", _AUDITED, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.splitlines() == ["end", f"opened {path}"]


def test_a_foreign_writer_is_waited_for(path: Path) -> None:
    """A program that knows nothing of the gate and holds SQLite's own lock delays a write, and does not fail it."""

    async def main() -> None:
        async with SqliteStore.open(path, busy_timeout=30) as store:
            foreign = sqlite3.connect(path, isolation_level=None)
            foreign.execute("BEGIN IMMEDIATE")
            writing = [asyncio.create_task(store.queue("q").enqueue(number)) for number in range(3)]
            done, _ = await asyncio.wait(writing, timeout=0.1)
            assert not done
            foreign.execute("COMMIT")
            foreign.close()
            async with asyncio.timeout(10):
                assert await asyncio.gather(*writing) == [1, 2, 3]

    asyncio.run(main())


@pytest.mark.parametrize("holder", ["process", "thread"])
def test_a_gate_held_by_the_dead_is_free(path: Path, holder: str) -> None:
    """A process killed inside its transaction, or a store closed in it, leaves the gate open for the next."""
    asyncio.run(prepared(path))
    if holder == "process":
        child = Child(hold, str(path))
        assert child.report.recv() == "held"
        child.kill()
    else:

        async def undecided() -> None:
            async with SqliteStore.open(path) as store:
                tx = await store.begin_tx()
                await tx.enqueue("q", 1)
                await store.close()
                del tx

        with pytest.warns(ResourceWarning, match="dropped undecided"):
            asyncio.run(undecided())

    async def write() -> int:
        async with SqliteStore.open(path, busy_timeout=1) as store:
            return await store.queue("q").enqueue(1)

    assert asyncio.run(write()) == 1


def hold(path: str, report: Connection) -> None:
    async def main() -> None:
        async with SqliteStore.open(path) as store:
            tx = await store.begin_tx()
            await tx.enqueue("q", "ghost")
            report.send("held")
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())
