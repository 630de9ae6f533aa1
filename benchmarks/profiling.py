"""Where the time of one call goes, layer by layer, for one caller: what to make faster, and what cannot be.

``python -m benchmarks.profiling ENGINE FOLDER DSN SECONDS`` measures in this process, and says a line of JSON for each
operation and layer: engine, operation, layer, and us (microseconds of one call, the mean).

- ``facade``: core's checks and its encoding, outside the engine.
- ``engine``: the engine outside its database: on SQLite the hop to the writer thread and back.
- ``begin``, ``statements``, ``commit``: in SQLite, on the writer thread; the commit flushes to disk.
- ``round trip``: what the shortest statement takes on Postgres; ``statement``: what the real one takes beyond that
  with synchronous_commit off; ``flush``: what synchronous_commit on adds to it.
- A transaction is shown by its steps instead: its own row, the job, begin with commit.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
from alkstore_core import Store, open_store
from alkstore_pg.schema import DEFAULT_SCHEMA
from alkstore_pg.statements import statements
from alkstore_sqlite.commits import GroupCommit
from alkstore_sqlite.database import Database

from benchmarks.subject import Place, payload
from benchmarks.subjects.alkstore import Alkstore, OnMemory, OnPostgres, OnSqlite

ENGINES: dict[str, type[Alkstore]] = {
    "alkstore-sqlite": OnSqlite,
    "alkstore-pg": OnPostgres,
    "alkstore-mem": OnMemory,
}
Layers = dict[str, float]


class Clock:
    """Adds up the seconds of each layer."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._outer = ""

    def around(self, layer: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, timed; what it calls of other timed layers is its own."""

        def timed(*arguments: Any, **options: Any) -> Any:
            if self._outer:
                return call(*arguments, **options)
            self._outer, begun = layer, time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                self._outer = ""
                self.seconds[layer] += time.perf_counter() - begun

        return timed

    def awaiting(self, layer: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same for a coroutine function, whose layers within count too."""

        async def timed(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return await call(*arguments, **options)
            finally:
                self.seconds[layer] += time.perf_counter() - begun

        return timed


class TimedSession:
    """An engine's session, each call of which is timed as ``session``."""

    def __init__(self, session: Any, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return self._clock.awaiting("session", getattr(self._session, name))


def watch_sqlite(clock: Clock) -> None:
    """Time what SQLite's writer thread does."""

    class TimedCursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> "TimedCursor":
            layer = "commit" if sql == "COMMIT" else "statements"
            clock.around(layer, super().execute)(sql, parameters)
            return self

        def executemany(self, sql: str, parameters: Any, /) -> "TimedCursor":
            clock.around("statements", super().executemany)(sql, parameters)
            return self

    class TimedConnection(sqlite3.Connection):
        def cursor(self, factory: Any = TimedCursor, /) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().cursor(factory)

    connect = Database.connect

    def timed_connect(self: Database, factory: type[sqlite3.Connection] = sqlite3.Connection, **options: Any) -> Any:
        return connect(self, TimedConnection if factory is sqlite3.Connection else factory, **options)

    Database.connect = timed_connect  # type: ignore[method-assign]
    GroupCommit.begin = clock.around("begin", GroupCommit.begin)  # type: ignore[method-assign]


def watch_asyncpg(clock: Clock) -> None:
    """Time what is asked of Postgres; not the wakes and the listener's beats, which no call waits for."""
    connection: Any = asyncpg.Connection
    plain, timed = connection.fetch, clock.awaiting("statement", connection.fetch)
    beside = {statements(DEFAULT_SCHEMA)[name] for name in ("wake", "beat", "sign_of_life")}

    def fetch(self: Any, sql: str, *arguments: Any, **options: Any) -> Awaitable[Any]:
        call = plain if sql in beside else timed
        return call(self, sql, *arguments, **options)

    connection.fetch = fetch


async def operations(
    store: Store,
) -> dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]]:
    """By name: what is timed, and what is done before each time so that there is something to do."""
    queue, stream = store.queue("jobs"), store.stream("events")
    held: list[int] = []

    async def nothing() -> None:
        pass

    async def fill() -> None:
        held.clear()
        await queue.enqueue_many([payload(7)] * 32)

    async def claim() -> None:
        held.extend(handle.job.id for handle in await queue.claim_batch("worker", 32))

    async def claimed() -> None:
        await fill()
        await claim()

    return {
        "enqueue": (lambda: queue.enqueue(payload(7), delay=86_400), nothing),
        "enqueue_many of 32": (lambda: queue.enqueue_many([payload(7)] * 32, delay=86_400), nothing),
        "claim of 32": (claim, fill),
        "ack of 32": (lambda: queue.ack_batch("worker", held), claimed),
        "publish": (lambda: stream.publish(payload(7)), nothing),
        "read of 100 events": (lambda: stream.read_since(0, 100), nothing),
    }


async def spent(store: Store, clock: Clock, seconds: float) -> dict[str, Layers]:
    """Seconds of one call, by operation and layer, ``whole`` included."""
    found = {}
    for name, (call, before) in (await operations(store)).items():
        await before()
        await call()
        clock.seconds.clear()
        calls, whole = 0, 0.0
        end = time.perf_counter() + seconds
        totals: dict[str, float] = defaultdict(float)
        while time.perf_counter() < end:
            await before()
            clock.seconds.clear()
            begun = time.perf_counter()
            await call()
            whole += time.perf_counter() - begun
            calls += 1
            for layer, value in clock.seconds.items():
                totals[layer] += value
        found[name] = {"whole": whole / calls, **{layer: value / calls for layer, value in totals.items()}}
    return found


async def steps(subject: Alkstore, seconds: float) -> Layers:
    """Seconds of the steps of one transaction with a row and a job."""
    clock = Clock()
    await subject.make_business()
    end, calls = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        begun = time.perf_counter()
        async with subject.store.transaction() as tx:
            await clock.awaiting("own row", subject.insert)(tx.connection, calls)
            await clock.awaiting("job", tx.enqueue)("jobs", payload(calls))
        clock.seconds["whole"] += time.perf_counter() - begun
        calls += 1
    return {layer: value / calls for layer, value in clock.seconds.items()}


def layers_of(durable: Layers, fast: Layers, round_trip: float, engine: str) -> Layers:
    """The layers of one operation, which add up to the whole.

    Args:
        durable: as it is measured.
        fast: the same without a flush, where that is how the flush is found.
        round_trip: of the shortest statement.
        engine: whose it is.
    """
    whole, session = durable["whole"], durable.get("session", 0.0)
    if engine == "alkstore-pg":
        statement, quick = durable.get("statement", 0.0), fast.get("statement", 0.0)
        inner = {
            "round trip": min(round_trip, quick),
            "statement": max(0.0, quick - round_trip),
            "flush": max(0.0, statement - quick),
        }
        within = sum(inner.values())
    else:
        inner = {layer: durable[layer] for layer in ("begin", "statements", "commit") if layer in durable}
        within = sum(inner.values())
    return {"facade": whole - session, "engine": session - within, **inner}


async def main(engine: str, folder: str, dsn: str, seconds: float) -> None:
    """Measure one engine."""
    subject, clock, fast, round_trip = ENGINES[engine](Place(Path(folder), dsn)), Clock(), {}, 0.0
    if engine == "alkstore-sqlite":
        watch_sqlite(clock)
    if engine == "alkstore-pg":
        connection: Any = await asyncpg.connect(dsn)
        begun = time.perf_counter()
        for _ in range(500):
            await connection.fetch("SELECT 1")
        round_trip = (time.perf_counter() - begun) / 500
        await connection.close()
        watch_asyncpg(clock)
        async with open_store(dsn, server_settings={"synchronous_commit": "off"}) as store:
            fast = await spent(watched(store, clock), clock, seconds)
    await subject.open()
    found = await spent(watched(subject.store, clock), clock, seconds)
    stepped = await steps(subject, seconds)
    stepped["begin and commit"] = stepped.pop("whole") - stepped["own row"] - stepped["job"]
    await subject.close()
    shown = {name: layers_of(layers, fast.get(name, {}), round_trip, engine) for name, layers in found.items()}
    for operation, layers in {**shown, "transaction with a row and a job": stepped}.items():
        for layer, value in layers.items():
            line = {"engine": engine, "operation": operation, "layer": layer, "us": round(value * 1e6, 1)}
            sys.stdout.write(json.dumps(line) + "\n")


def watched(store: Store, clock: Clock) -> Store:
    """`store`, each of whose sessions' calls is timed."""
    store._session = TimedSession(store._session, clock)  # type: ignore[assignment]  # noqa: SLF001 - to look inside
    return store


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
