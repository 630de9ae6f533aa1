"""What the database itself can do: the same durable work with the bare driver, and no library between.

Durability is that of the store's default: WAL with ``synchronous=FULL``.
"""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

PAYLOAD = json.dumps({"order": 7, "to": "someone@example.org"}).encode()
_INSERT = "INSERT INTO job (queue, payload, created) VALUES ('q', ?, 0)"


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, queue TEXT, payload BLOB, created INTEGER)")
    connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, note TEXT)")
    return connection


def _rate(count: int, work: Callable[[int], object], calls: int) -> float:
    begun = time.perf_counter()
    for number in range(calls):
        work(number)
    return count / (time.perf_counter() - begun)


def insert_1(path: Path) -> float:
    """Autocommit inserts on the caller's own thread."""
    connection = _connected(path)
    rate = _rate(3_000, lambda _: connection.execute(_INSERT, (PAYLOAD,)), 3_000)
    connection.close()
    return rate


def insert_many(path: Path) -> float:
    """Inserts of 1,000 rows in one transaction."""
    connection = _connected(path)
    rows = [(PAYLOAD,)] * 1000

    def batch(_: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows)
        connection.execute("COMMIT")

    rate = _rate(50_000, batch, 50)
    connection.close()
    return rate


def transaction(path: Path) -> float:
    """Transactions of two inserts on the caller's own thread."""
    connection = _connected(path)

    def two(number: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO business (note) VALUES (?)", (str(number),))
        connection.execute(_INSERT, (PAYLOAD,))
        connection.execute("COMMIT")

    rate = _rate(2_000, two, 2_000)
    connection.close()
    return rate


def claim_ack_32(path: Path) -> float:
    """Rows taken by id and deleted, 32 at a time, two commits a batch, on the caller's own thread."""
    connection = _connected(path)
    connection.execute("ALTER TABLE job ADD COLUMN worker TEXT")
    connection.execute("BEGIN")
    connection.executemany(_INSERT, [(PAYLOAD,)] * 50_000)
    connection.execute("COMMIT")

    def batch(_: int) -> None:
        taken = connection.execute(
            "UPDATE job SET worker = 'w' WHERE id IN (SELECT id FROM job WHERE worker IS NULL ORDER BY id LIMIT 32) "
            "RETURNING id, payload"
        ).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM job WHERE id = ?", [(row[0],) for row in taken])
        connection.execute("COMMIT")

    rate = _rate(50_000, batch, 50_000 // 32 + 1)
    connection.close()
    return rate


def group_commit(path: Path, callers: int) -> float:
    """Inserts by one writer thread that commits what has gathered, for so many callers on an event loop."""
    total = 3_000 if callers == 1 else 64_000
    connection = _connected(path)
    incoming: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def resolve(batch: list[asyncio.Future[None]]) -> None:
        for future in batch:
            future.set_result(None)

    def serve(loop: asyncio.AbstractEventLoop) -> None:
        while (first := incoming.get()) is not None:
            batch = [first]
            try:
                while (another := incoming.get_nowait()) is not None:
                    batch.append(another)
            except Empty:
                pass
            connection.execute("BEGIN IMMEDIATE")
            for _ in batch:
                connection.execute(_INSERT, (PAYLOAD,))
            connection.execute("COMMIT")
            loop.call_soon_threadsafe(resolve, batch)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=serve, args=(loop,), daemon=True)
        thread.start()

        async def one() -> None:
            for _ in range(total // callers):
                future: asyncio.Future[None] = loop.create_future()
                incoming.put(future)
                await future

        begun = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(callers)))
        rate = total / (time.perf_counter() - begun)
        incoming.put(None)
        thread.join()
        return rate

    rate = asyncio.run(main())
    connection.close()
    return rate
