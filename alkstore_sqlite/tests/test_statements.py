"""The SQL: every statement is used and parses, and the hot ones cost the same whatever the tables hold."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alkstore_core.engine import Claim
from alkstore_core.options import DEFAULT_STAMP
from alkstore_core.testing import ManualClock
from alkstore_core.values import Acknowledgement, Delivery, Holder
from alkstore_sqlite import SqliteStore, locks, mailboxes, notify, promises, queues, scheduler, streams
from alkstore_sqlite.migrations import known_migrations, migrate, restore
from alkstore_sqlite.operations import Operation, Scope, drive
from alkstore_sqlite.statements import Statements

MODULES = {
    "queues": queues,
    "streams": streams,
    "locks": locks,
    "scheduler": scheduler,
    "notify": notify,
    "mailboxes": mailboxes,
    "promises": promises,
}
NOW = 1_700_000_000
HOLDER = Holder("run", "7", 1)


@pytest.fixture
def cursor() -> Iterator[sqlite3.Cursor]:
    """A cursor on an empty database with the current schema."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    prepare(connection.cursor())
    yield connection.cursor()
    connection.close()


def prepare(cursor: sqlite3.Cursor) -> None:
    migrate(cursor, "memory", known_migrations())
    restore(cursor)


def unbound(sql: str) -> tuple[None, ...]:
    """A null for each parameter, numbered or not."""
    numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    return (None,) * (max(numbers) if numbers else sql.count("?"))


def named() -> list[tuple[str, str, str]]:
    return [(file, name, sql) for file in MODULES for name, sql in Statements(file).all.items()]


@pytest.mark.parametrize(("file", "name", "sql"), named(), ids=lambda value: value if "_" in value else None)
def test_every_statement_is_used_parses_and_says_what_it_is_for(
    cursor: sqlite3.Cursor, file: str, name: str, sql: str
) -> None:
    """No statement is left over, and each has its purpose on the line after its name."""
    source = Path(MODULES[file].__file__)
    assert re.search(rf"\bSQL\.{name}\b", source.read_text()), f"{name} is not used in {source.name}"
    cursor.execute(f"EXPLAIN {sql}", unbound(sql))
    text = source.with_name("sql").joinpath(f"{file}.sql").read_text()
    assert re.search(rf"-- name: {name}\n-- [A-Z].*\.\n", text), f"{name} does not say what it is for"


