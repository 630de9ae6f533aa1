"""How each operation's cost grows: with rows of each kind, priorities, queues, workers, subscribers; and after churn.

``python -m benchmarks.growth ENGINE AXIS FOLDER DSN MOST`` measures one axis in this process, and says a line of JSON
for each point: engine, axis, at (how many), operation, and ms (the median of one call) or rate, or mb, or rows.
"""

import asyncio
import json
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from alkstore_core import Queue, StopToken, Worker

from benchmarks.measure import subject_at
from benchmarks.subject import Place, payload
from benchmarks.subjects.alkstore import Alkstore

AXES = {
    "live": "live jobs in the table",
    "delayed": "delayed jobs in the table",
    "dead": "dead jobs in the table",
    "priorities": "delayed jobs, each of a priority of its own",
    "events": "events in the stream",
    "queues": "queues that share 100,000 jobs",
    "workers": "workers of 8 jobs at a time",
    "subscribers": "live subscribers of the stream",
    "churn": "jobs that came and went",
}
"""What there is to grow along, and what each axis counts."""
_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_READY = 2_000
"""How many jobs are ready beside those that are delayed or dead."""
_SAMPLES = 30
_CHUNK = 10_000
_A_DAY = 86_400
_BY_SERVER = 1_000_000
"""From so many rows on Postgres makes them itself."""
_MANY_JOBS = """
INSERT INTO alkstore.jobs (priority, ready_at, attempts, max_attempts, visibility_timeout_s, backoff_base_s, created_at,
                           state, place, queue, payload)
SELECT 0, extract(epoch FROM now())::bigint, 0, 3, 300, 5, extract(epoch FROM now())::bigint, 0, 1, 'jobs', $2
FROM generate_series(1, $1::bigint)
"""

Point = dict[str, Any]
Say = Callable[..., None]


class Medians:
    """The median of each operation's calls, in milliseconds."""

    def __init__(self) -> None:
        self._taken: dict[str, list[float]] = {}

    @contextmanager
    def time(self, operation: str) -> Iterator[None]:
        """Time one call."""
        begun = time.perf_counter()
        yield
        self._taken.setdefault(operation, []).append((time.perf_counter() - begun) * 1000)

    def say(self, say: Say, at: int) -> None:
        """Say each."""
        for operation, taken in self._taken.items():
            say(at=at, operation=operation, ms=statistics.median(taken))


async def queue_operations(queue: Queue, ids: list[int]) -> Medians:
    """Every operation of a queue, and of locks, as they are now; the backlog is as before afterwards."""
    medians, store = Medians(), queue.store
    for number in range(_SAMPLES):
        with medians.time("enqueue"):
            fresh = await queue.enqueue(payload(number), priority=-1)
        with medians.time("cancel"):
            await queue.cancel(fresh)
        with medians.time("claim 32"):
            handles = await queue.claim_batch("worker", 32)
        with medians.time("ack 31"):
            await queue.ack_batch("worker", [handle.job.id for handle in handles[1:]])
        with medians.time("retry"):
            await handles[0].retry("again", 0)
        await queue.enqueue_many([payload(number)] * (len(handles) - 1))
        with medians.time("get_job"):
            await queue.get_job(random.choice(ids))
        with medians.time("lock and release"):
            lock = await store.try_lock("lock", "owner", 60)
            assert lock is not None
            await lock.release()
    for _ in range(5):
        with medians.time("sweep, nothing to do"):
            await queue.sweep_expired()
    return medians


async def _fill(queue: Queue, jobs: int, **options: int) -> list[int]:
    ids: list[int] = []
    for begin in range(0, jobs, _CHUNK):
        ids += (await queue.enqueue_many([payload(7)] * min(_CHUNK, jobs - begin), **options))[:50]
    return ids


