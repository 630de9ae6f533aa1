"""Who is measured with what, against which floor, and what is aimed at.

Only the standard library is imported here, since peers run in environments that have nothing else.
"""

from dataclasses import dataclass
from typing import Literal

Family = Literal["mem", "sqlite", "postgres"]
Role = Literal["alkstore", "floor", "peer"]
FAMILIES: tuple[Family, ...] = ("sqlite", "postgres", "mem")


@dataclass(frozen=True, slots=True)
class Entry:
    """One subject.

    Attributes:
        code: its module in `subjects`, a colon, its class.
        family: whom it is compared with.
        role: alkstore, a floor, or a peer.
        requires: what is installed into an environment of its own; nothing for those that run in alkstore's.
        durable: whether an acknowledged write survives power loss; who has less is shown and counts for no comparison.
    """

    code: str
    family: Family
    role: Role
    requires: tuple[str, ...] = ()
    durable: bool = True


SUBJECTS: dict[str, Entry] = {
    "alkstore-sqlite": Entry("alkstore:OnSqlite", "sqlite", "alkstore"),
    "alkstore-sqlite-normal": Entry("alkstore:OnSqliteNormal", "sqlite", "peer", durable=False),
    "sqlite3": Entry("bare_sqlite:BareSqlite", "sqlite", "floor"),
    "sqlite3-grouped": Entry("bare_sqlite:GroupedSqlite", "sqlite", "floor"),
    "aiosqlite": Entry("plain_aiosqlite:PlainAiosqlite", "sqlite", "peer"),
    "huey": Entry("huey_peer:Huey", "sqlite", "peer", ("huey>=3.5",)),
    "litequeue": Entry("litequeue_peer:OnLitequeue", "sqlite", "peer", ("litequeue>=0.14",)),
    "persist-queue": Entry("persist_queue_peer:PersistQueue", "sqlite", "peer", ("persist-queue>=1.1",)),
    "honker": Entry("honker_peer:Honker", "sqlite", "peer", ("honker>=0.5",), durable=False),
    "alkstore-pg": Entry("alkstore:OnPostgres", "postgres", "alkstore"),
    "asyncpg": Entry("bare_asyncpg:BareAsyncpg", "postgres", "floor"),
    "asyncpg-grouped": Entry("bare_asyncpg:GroupedAsyncpg", "postgres", "floor"),
    "asyncpg-notifying": Entry("bare_asyncpg:NotifyingAsyncpg", "postgres", "floor"),
    "procrastinate": Entry("procrastinate_peer:Procrastinate", "postgres", "peer", ("procrastinate>=3.10",)),
    "pgqueuer": Entry("pgqueuer_peer:OnPgqueuer", "postgres", "peer", ("pgqueuer>=1.6", "asyncpg>=0.30")),
    "oban": Entry("oban_peer:OnOban", "postgres", "peer", ("oban>=0.7",)),
    "saq": Entry("saq_peer:OnSaq", "postgres", "peer", ("saq[postgres]>=0.26",)),
    "alkstore-mem": Entry("alkstore:OnMemory", "mem", "alkstore"),
}
ALKSTORE: dict[Family, str] = {"sqlite": "alkstore-sqlite", "postgres": "alkstore-pg", "mem": "alkstore-mem"}
ASYNC_PEERS: frozenset[str] = frozenset({"aiosqlite", "procrastinate", "pgqueuer", "oban", "saq"})
"""Peers whose calls leave the event loop free; a caller of the others is held up, which pays in one-caller rates."""


