"""Latencies: messages sent to a receiver, in this process or another, and when they arrived.

Only the standard library is imported here, since peers run in environments that have nothing else.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.subject import Subject, gap

Figures = dict[str, float]
"""What was measured: ``rate`` (a second), ``p50_ms`` and ``p99_ms``, ``cpu_percent`` and ``rss_mb``."""
EQUAL_LOAD = 300
"""Jobs a second that are offered to everybody alike: half of what the slowest can do."""
_LATE_S = 20.0
"""How long a message may take before the subject counts as hanging."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done.

    Attributes:
        seconds: how long a rate is measured.
        jobs: how many jobs, or events, are there to be worked off.
        samples: how many latencies are taken.
        repeats: how often a workload is measured in one process, where filling takes longer than measuring.
    """

    seconds: float
    jobs: int
    samples: int
    repeats: int


def percentile(samples: Sequence[float], percent: int) -> float:
    """The nearest of `samples` below which are `percent` of them."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def latencies(samples: Sequence[float]) -> Figures:
    """Median and 99th percentile of seconds, in milliseconds."""
    return {"p50_ms": statistics.median(samples) * 1000, "p99_ms": percentile(samples, 99) * 1000}


async def awaited(result: Awaitable[object] | None) -> None:
    """Wait for what a subject's call returned, if it is not a blocking one."""
    if result is not None:
        await result


class Arrivals:
    """What arrived, and when: told by a receiver, in this process or another."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._latest: asyncio.Future[int] | None = None
        self._changed = asyncio.Event()
        self.taken: list[float] = []
        """The latencies of numbered messages, in seconds."""

    def seen(self, number: int) -> None:
        """Called by a receiver in this process, from any thread."""
        now = time.monotonic_ns()
        self._loop.call_soon_threadsafe(self.note, number, now)

    def note(self, number: int, now: int) -> None:
        """Message `number`, which is the nanosecond at which it was sent, or 0, was there at `now`."""
        if number:
            self.taken.append((now - number) / 1e9)
            self._changed.set()
        if self._latest is not None and not self._latest.done():
            self._latest.set_result(now)

    async def all_of(self, sent: int) -> None:
        """Wait until so many numbered messages are there."""
        async with asyncio.timeout(_LATE_S):
            while len(self.taken) < sent:
                self._changed.clear()
                await self._changed.wait()

    async def next(self) -> Awaitable[int]:
        """When the next message is there."""
        self._latest = self._loop.create_future()
        return self._latest


Receive = Callable[[Callable[[int], object], Callable[[], object]], Awaitable[None]]


class Receiving:
    """A receiver that runs while this is entered: a task of this process, or the same in a child."""

    def __init__(self, subject: Subject, kind: str, *, across: bool) -> None:
        self._subject = subject
        self._kind = kind
        self._across = across
        self.arrivals = Arrivals()
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Arrivals:
        if getattr(type(self._subject), self._kind) is getattr(Subject, self._kind):  # it says why, and not in a child
            await getattr(self._subject, self._kind)(self.arrivals.seen, lambda: None)
        ready = asyncio.Event()
        running = self._in_child(ready) if self._across else self._here(ready)
        self._task = asyncio.create_task(running)
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting, self._task}, timeout=_LATE_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
            raise RuntimeError("the receiver ended before it was ready")
        return self.arrivals

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=5)
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()

    async def _here(self, ready: asyncio.Event) -> None:
        receive: Receive = getattr(self._subject, self._kind)
        await receive(self.arrivals.seen, ready.set)

    async def _in_child(self, ready: asyncio.Event) -> None:
        place = self._subject.place
        name = os.environ["BENCHMARK_SUBJECT"]
        command = [sys.executable, "-m", "benchmarks.measure", name, self._kind, str(place.folder), place.dsn]
        self._child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            if line == b"ready\n":
                ready.set()
            else:
                number, now = line.split()
                self.arrivals.note(int(number), int(now))
        raise RuntimeError("the receiver's process ended")


async def ping(
    subject: Subject, kind: str, send: Callable[[int], Awaitable[object] | None], scale: Scale, *, across: bool
) -> Figures:
    """From just before a message is sent to its arrival at an idle receiver; one message at a time."""
    pause, taken = gap(*subject.pause), []
    async with Receiving(subject, kind, across=across) as arrivals:
        end = time.perf_counter() + scale.seconds * 3
        for number in range(scale.samples + 5):
            await asyncio.sleep(pause())
            arrival = await arrivals.next()
            sent = time.monotonic_ns()
            await awaited(send(sent))
            async with asyncio.timeout(_LATE_S):
                seen = await arrival
            if number >= 5:  # the first ones pay for connections and plans
                taken.append((seen - sent) / 1e9)
            if taken and time.perf_counter() > end:
                break
    return latencies(taken)


async def half_load(subject: Subject, scale: Scale, *, across: bool) -> Figures:
    """From just before an enqueue to the handler's first line, while half of what it can do is offered.

    What it can do is measured just before: how many jobs were enqueued by 16 callers and handled, side by side.
    """
    async with Receiving(subject, "work", across=across) as arrivals:
        begun, put = time.perf_counter(), 0

        async def one() -> None:
            nonlocal put
            while time.perf_counter() < begun + scale.seconds / 2:
                await _put_now(subject)
                put += 1

        await asyncio.gather(*(one() for _ in range(16)))
        await arrivals.all_of(put)
        most = put / (time.perf_counter() - begun)
        return {**await _offered(subject, arrivals, most / 2, scale.seconds), "offered": most / 2}


async def equal_load(subject: Subject, scale: Scale, *, across: bool) -> Figures:
    """The same while as much is offered to everybody: `EQUAL_LOAD` jobs a second."""
    async with Receiving(subject, "work", across=across) as arrivals:
        await _offered(subject, arrivals, EQUAL_LOAD, scale.seconds / 4)  # pays for connections and plans
        return await _offered(subject, arrivals, EQUAL_LOAD, scale.seconds * 2)


async def _offered(subject: Subject, arrivals: Arrivals, rate: float, seconds: float) -> Figures:
    """The latencies while `rate` jobs a second are enqueued, whether those before them are done or not."""
    arrivals.taken.clear()
    begun, sent = time.perf_counter(), 0
    async with asyncio.timeout(_LATE_S), asyncio.TaskGroup() as group:
        while (elapsed := time.perf_counter() - begun) < seconds:
            while sent < elapsed * rate:
                group.create_task(_put_now(subject))
                sent += 1
            await asyncio.sleep(0.001)
    await arrivals.all_of(sent)
    return latencies(arrivals.taken)


async def _put_now(subject: Subject) -> None:
    """Enqueue a job whose number is the time."""
    number = time.monotonic_ns()
    if subject.blocking:
        await asyncio.to_thread(subject.put, number)
    else:
        await awaited(subject.put(number))