async def _fill_dead(queue: Queue, jobs: int) -> list[int]:
    ids = []
    for begin in range(0, jobs, _CHUNK * 10):
        ids += await _fill(queue, min(_CHUNK * 10, jobs - begin), expires=1)
    await asyncio.sleep(2.1)  # expiry is counted in whole seconds
    await queue.sweep_expired()
    return ids


async def _settle(subject: Alkstore) -> None:
    if subject.place.dsn:
        connection: Any = await asyncpg.connect(subject.place.dsn)
        await connection.execute("VACUUM ANALYZE alkstore.jobs")
        await connection.close()


async def rows(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """Queue operations, with more and more rows that are live, delayed or dead."""
    queue, there = subject.queue, 0
    ids = await _fill(queue, 0 if axis == "live" else _READY)
    for size in (size for size in _SIZES if size <= most):
        more = size - there
        if axis == "delayed":
            ids += await _fill(queue, more, delay=_A_DAY)
        elif axis == "dead":
            for begin in range(0, more, 250_000):  # a sweep is one transaction
                ids += await _fill_dead(queue, min(250_000, more - begin))
        elif subject.place.dsn and more > _BY_SERVER:
            connection: Any = await asyncpg.connect(subject.place.dsn)
            await connection.execute(_MANY_JOBS, more, json.dumps(payload(7)).encode())
            await connection.close()
        else:
            ids += await _fill(queue, more)
        there = size
        await _settle(subject)
        (await queue_operations(queue, ids)).say(say, size)
        if axis == "live" and subject.place.dsn:
            say(at=size, operation="size of the table", mb=await _megabytes(subject))


async def priorities(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """Queue operations beside more and more delayed jobs, each of a higher priority of its own."""
    del axis
    queue, there = subject.queue, 0
    ids = await _fill(queue, _READY)
    for number in (number for number in (1, 100, 10_000) if number <= most):
        for begin in range(there, number, 100):
            some = range(begin, min(begin + 100, number))
            ids += await asyncio.gather(
                *(queue.enqueue(payload(7), delay=_A_DAY, priority=1 + priority) for priority in some)
            )
        there = number
        await _settle(subject)
        (await queue_operations(queue, ids)).say(say, number)


async def events(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """Stream operations, with more and more events."""
    del axis
    stream, there, consumer = subject.stream, 0, 0
    offsets: list[int] = []
    for size in (size for size in _SIZES if size <= min(most, _BY_SERVER)):
        for begin in range(there, size, _CHUNK):
            offsets += (await stream.publish_many([payload(7)] * min(_CHUNK, size - begin)))[:50]
        there = size
        medians = Medians()
        for number in range(_SAMPLES):
            with medians.time("publish"):
                await stream.publish(payload(number))
            with medians.time("read 100 in the middle"):
                await stream.read_since(offsets[len(offsets) // 2], 100)
            consumer += 1
            with medians.time("save_offset"):
                await stream.save_offset(f"consumer {consumer % 10}", consumer)
            with medians.time("trim 10"):
                await stream.trim_to(offsets[0] + number * 10)
        medians.say(say, size)


async def queues(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """Queue operations on one of 1, 10 and 100 queues that share the same number of rows."""
    del axis
    jobs = min(most, 100_000)
    for number in (1, 10, 100):
        made = [subject.store.queue(f"{number} queues, {which}") for which in range(number)]
        ids: list[int] = []
        for queue in made:
            ids = await _fill(queue, jobs // number)
        await _settle(subject)
        (await queue_operations(made[-1], ids)).say(say, number)
        for queue in made:  # the next number begins with an empty table
            while handles := await queue.claim_batch("worker", 1000):
                await queue.ack_batch("worker", [handle.job.id for handle in handles])


async def workers(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """What 1 to 64 workers, of 8 jobs at a time each, do together in one process."""
    del axis
    jobs = min(most, 20_000)
    for number in (1, 4, 16, 64):
        await _fill(subject.queue, jobs)
        await _settle(subject)
        stop, done = StopToken(), 0

        async def handler(_: object) -> None:
            nonlocal done
            done += 1
            if done == jobs:
                stop.cancel()  # noqa: B023 - the workers end within this turn

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(Worker(subject.queue, handler, concurrency=8).run(stop))
        say(at=number, operation="drain by so many workers", rate=jobs / (time.perf_counter() - begun))


async def subscribers(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """How long a publish takes, and until 1 to 200 live subscribers of one process have the event."""
    del axis, most
    receivers: list[Any] = []
    for number in (1, 10, 50, 200):
        receivers += [await subject.stream.subscribe(f"consumer {which}") for which in range(len(receivers), number)]
        for receiver in receivers:
            while await receiver.try_recv():
                pass
        medians = Medians()
        for sent in range(_SAMPLES):
            receiving = [asyncio.ensure_future(receiver.recv()) for receiver in receivers]
            await asyncio.sleep(0.01)  # until all of them wait
            with medians.time("publish until all have it"):
                with medians.time("publish"):
                    await subject.stream.publish(payload(sent))
                await asyncio.gather(*receiving)
        medians.say(say, number)


async def churn(subject: Alkstore, axis: str, most: int, say: Say) -> None:
    """What is left of jobs that came and went, 1,000 at a time, with a VACUUM after each quarter, as autovacuum does.

    Nothing is waiting when it is looked at.
    """
    del axis
    if not subject.durable:
        return
    done, queue, step = 0, subject.queue, min(most, 100_000) // 4
    for target in (step, 2 * step, 3 * step, 4 * step):
        while done < target:
            await queue.enqueue_many([payload(7)] * 1000)
            while handles := await queue.claim_batch("worker", 200):
                done += await queue.ack_batch("worker", [handle.job.id for handle in handles])
        if subject.place.dsn:
            say(at=target, operation="dead tuples before vacuum", rows=await _dead_tuples(subject.place.dsn))
            await _settle(subject)
            say(at=target, operation="dead tuples after vacuum", rows=await _dead_tuples(subject.place.dsn))
        say(at=target, operation="size after churn", mb=await _megabytes(subject))


async def _dead_tuples(dsn: str) -> int:
    connection: Any = await asyncpg.connect(dsn)
    try:
        await asyncio.sleep(1.1)  # backends report what they did once a second
        sql = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'alkstore' AND relname = 'jobs'"
        return int(await connection.fetchval(sql))
    finally:
        await connection.close()


async def _megabytes(subject: Alkstore) -> float:
    """How large the jobs table is with its indexes; for SQLite, the whole database by its own count of pages."""
    if subject.place.dsn:
        connection: Any = await asyncpg.connect(subject.place.dsn)
        try:
            return int(await connection.fetchval("SELECT pg_total_relation_size('alkstore.jobs')")) / 1e6
        finally:
            await connection.close()
    reading = sqlite3.connect(subject.place.folder / "app.db")
    try:
        (pages,), (size,) = (reading.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        return float(pages * size / 1e6)
    finally:
        reading.close()


_OF_AXIS: dict[str, Callable[[Alkstore, str, int, Say], Awaitable[None]]] = {
    "live": rows,
    "delayed": rows,
    "dead": rows,
    "priorities": priorities,
    "events": events,
    "queues": queues,
    "workers": workers,
    "subscribers": subscribers,
    "churn": churn,
}


async def main(engine: str, axis: str, folder: str, dsn: str, most: int) -> None:
    """Measure one axis of one engine."""

    def say(**point: object) -> None:
        sys.stdout.write(json.dumps({"engine": engine, "axis": axis, **point}) + "\n")
        sys.stdout.flush()

    subject = subject_at(engine, Place(Path(folder), dsn))
    assert isinstance(subject, Alkstore)
    await subject.open()
    await _OF_AXIS[axis](subject, axis, most, say)
    await subject.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
