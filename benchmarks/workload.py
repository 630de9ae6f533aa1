"""The workloads: what is done with a subject, and what of it is measured.

Only the standard library is imported here, since peers run in environments that have nothing else.
"""

import asyncio
import resource
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.latency import Figures, Scale, awaited, equal_load, half_load, ping
from benchmarks.subject import Subject

_WARM = 20
_DRAINING_S = 5.0
"""How long a drain may take, so that the start of a worker weighs little."""


async def rate(
    subject: Subject, call: Callable[[int], Awaitable[object] | None], callers: int, seconds: float
) -> Figures:
    """Calls a second by so many callers, tasks or threads, each with one call under way."""
    for number in range(_WARM):
        await awaited(call(number))
    if subject.blocking and callers > 1:
        return _rate_of_threads(call, callers, seconds)
    begun = time.perf_counter()
    end = begun + seconds
    done = 0

    async def one(first: int) -> None:
        nonlocal done
        for number in count(first, callers):
            result = call(number)
            if result is not None:
                await result
            done += 1
            if time.perf_counter() >= end:
                return

    await asyncio.gather(*(one(_WARM + caller) for caller in range(callers)))
    return {"rate": done / (time.perf_counter() - begun)}


def _rate_of_threads(call: Callable[[int], object], callers: int, seconds: float) -> Figures:
    gate = threading.Barrier(callers + 1)
    done: list[int] = []
    failures: list[Exception] = []
    end = [0.0]

    def one(first: int) -> None:
        gate.wait()
        try:
            for number in count(first, callers):
                call(number)
                done.append(number)
                if time.perf_counter() >= end[0]:
                    return
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(_WARM + caller,), daemon=True) for caller in range(callers)]
    for thread in threads:
        thread.start()
    begun = time.perf_counter()
    end[0] = begun + seconds
    gate.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return {"rate": len(done) / (time.perf_counter() - begun)}


async def fill(subject: Subject, jobs: int) -> None:
    """Put so many jobs there, by the bulk call where there is one."""
    if type(subject).put_many is not Subject.put_many:
        await subject.put_many(jobs)
    elif subject.blocking:
        for number in range(jobs):
            subject.put(number)
    else:
        numbers = iter(range(jobs))

        async def one() -> None:
            for number in numbers:
                await awaited(subject.put(number))

        await asyncio.gather(*(one() for _ in range(64)))


# rates


async def enqueue_1(subject: Subject, scale: Scale) -> Figures:
    """Single jobs from one caller, each durable before the next."""
    return await rate(subject, subject.put, 1, scale.seconds)


async def enqueue_64(subject: Subject, scale: Scale) -> Figures:
    """Single jobs from 64 callers, each durable before its caller's next."""
    return await rate(subject, subject.put, 64, scale.seconds)


async def enqueue_many(subject: Subject, scale: Scale) -> Figures:
    """Jobs by the bulk call, 1,000 at a time, from one caller."""
    await subject.put_many(1000)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + scale.seconds:
        await subject.put_many(5000)
        done += 5000
    return {"rate": done / (time.perf_counter() - begun)}


async def drain(subject: Subject, scale: Scale) -> Figures:
    """Jobs with a handler that does nothing, by one worker in one process, until they are gone from the database."""
    jobs = min(scale.jobs, subject.most_jobs)
    await fill(subject, jobs)
    await subject.settle()
    begun = time.perf_counter()
    done = await subject.drain(jobs, _DRAINING_S)
    if not done:
        raise RuntimeError(f"no job was done within {_DRAINING_S} s")
    return {"rate": done / (time.perf_counter() - begun)}


async def _claim_and_ack(subject: Subject, scale: Scale, callers: int) -> Figures:
    jobs = min(scale.jobs, subject.most_jobs)
    await fill(subject, jobs)
    await subject.settle()
    begun = time.perf_counter()
    end = begun + scale.seconds * 2

    async def one(name: str) -> int:
        done = 0
        while time.perf_counter() < end and (acked := await subject.claim_and_ack(name, 32)):
            done += acked
        return done

    done = sum(await asyncio.gather(*(one(f"worker {caller}") for caller in range(callers))))
    return {"rate": done / (time.perf_counter() - begun)}


async def claim_ack_1(subject: Subject, scale: Scale) -> Figures:
    """Jobs claimed and acknowledged 32 at a time, by one caller."""
    return await _claim_and_ack(subject, scale, 1)


async def claim_ack_8(subject: Subject, scale: Scale) -> Figures:
    """Jobs claimed and acknowledged 32 at a time, by 8 callers at once."""
    return await _claim_and_ack(subject, scale, 8)


async def enqueue_tx(subject: Subject, scale: Scale) -> Figures:
    """Transactions of the caller's, each with one row of its own and one job, one after the other."""
    await subject.make_business()
    return await rate(subject, subject.put_in_transaction, 1, scale.seconds)