@pytest.mark.parametrize(
    ("file", "name", "index"),
    [
        ("queues", "set_expired_aside", "alkstore_jobs_expiry"),
        ("queues", "return_unexpired", "alkstore_jobs_expiry"),
        ("queues", "return_lapsed", "alkstore_jobs_held"),
        ("queues", "next_priority", "alkstore_jobs_order"),
        ("queues", "claimable_first", "alkstore_jobs_order (queue=? AND priority>?"),
        ("queues", "claimable", "alkstore_jobs_order (queue=? AND priority=? AND ready_at<?"),
        ("queues", "claimable_last", "alkstore_jobs_order (queue=? AND priority<?"),
        ("queues", "claim", "PRIMARY KEY"),
        ("queues", "live_claims", "PRIMARY KEY"),
        ("queues", "delete_jobs", "PRIMARY KEY"),
        ("queues", "ack_jobs", "PRIMARY KEY"),
        ("queues", "retry_claim", "PRIMARY KEY"),
        ("queues", "bury_claim", "PRIMARY KEY"),
        ("queues", "extend_claim", "PRIMARY KEY"),
        ("queues", "release_claim", "PRIMARY KEY"),
        ("queues", "find_job", "PRIMARY KEY"),
        ("queues", "bury_expired", "alkstore_jobs_expiry"),
        ("queues", "purge_dead", "alkstore_jobs_purge"),
        ("queues", "next_ready", "alkstore_jobs_order"),
        ("queues", "next_delayed", "alkstore_jobs_delayed"),
        ("queues", "ripen", "alkstore_jobs_delayed"),
        ("queues", "next_lapse", "alkstore_jobs_held"),
        ("streams", "read_events", "alkstore_events_stream"),
        ("streams", "read_consumer_events", "alkstore_events_stream"),
        ("streams", "trim_events", "alkstore_events_stream"),
        ("mailboxes", "outstanding", "alkstore_deliveries_open (mailbox=? AND reach>?)"),
        ("mailboxes", "outstanding", "alkstore_messages_unread"),
        ("mailboxes", "unread_of_types", "alkstore_messages_types (mailbox=? AND type=?)"),
        ("mailboxes", "oldest_unread", "alkstore_messages_unread"),
        ("mailboxes", "any_unread", "alkstore_messages_unread"),
        ("mailboxes", "pending", "alkstore_deliveries_open (mailbox=? AND reach>?)"),
        ("mailboxes", "members", "sqlite_autoindex_alkstore_messages_1 (id=?)"),
        ("mailboxes", "mark_read", "sqlite_autoindex_alkstore_messages_1 (id=?)"),
        ("mailboxes", "find_delivery", "sqlite_autoindex_alkstore_deliveries_1 (id=?)"),
        ("mailboxes", "acknowledge", "sqlite_autoindex_alkstore_deliveries_1 (id=?)"),
        ("mailboxes", "fence", "alkstore_deliveries_open (mailbox=?)"),
        ("mailboxes", "reroute", "alkstore_messages_unread (mailbox=?)"),
        ("scheduler", "due_schedule", "alkstore_schedules_next"),
        ("scheduler", "next_fire", "alkstore_schedules_next"),
    ],
)
@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
def test_hot_statements_use_the_index_made_for_them(
    cursor: sqlite3.Cursor, file: str, name: str, index: str, *, analyzed: bool
) -> None:
    """With statistics and without, no plan scans a table or sorts."""
    fill(cursor, 500)
    if analyzed:
        cursor.execute("ANALYZE")
    sql = Statements(file).all[name]
    plan = " / ".join(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {sql}", unbound(sql)).fetchall())
    assert index in plan, plan
    assert not re.search(r"SCAN (alkstore_(?!schedules)|m\b|d\b|o\b)", plan), plan
    assert "TEMP B-TREE" not in plan or name == "members", plan  # at most fifty, in the delivery's order


def fill(cursor: sqlite3.Cursor, count: int) -> None:
    """`count` jobs of each kind that a claim could stumble over, and as many ready ones, and events and schedules."""
    kinds = {
        # state, priority, ready_at, expires_at, attempts, claim_expires_at, place, purge_at
        "ready": "0, 0, :now - i % 7, NULL, 0, NULL, 1, NULL",
        "delayed": "0, 0, :now + 1000 + i, NULL, 0, NULL, 1, NULL",
        "delayed, each of its own higher priority": "0, 5 + i, :now + 1000 + i, NULL, 0, NULL, 3, NULL",
        "expired, known": "0, 9, :now - 50, :now - 10, 0, NULL, 2, NULL",
        "held": "1, 0, :now - 100, NULL, 1, :now + 1000 + i, 0, NULL",
        "held and expired": "1, 0, :now - 100, :now - 10, 3, :now - 5, 2, NULL",
        "dead": "2, 0, :now - 100, NULL, 3, :now - 50, 2, NULL",
        "dead, to be purged some day": "2, 0, :now - 100, NULL, 3, :now - 50, 2, :now + 5000 + i",
    }
    for values in kinds.values():
        for queue in ("q", "other"):
            cursor.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
                "INSERT INTO alkstore_jobs (state, priority, ready_at, expires_at, attempts, claim_expires_at, place,"
                " purge_at, queue, payload, max_attempts, visibility_timeout_s, backoff_base_s, created_at, claims) "
                f"SELECT {values}, :queue, x'31', 3, 300, 5, :now, 1 FROM n",
                {"count": count, "now": NOW, "queue": queue},
            )
    cursor.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
        "INSERT INTO alkstore_events (stream, payload, created_at) SELECT 's' || i % 3, x'31', 0 FROM n",
        {"count": count},
    )

    fill_mail(cursor, count, count)


def fill_mail(cursor: sqlite3.Cursor, count: int, unread: int) -> None:
    """A mailbox with a history: `count` messages for each way to be read, in batches of fifty, and some unread.

    The batches are acknowledged, fenced, or neither, with every message suppressed.
    """
    number = 0
    for fate in ("1, 0", "NULL, 1", "NULL, 0"):
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
            "INSERT INTO alkstore_messages (id, mailbox, type, payload, read, created_at) "
            "SELECT 'm' || (:first + i), 'box', 'heartbeat', x'31', 1, 0 FROM n",
            {"count": count, "first": number},
        )
        cursor.execute(
            "INSERT INTO alkstore_deliveries (id, mailbox, source, subject, generation, message_ids, reach,"
            " created_at, acknowledged_at, fenced) "
            f"SELECT 'd' || max(sequence), 'box', 'run', '7', 1, json_group_array(id), max(sequence), 0, {fate} "
            "FROM alkstore_messages WHERE CAST(substr(id, 2) AS INTEGER) > ? GROUP BY sequence / 50",
            (number,),
        )
        number += count
    cursor.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
        "INSERT INTO alkstore_messages (id, mailbox, type, payload, created_at) "
        "SELECT 'm' || (:first + i), 'box', 'heartbeat', x'31', 0 FROM n",
        {"count": unread, "first": number},
    )
    cursor.execute("INSERT INTO alkstore_consumers VALUES ('box', 'run', '7', 1, 0)")