ONE_CALLER: frozenset[str] = frozenset({"enqueue-1", "enqueue-tx", "publish-1", "lock"})
"""Workloads in which one caller waits for one call at a time."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is aimed at, for one family.

    Attributes:
        figure: ``rate``, ``p50_ms`` or ``p99_ms``.
        limit: at least that, for rates; at most that, for latencies.
        of: a subject, whose figure `limit` is then a multiple of.
    """

    family: Family
    figure: str
    limit: float
    of: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload in the tables.

    Attributes:
        title: what it is called there.
        floors: by family, what it is compared with.
        figures: which of its figures are shown, the first of which decides.
        quick: whether a quick run has it.
        targets: what is aimed at.
        beside: further subjects than alkstore, the floors and the peers with an environment of their own.
        peers: whether peers have a chance to offer it.
    """

    title: str
    floors: dict[Family, str]
    figures: tuple[str, ...] = ("rate",)
    quick: bool = True
    targets: tuple[Target, ...] = ()
    beside: tuple[str, ...] = ()
    peers: bool = True


_BARE: dict[Family, str] = {"sqlite": "sqlite3", "postgres": "asyncpg"}
_GROUPED: dict[Family, str] = {"sqlite": "sqlite3-grouped", "postgres": "asyncpg-grouped"}
_WAKING: dict[Family, str] = {"sqlite": "sqlite3", "postgres": "asyncpg-notifying"}
_LATENCY = ("p50_ms", "p99_ms")
_NORMAL = ("alkstore-sqlite-normal",)


def _both(figure: str, sqlite: float, postgres: float) -> tuple[Target, ...]:
    return Target("sqlite", figure, sqlite), Target("postgres", figure, postgres)


ROWS: dict[str, Row] = {
    "enqueue-1": Row(
        "enqueue, 1 caller",
        _BARE,
        targets=(Target("sqlite", "rate", 0.45, of="sqlite3"), Target("postgres", "rate", 0.85, of="asyncpg")),
        beside=("sqlite3-grouped", "aiosqlite", *_NORMAL),
    ),
    "enqueue-64": Row("enqueue, 64 callers", _GROUPED, targets=_both("rate", 40_000, 25_000), beside=_NORMAL),
    "enqueue-many": Row(
        "enqueue_many, 1,000 a call",
        _BARE,
        targets=(Target("sqlite", "rate", 150_000), Target("postgres", "rate", 0.60, of="asyncpg")),
        quick=False,
    ),
    "enqueue-tx": Row(
        "a row and a job in the caller's transaction",
        _BARE,
        targets=(
            Target("sqlite", "rate", 0.20, of="sqlite3"),
            Target("sqlite", "rate", 2.0, of="aiosqlite"),
            Target("postgres", "rate", 0.90, of="asyncpg"),
        ),
        beside=("aiosqlite", *_NORMAL),
    ),
    "claim-ack-1": Row(
        "claim + ack, 32 a batch, 1 caller",
        _BARE,
        targets=(Target("sqlite", "rate", 50_000), Target("postgres", "rate", 0.60, of="asyncpg")),
    ),
    "claim-ack-8": Row("claim + ack, 32 a batch, 8 callers", _BARE, quick=False),
    "drain": Row("worker, no-op handler", _BARE, targets=_both("rate", 20_000, 20_000), beside=_NORMAL),
    "latency-idle": Row(
        "enqueue to idle handler, one process",
        _WAKING,
        _LATENCY,
        targets=(*_both("p50_ms", 1, 2), *_both("p99_ms", 5, 6)),
        quick=False,
    ),
    "latency-idle-processes": Row(
        "enqueue to idle handler, two processes", _WAKING, _LATENCY, targets=_both("p50_ms", 2, 2)
    ),
    "latency-half-load": Row(
        "enqueue to handler at half load, one process", _WAKING, (*_LATENCY, "offered"), quick=False, peers=False
    ),
    "latency-half-load-processes": Row(
        "enqueue to handler at half load, two processes", _WAKING, (*_LATENCY, "offered"), quick=False
    ),
    "latency-equal-load-processes": Row(
        "enqueue to handler at 300 a second, two processes", _WAKING, _LATENCY, quick=False
    ),
    "publish-1": Row("publish, 1 caller", _BARE, quick=False, beside=("sqlite3-grouped",)),
    "publish-64": Row("publish, 64 callers", _GROUPED, targets=_both("rate", 40_000, 25_000)),
    "replay": Row("replay of a stream", _BARE, quick=False, targets=_both("rate", 200_000, 150_000)),
    "subscriber": Row("publish to live subscriber, one process", _WAKING, _LATENCY, quick=False),
    "subscriber-processes": Row("publish to live subscriber, two processes", _WAKING, _LATENCY, quick=False),
    "notify": Row("notify to listener, one process", _BARE, _LATENCY, quick=False),
    "notify-processes": Row("notify to listener, two processes", _BARE, _LATENCY, quick=False),
    "lock": Row("lock and release", _BARE, quick=False),
    "idle-1": Row("idle with 1 listener", {}, ("cpu_percent", "rss_mb"), quick=False),
    "idle-100": Row("idle with 100 listeners", {}, ("cpu_percent", "rss_mb"), quick=False),
}
"""By name of the workload, in the order of the tables."""


def subjects_of(workload: str) -> list[str]:
    """Who is measured under `workload`, in the order of `SUBJECTS`."""
    row = ROWS[workload]
    named = {*ALKSTORE.values(), *row.floors.values(), *row.beside}
    return [
        name
        for name, entry in SUBJECTS.items()
        if name in named or (row.peers and entry.role == "peer" and entry.requires)
    ]