async def publish_1(subject: Subject, scale: Scale) -> Figures:
    """Single events from one caller, each durable before the next."""
    return await rate(subject, subject.publish, 1, scale.seconds)


async def publish_64(subject: Subject, scale: Scale) -> Figures:
    """Single events from 64 callers, each durable before its caller's next."""
    return await rate(subject, subject.publish, 64, scale.seconds)


async def replay(subject: Subject, scale: Scale) -> list[Figures]:
    """A stream received from its beginning by one consumer: a million events, and in a quick run fewer."""
    events = scale.jobs * 25
    await subject.publish_many(events)
    await subject.settle()
    figures = []
    for _ in range(scale.repeats):
        begun = time.perf_counter()
        await subject.replay(events)
        figures.append({"rate": events / (time.perf_counter() - begun)})
    return figures


async def lock(subject: Subject, scale: Scale) -> Figures:
    """Locks that nobody has, taken and released, one after the other."""
    return await rate(subject, subject.lock_and_release, 1, scale.seconds)


# latencies


async def latency_idle(subject: Subject, scale: Scale) -> Figures:
    """From just before an enqueue to the first line of an idle worker's handler, in the same process."""
    return await ping(subject, "work", subject.put, scale, across=False)


async def latency_idle_processes(subject: Subject, scale: Scale) -> Figures:
    """The same, with the worker in another process."""
    return await ping(subject, "work", subject.put, scale, across=True)


async def latency_half_load(subject: Subject, scale: Scale) -> Figures:
    """From just before an enqueue to the handler's first line, at half of the rate that it can do, in one process."""
    return await half_load(subject, scale, across=False)


async def latency_half_load_processes(subject: Subject, scale: Scale) -> Figures:
    """The same, with the worker in another process."""
    return await half_load(subject, scale, across=True)


async def latency_equal_load_processes(subject: Subject, scale: Scale) -> Figures:
    """The same, at one rate for everybody."""
    return await equal_load(subject, scale, across=True)


async def subscriber(subject: Subject, scale: Scale) -> Figures:
    """From just before a publish to its arrival at a live subscriber, in the same process."""
    return await ping(subject, "follow", subject.publish, scale, across=False)


async def subscriber_processes(subject: Subject, scale: Scale) -> Figures:
    """The same, with the subscriber in another process."""
    return await ping(subject, "follow", subject.publish, scale, across=True)


async def notify(subject: Subject, scale: Scale) -> Figures:
    """From just before a notify to the listener's wake, in the same process."""
    return await ping(subject, "listen", subject.notify, scale, across=False)


async def notify_processes(subject: Subject, scale: Scale) -> Figures:
    """The same, with the listener in another process."""
    return await ping(subject, "listen", subject.notify, scale, across=True)


# idleness


async def _idle(subject: Subject, scale: Scale, listeners: int) -> Figures:
    await subject.hold_listeners(listeners)
    await asyncio.sleep(0.2)
    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.sleep(max(1.0, scale.seconds))
    percent = (time.process_time() - cpu) / (time.perf_counter() - begun) * 100
    return {"cpu_percent": percent, "rss_mb": _resident() / 1e6}


def _resident() -> int:
    """How many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def idle_1(subject: Subject, scale: Scale) -> Figures:
    """What a process with nothing to do takes, with one listener: of a core, and in all of memory."""
    return await _idle(subject, scale, 1)


async def idle_100(subject: Subject, scale: Scale) -> Figures:
    """What a process with nothing to do takes, with 100 listeners: of a core, and in all of memory."""
    return await _idle(subject, scale, 100)


Workload = Callable[[Subject, Scale], Awaitable[Any]]
ACROSS = {
    "latency-idle-processes",
    "latency-half-load-processes",
    "latency-equal-load-processes",
    "subscriber-processes",
    "notify-processes",
}
"""Workloads for which there must be another process."""
WORKLOADS: dict[str, Workload] = {
    "enqueue-1": enqueue_1,
    "enqueue-64": enqueue_64,
    "enqueue-many": enqueue_many,
    "enqueue-tx": enqueue_tx,
    "claim-ack-1": claim_ack_1,
    "claim-ack-8": claim_ack_8,
    "drain": drain,
    "latency-idle": latency_idle,
    "latency-idle-processes": latency_idle_processes,
    "latency-half-load": latency_half_load,
    "latency-half-load-processes": latency_half_load_processes,
    "latency-equal-load-processes": latency_equal_load_processes,
    "publish-1": publish_1,
    "publish-64": publish_64,
    "replay": replay,
    "subscriber": subscriber,
    "subscriber-processes": subscriber_processes,
    "notify": notify,
    "notify-processes": notify_processes,
    "lock": lock,
    "idle-1": idle_1,
    "idle-100": idle_100,
}
"""By name, in the order in which they are shown."""