def cost(cursor: sqlite3.Cursor, build: Callable[[Scope], Operation[object]]) -> int:
    """How many steps of SQLite's virtual machine an operation takes; the same on every machine, at any load."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    cursor.connection.set_progress_handler(step, 1)
    drive(cursor, build(Scope(ManualClock(NOW))))
    cursor.connection.set_progress_handler(None, 1)
    return steps


def claim_and_settle(scope: Scope) -> Operation[object]:
    claims: list[Claim] = yield from queues.claim_jobs(scope, "q", "w", 10)
    assert len(claims) == 10
    assert {claim.job.priority for claim in claims} == {0}
    landed = yield from queues.ack_claims(scope, claims[:5])
    assert all(landed)
    yield from queues.release_claims(scope, claims[5:])
    return None


def check_and_acknowledge(scope: Scope) -> Operation[object]:
    checked: list[Delivery] = []
    for number in range(3):
        delivery = yield from mailboxes.check_mailbox(scope, "box", HOLDER, 50, None, f"delivery {number}")
        assert isinstance(delivery, Delivery), delivery
        assert len(delivery.messages) == 50
        again = yield from mailboxes.check_mailbox(scope, "box", HOLDER, 50, None, "delivery")
        assert (again.id, again.replayed) == (delivery.id, True)
        landed = yield from mailboxes.acknowledge_delivery(scope, "box", HOLDER, delivery.id)
        assert landed == Acknowledgement(NOW, duplicate=False)
        checked.append(delivery)
    return checked


def suppress(scope: Scope) -> Operation[object]:
    delivery = yield from mailboxes.check_mailbox(scope, "box", HOLDER, 50, None, "delivery")
    assert isinstance(delivery, Delivery)
    return (yield from mailboxes.mark_read(scope, "box", [message.id for message in delivery.messages]))


OPERATIONS: dict[str, Callable[[Scope], Operation[object]]] = {
    "claim and settle": claim_and_settle,
    "next_due": lambda scope: queues.next_due(scope, "q"),
    "sweep": lambda scope: queues.sweep_jobs(scope, "q2"),
    "insert": lambda scope: queues.insert_jobs(scope, "q", (b"1",), DEFAULT_STAMP),
    "find": lambda scope: queues.find_job(scope, 17, None),
    "check and acknowledge": check_and_acknowledge,
    "check for a type": lambda scope: mailboxes.check_mailbox(scope, "box", HOLDER, 50, ["x", "heartbeat"], "d"),
    "check for no type": lambda scope: mailboxes.check_mailbox(scope, "box", HOLDER, 50, ["x"], "d"),
    "suppress": suppress,
    "read events": lambda scope: streams.read_events(scope, "s1", 90, 10),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_costs_more_for_a_larger_table(name: str) -> None:
    """At a million rows an operation takes about the steps that it takes at a few thousand: no plan grows."""
    costs: list[int] = []
    for count in (200, 62_500):  # times 16 kinds: 3,200 rows and a million
        connection = sqlite3.connect(":memory:", isolation_level=None)
        prepare(connection.cursor())
        fill(connection.cursor(), count)
        if name == "next_due":  # what waits for the first claim to notice that it has expired
            connection.execute("UPDATE alkstore_jobs SET place = place")
        costs.append(cost(connection.cursor(), OPERATIONS[name]))
        connection.close()
    small, large = costs
    assert large <= small * 1.2, costs


def test_a_mailbox_costs_the_same_after_a_million_read_messages(tmp_path: Path) -> None:
    """A check and an acknowledgement after a million read messages take the steps that they take after 600."""
    names = ("check and acknowledge", "check for a type", "check for no type", "suppress")
    costs: list[list[int]] = []
    for count in (200, 333_400):
        connection = sqlite3.connect(tmp_path / f"{count}.db", isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        prepare(connection.cursor())
        connection.execute("BEGIN")
        fill_mail(connection.cursor(), count, 1000)
        costs.append([cost(connection.cursor(), OPERATIONS[name]) for name in names])
        connection.execute("ROLLBACK")
        connection.close()
    assert all(large <= small * 1.1 for small, large in zip(*costs, strict=True)), costs


def test_the_cost_guard_notices_a_plan_that_grows() -> None:
    """A claim that orders by hand, the way that other queues were seen to, is caught by the same measure."""
    costs: list[int] = []
    for count in (200, 2_000):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        prepare(connection.cursor())
        fill(connection.cursor(), count)

        def naive(scope: Scope) -> Operation[object]:
            return scanning(scope.now())

        costs.append(cost(connection.cursor(), naive))
        connection.close()
    assert costs[1] > costs[0] * 5


def scanning(now: int) -> Operation[object]:
    from alkstore_sqlite.operations import rows

    yield rows(
        "SELECT id FROM alkstore_jobs WHERE queue = 'q' AND state = 0 AND ready_at <= ? "
        "ORDER BY priority DESC, ready_at, id LIMIT 10",
        now,
    )


async def test_what_expired_before_the_clock_was_set_back_is_claimed_again(
    store: SqliteStore, clock: ManualClock
) -> None:
    """It was set aside as expired, and is not: pending or lapsed, it comes in its order again (Q3)."""
    queue = store.queue("q", visibility_timeout_s=5)
    pending, held = await queue.enqueue(1, expires=10), await queue.enqueue(2, expires=10, priority=1)
    claim = await queue.claim_one("w")
    assert claim is not None
    assert claim.job.id == held
    clock.advance(20)
    assert await queue.claim_batch("w", 9) == []
    clock.advance(-12)
    assert [handle.job.id for handle in await queue.claim_batch("w", 9)] == [held, pending]
