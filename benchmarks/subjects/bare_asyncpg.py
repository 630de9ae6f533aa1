"""The floor of Postgres: the same durable work with bare asyncpg, and no library between."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from benchmarks.subject import BATCH, BUSINESS, PAGE, Place, Seen, Subject, payload

_TABLES = """
CREATE TABLE IF NOT EXISTS job (id bigserial PRIMARY KEY, queue text NOT NULL, body text NOT NULL, worker text);
CREATE INDEX IF NOT EXISTS job_waiting ON job (id) WHERE worker IS NULL;
CREATE TABLE IF NOT EXISTS event (id bigserial PRIMARY KEY, stream text NOT NULL, body text NOT NULL);
CREATE TABLE IF NOT EXISTS lock (name text PRIMARY KEY, owner text NOT NULL, until bigint NOT NULL);
CREATE TABLE IF NOT EXISTS business (id bigserial PRIMARY KEY, customer text NOT NULL, total int NOT NULL);
"""
_JOB = "INSERT INTO job (queue, body) VALUES ('jobs', $1) RETURNING id"
_JOBS = "INSERT INTO job (queue, body) SELECT 'jobs', unnest($1::text[]) RETURNING id"
_EVENT = "INSERT INTO event (stream, body) VALUES ('events', $1) RETURNING id"
_EVENTS = "INSERT INTO event (stream, body) SELECT 'events', unnest($1::text[]) RETURNING id"
_JOB_TELLING = f"WITH new AS ({_JOB}) SELECT pg_notify('job', '') FROM new"  # noqa: S608 - constants
_EVENT_TELLING = f"WITH new AS ({_EVENT}) SELECT pg_notify('event', '') FROM new"  # noqa: S608 - constants
_OVERTAKEN = 64
"""By how many ids a commit may come late: more than there are connections."""
_BUSINESS_ROW = "INSERT INTO business (customer, total) VALUES ($1, $2)"
_CLAIM = (
    "UPDATE job SET worker = $1 WHERE id IN "
    "(SELECT id FROM job WHERE worker IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id, body"
)


def _body(number: int) -> str:
    return json.dumps(payload(number))


class BareAsyncpg(Subject):
    """A statement a call: on one connection for one caller, on a pool for several."""

    connection: Any
    pool: Any

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.place.dsn)
        await self.connection.execute(_TABLES)
        self.pool = await asyncpg.create_pool(self.place.dsn, min_size=8, max_size=8)

    async def close(self) -> None:
        self.pool.terminate()
        await self.connection.close()

    def settings(self) -> str:
        return "one asyncpg connection; for 8 callers a pool of 8"

    async def settle(self) -> None:
        await self.connection.execute("VACUUM ANALYZE")
        await self.connection.execute("CHECKPOINT")

    def put(self, number: int) -> Awaitable[object]:
        return self.connection.fetchval(_JOB, _body(number))  # type: ignore[no-any-return]

    async def put_many(self, count: int) -> None:
        await self._insert_many(_JOBS, count)

    async def _insert_many(self, sql: str, count: int) -> None:
        for begin in range(0, count, BATCH):
            await self.connection.fetch(sql, [_body(begin + n) for n in range(min(BATCH, count - begin))])

    async def drain(self, count: int, seconds: float) -> int:
        done, end = 0, time.perf_counter() + seconds
        while done < count and time.perf_counter() < end and (taken := await self.claim_and_ack("worker", 32)):
            done += taken
        return done

    async def claim_and_ack(self, worker: str, batch: int) -> int:
        async with self.pool.acquire() as connection:
            taken = [row["id"] for row in await connection.fetch(_CLAIM, worker, batch)]
            await connection.execute("DELETE FROM job WHERE id = ANY ($1)", taken)
        return len(taken)

    async def make_business(self) -> None:
        pass

    async def put_in_transaction(self, number: int) -> None:
        async with self.connection.transaction():
            await self.connection.execute(_BUSINESS_ROW, BUSINESS, number)
            await self.connection.fetchval(_JOB, _body(number))

    def publish(self, number: int) -> Awaitable[object]:
        return self.connection.fetchval(_EVENT, _body(number))  # type: ignore[no-any-return]

    async def publish_many(self, count: int) -> None:
        await self._insert_many(_EVENTS, count)

    async def replay(self, count: int) -> None:
        after = got = 0
        while got < count:
            page = await self.connection.fetch(
                "SELECT id, body FROM event WHERE id > $1 ORDER BY id LIMIT $2", after, PAGE
            )
            after, got = page[-1]["id"], got + len(page)

    def notify(self, number: int) -> Awaitable[object]:
        return self.connection.execute(f"NOTIFY floor, '{number}'")  # type: ignore[no-any-return]

    async def lock_and_release(self, number: int) -> None:
        name = f"lock {number % 100}"
        await self.connection.execute("INSERT INTO lock VALUES ($1, 'owner', 60)", name)
        await self.connection.execute("DELETE FROM lock WHERE name = $1", name)

    async def listen(self, seen: Seen, ready: Callable[[], object]) -> None:
        connection: Any = await asyncpg.connect(self.place.dsn)
        await connection.add_listener("floor", lambda _c, _p, _ch, number: seen(int(number)))
        ready()
        await asyncio.Event().wait()

    async def hold_listeners(self, count: int) -> None:
        for number in range(count):
            await self.connection.add_listener(f"channel_{number}", lambda *_: None)


class NotifyingAsyncpg(BareAsyncpg):
    """An insert and its NOTIFY in one statement; a listener reads what is new."""

    def settings(self) -> str:
        return "insert and pg_notify in one statement, on a pool of 8; the listener reads what is new"

    def put(self, number: int) -> Awaitable[object]:
        return self.pool.execute(_JOB_TELLING, _body(number))  # type: ignore[no-any-return]

    def publish(self, number: int) -> Awaitable[object]:
        return self.pool.execute(_EVENT_TELLING, _body(number))  # type: ignore[no-any-return]

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        await self._follow("job", seen, ready)

    async def follow(self, seen: Seen, ready: Callable[[], object]) -> None:
        await self._follow("event", seen, ready)

    async def _follow(self, table: str, seen: Seen, ready: Callable[[], object]) -> None:
        listening: Any = await asyncpg.connect(self.place.dsn)
        reading: Any = await asyncpg.connect(self.place.dsn)
        woken = asyncio.Event()
        await listening.add_listener(table, lambda *_: woken.set())
        # Commits do not come in the order of ids: what is new may be a little below what has been seen.
        known: set[int] = {row["id"] for row in await reading.fetch(f"SELECT id FROM {table}")}  # noqa: S608 - a constant
        last = max(known, default=0)
        ready()
        while True:
            await woken.wait()
            woken.clear()
            sql = f"SELECT id, body FROM {table} WHERE id > $1 ORDER BY id"  # noqa: S608 - a constant
            for row in await reading.fetch(sql, last - _OVERTAKEN):
                if row["id"] not in known:
                    known.add(row["id"])
                    last = max(last, row["id"])
                    seen(json.loads(row["body"])["number"])


class GroupedAsyncpg(Subject):
    """What many callers have in flight together, as one unnest insert after the other on one connection."""

    connection: Any

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._waiting: dict[str, list[tuple[str, asyncio.Future[None]]]] = {_JOBS: [], _EVENTS: []}
        self._flushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.place.dsn)
        await self.connection.execute(_TABLES)

    async def close(self) -> None:
        await self.connection.close()

    def settings(self) -> str:
        return "one asyncpg connection, one unnest insert for all that wait"

    def put(self, number: int) -> Awaitable[None]:
        return self._insert(_JOBS, number)

    def publish(self, number: int) -> Awaitable[None]:
        return self._insert(_EVENTS, number)

    def _insert(self, sql: str, number: int) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[sql].append((_body(number), future))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(sql))
        return future

    async def _flush(self, sql: str) -> None:
        while batch := self._waiting[sql]:
            self._waiting[sql] = []
            await self.connection.fetch(sql, [text for text, _ in batch])
            for _, future in batch:
                future.set_result(None)
            await asyncio.sleep(0)  # so that those who were answered ask again before the next statement leaves
        self._flushing = None
