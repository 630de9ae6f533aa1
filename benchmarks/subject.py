"""What every subject of measurement offers: alkstore on an engine, the floor below it, a peer.

Only the standard library is imported here, since peers run in environments that have nothing else.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTE = "left at the door, as agreed on the telephone on Tuesday"
BUSINESS = "someone@example.org"
PAGE = 256
"""How many events are read at once where that is the caller's choice."""
BATCH = 1000
"""How many jobs or events go into one bulk call."""
POOL = 10
"""How many connections a subject on Postgres has, where it has a pool."""

Seen = Callable[[int], object]
"""Called first thing with the number of the job or event that arrived, or with 0 for a wake, which carries nothing."""


def payload(number: int) -> dict[str, Any]:
    """What every job and event carries: about 110 bytes as JSON."""
    return {"number": number, "to": BUSINESS, "note": NOTE}


class NotOfferedError(Exception):
    """The subject has no documented way to do this; the message says so."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subject keeps its data: an empty folder, and the DSN of an empty Postgres database."""

    folder: Path
    dsn: str


def gap(low: float, high: float) -> Callable[[], float]:
    """Pauses between two messages, in seconds: random, so that no poll keeps step with them, and the same each time."""
    source = random.Random(7)
    return lambda: source.uniform(low, high)


class Subject(ABC):
    """One thing that is measured. What it does not override it does not offer.

    Attributes:
        blocking: its calls block the thread; several callers are then several threads, else tasks.
        most_jobs: how many jobs a drain is measured with at most, where more would take minutes.
        pause: between two messages of an idle latency, in seconds, least and most; wider than a poll, if it polls.
        alone: why another process cannot take part, where that is so.
    """

    blocking = False
    alone = ""
    most_jobs = 1_000_000
    pause = (0.005, 0.02)

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    async def open(self) -> None:
        """Make what is needed in an empty place, or use what is there."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of it."""

    @abstractmethod
    def settings(self) -> str:
        """How it was set up: durability, pool, concurrency, for the page."""

    async def settle(self) -> None:
        """Called between filling and measuring, untimed: Postgres gets its VACUUM ANALYZE and CHECKPOINT, as in use."""

    def put(self, number: int) -> Awaitable[object] | None:
        """Enqueue one job, durable when this is done."""
        raise NotOfferedError("no queue")

    async def put_many(self, count: int) -> None:
        """Enqueue `count` jobs by its bulk call, `BATCH` at a time."""
        raise NotOfferedError("no bulk enqueue")

    async def drain(self, count: int, seconds: float) -> int:
        """Run one worker with a handler that does nothing until `count` jobs are done, or time is up; how many."""
        raise NotOfferedError("no worker")

    async def claim_and_ack(self, worker: str, batch: int) -> int:
        """Claim up to `batch` jobs and acknowledge them; how many there were."""
        raise NotOfferedError("no batches")

    async def make_business(self) -> None:
        """Make the caller's own table and connection."""
        raise NotOfferedError("cannot join the caller's transaction")

    def put_in_transaction(self, number: int) -> Awaitable[object] | None:
        """One transaction of the caller's with a row of its own and a job."""
        raise NotOfferedError("cannot join the caller's transaction")

    def publish(self, number: int) -> Awaitable[object] | None:
        """Append one event, durable when this is done."""
        raise NotOfferedError("no streams")

    async def publish_many(self, count: int) -> None:
        """Append `count` events, as fast as it can."""
        raise NotOfferedError("no streams")

    async def replay(self, count: int) -> None:
        """Receive `count` events from the beginning of the stream."""
        raise NotOfferedError("no streams")

    def notify(self, number: int) -> Awaitable[object] | None:
        """Wake the listeners, durable or not."""
        raise NotOfferedError("no notify")

    def lock_and_release(self, number: int) -> Awaitable[object] | None:
        """Take a lock that nobody has, and release it."""
        raise NotOfferedError("no locks")

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        """Be a worker until cancelled."""
        raise NotOfferedError("no worker")

    async def follow(self, seen: Seen, ready: Callable[[], object]) -> None:
        """Be a live subscriber of the stream until cancelled."""
        raise NotOfferedError("no streams")

    async def listen(self, seen: Seen, ready: Callable[[], object]) -> None:
        """Be a listener of `notify` until cancelled."""
        raise NotOfferedError("no notify")

    async def hold_listeners(self, count: int) -> None:
        """Have `count` listeners of different channels from now on."""
        raise NotOfferedError("no listeners")
