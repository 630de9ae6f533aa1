"""The floor of SQLite: the same durable work with the bare driver, and no library between."""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any

from benchmarks.subject import BATCH, BUSINESS, PAGE, Place, Seen, Subject, payload

_TABLES = """
CREATE TABLE IF NOT EXISTS job (id integer PRIMARY KEY, queue text NOT NULL, body text NOT NULL, worker text);
CREATE TABLE IF NOT EXISTS event (id integer PRIMARY KEY, stream text NOT NULL, body text NOT NULL);
CREATE TABLE IF NOT EXISTS lock (name text PRIMARY KEY, owner text NOT NULL, until integer NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS business (id integer PRIMARY KEY, customer text NOT NULL, total int NOT NULL);
"""
JOB = "INSERT INTO job (queue, body) VALUES ('jobs', ?)"
EVENT = "INSERT INTO event (stream, body) VALUES ('events', ?)"
BUSINESS_ROW = "INSERT INTO business (customer, total) VALUES (?, ?)"
_CLAIM = (
    "UPDATE job SET worker = ? WHERE id IN (SELECT id FROM job WHERE worker IS NULL ORDER BY id LIMIT ?) "
    "RETURNING id, body"
)
_POLL_S = 0.001


def body(number: int) -> str:
    """The payload, encoded."""
    return json.dumps(payload(number))


def connected(place: Place) -> sqlite3.Connection:
    """A connection with the store's default durability: WAL and synchronous=FULL."""
    connection = sqlite3.connect(place.folder / "floor.db", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_TABLES)
    return connection


class BareSqlite(Subject):
    """sqlite3 on the caller's own thread: what blocks the event loop meanwhile."""

    blocking = True
    connection: sqlite3.Connection

    async def open(self) -> None:
        self.connection = connected(self.place)

    async def close(self) -> None:
        self.connection.close()

    def settings(self) -> str:
        return "sqlite3 on the caller's thread, WAL, synchronous=FULL"

    def put(self, number: int) -> None:
        self.connection.execute(JOB, (body(number),))

    async def put_many(self, count: int) -> None:
        self._insert_many(JOB, count)

    def _insert_many(self, sql: str, count: int) -> None:
        for begin in range(0, count, BATCH):
            rows = [(body(begin + n),) for n in range(min(BATCH, count - begin))]
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany(sql, rows)
            self.connection.execute("COMMIT")

    async def drain(self, count: int, seconds: float) -> int:
        done, end = 0, time.perf_counter() + seconds
        while done < count and time.perf_counter() < end and (taken := await self.claim_and_ack("worker", 32)):
            done += taken
        return done

    async def claim_and_ack(self, worker: str, batch: int) -> int:
        taken = self.connection.execute(_CLAIM, (worker, batch)).fetchall()
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("DELETE FROM job WHERE id = ?", [row[:1] for row in taken])
        self.connection.execute("COMMIT")
        return len(taken)

    async def make_business(self) -> None:
        pass

    def put_in_transaction(self, number: int) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(BUSINESS_ROW, (BUSINESS, number))
        self.connection.execute(JOB, (body(number),))
        self.connection.execute("COMMIT")

    def publish(self, number: int) -> None:
        self.connection.execute(EVENT, (body(number),))

    async def publish_many(self, count: int) -> None:
        self._insert_many(EVENT, count)

    async def replay(self, count: int) -> None:
        after = got = 0
        while got < count:
            page = self.connection.execute("SELECT id, body FROM event WHERE id > ? LIMIT ?", (after, PAGE)).fetchall()
            after, got = page[-1][0], got + len(page)

    def lock_and_release(self, number: int) -> None:
        name = f"lock {number % 100}"
        self.connection.execute("INSERT INTO lock VALUES (?, 'owner', 60)", (name,))
        self.connection.execute("DELETE FROM lock WHERE name = ?", (name,))

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        await self._poll("job", seen, ready)

    async def follow(self, seen: Seen, ready: Callable[[], object]) -> None:
        await self._poll("event", seen, ready)

    async def _poll(self, table: str, seen: Seen, ready: Callable[[], object]) -> None:
        """Look for commits every millisecond, on a connection and a thread of its own, and read what is new."""
        connection, stopped = connected(self.place), threading.Event()
        last = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]  # noqa: S608 - a constant

        def poll() -> None:
            nonlocal last
            version = None
            while not stopped.is_set():
                if (now := connection.execute("PRAGMA data_version").fetchone()) == version:
                    time.sleep(_POLL_S)
                    continue
                version = now
                for row in connection.execute(f"SELECT id, body FROM {table} WHERE id > ?", (last,)).fetchall():  # noqa: S608
                    last = row[0]
                    seen(json.loads(row[1])["number"])

        ready()
        try:
            await asyncio.to_thread(poll)
        finally:
            stopped.set()


class GroupedSqlite(Subject):
    """sqlite3 on one writer thread that commits what has gathered: what leaves the event loop free."""

    connection: sqlite3.Connection

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._incoming: SimpleQueue[tuple[str, str, asyncio.Future[None]] | None] = SimpleQueue()

    async def open(self) -> None:
        self.connection = connected(self.place)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def close(self) -> None:
        self._incoming.put(None)
        await asyncio.to_thread(self._thread.join)
        self.connection.close()

    def settings(self) -> str:
        return "sqlite3 on one writer thread with group commit, WAL, synchronous=FULL"

    def put(self, number: int) -> Awaitable[None]:
        return self._insert(JOB, number)

    def publish(self, number: int) -> Awaitable[None]:
        return self._insert(EVENT, number)

    def _insert(self, sql: str, number: int) -> Awaitable[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._incoming.put((sql, body(number), future))
        return future

    def _serve(self) -> None:
        while (first := self._incoming.get()) is not None:
            batch: list[Any] = [first]
            try:
                while (another := self._incoming.get_nowait()) is not None:
                    batch.append(another)
            except Empty:
                pass
            self.connection.execute("BEGIN IMMEDIATE")
            for sql, text, _ in batch:
                self.connection.execute(sql, (text,))
            self.connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [future for _, _, future in batch])


def _resolve(futures: list["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
