"""The stored schema: convergent, transactional, safe under concurrent opens (X2)."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiosqlite
import pytest
from alkstore_core.errors import DatabaseError
from alkstore_sqlite import SqliteStore
from alkstore_sqlite.migrations import Migration, known_migrations, migrate, schema_version, split, standing_objects

_NEWEST = known_migrations()[-1].version
_NEXT = Migration(
    _NEWEST + 1,
    "CREATE TABLE alkstore_extra (id INTEGER PRIMARY KEY, note TEXT) STRICT; -- with a ; in the comment\n"
    "ALTER TABLE alkstore_locks ADD COLUMN note TEXT;\n"
    "INSERT INTO alkstore_extra (note) VALUES ('a;b');",
)


def connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE name LIKE 'alkstore%' ORDER BY name"
    ).fetchall()


def test_a_fresh_and_an_upgraded_file_end_up_the_same(tmp_path: Path) -> None:
    """Whichever way a file came to a version, its schema is the same."""
    migrations = (*known_migrations(), _NEXT)
    fresh, upgraded = connected(tmp_path / "fresh.db"), connected(tmp_path / "upgraded.db")
    migrate(fresh.cursor(), "fresh", migrations)
    migrate(upgraded.cursor(), "upgraded", known_migrations())
    migrate(upgraded.cursor(), "upgraded", migrations)
    migrate(upgraded.cursor(), "upgraded", migrations)
    assert schema(fresh) == schema(upgraded)
    for connection in (fresh, upgraded):
        assert schema_version(connection.cursor()) == _NEXT.version
        assert connection.execute("SELECT note FROM alkstore_extra").fetchall() == [("a;b",)]
        connection.close()


@pytest.mark.parametrize("broken_at", range(len(split(_NEXT.sql)) + 1))
def test_a_fault_at_any_statement_leaves_the_old_version_usable(tmp_path: Path, broken_at: int) -> None:
    """A migration that fails anywhere is undone whole; the same file can be used, and migrated later."""
    connection = connected(tmp_path / "app.db")
    migrate(connection.cursor(), "app", known_migrations())
    before = schema(connection)
    statements = split(_NEXT.sql)
    statements.insert(broken_at, "INSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection.cursor(), "app", (*known_migrations(), Migration(_NEXT.version, "\n".join(statements))))
    assert not connection.in_transaction
    assert schema(connection) == before
    assert schema_version(connection.cursor()) == _NEWEST
    migrate(connection.cursor(), "app", (*known_migrations(), _NEXT))
    assert schema_version(connection.cursor()) == _NEXT.version
    connection.close()


def test_a_newer_file_is_refused_by_the_migrations_too(tmp_path: Path) -> None:
    """The check is made again behind the gate: another process may have migrated meanwhile."""
    connection = connected(tmp_path / "app.db")
    migrate(connection.cursor(), "app", (*known_migrations(), _NEXT))
    with pytest.raises(DatabaseError, match=f"schema version {_NEXT.version}"):
        migrate(connection.cursor(), "app", known_migrations())
    connection.close()


def test_statements_are_split_at_their_ends_only() -> None:
    """Semicolons in strings, comments and triggers end nothing."""
    trigger = "CREATE TRIGGER t AFTER INSERT ON x BEGIN DELETE FROM y; DELETE FROM z; END;"
    assert split(f"INSERT INTO x VALUES ('a;b'); -- c;\n{trigger}\nSELECT 1;") == [
        "INSERT INTO x VALUES ('a;b');",
        f"-- c;\n{trigger}",
        "SELECT 1;",
    ]


def standing(path: Path) -> list[tuple[str, str]]:
    connection = connected(path)
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name"
    ).fetchall()
    connection.close()
    return found


@pytest.mark.parametrize(
    "damage",
    [
        "DROP VIEW outstanding_deliveries",
        "DROP TRIGGER alkstore_deliveries_guard",
        "DROP TRIGGER alkstore_deliveries_guard; DROP VIEW outstanding_deliveries",
        "DROP VIEW outstanding_deliveries; CREATE VIEW outstanding_deliveries AS SELECT * FROM alkstore_deliveries",
    ],
    ids=["view", "trigger", "both", "another"],
)
async def test_views_and_triggers_are_put_back(path: Path, damage: str) -> None:
    """A view or trigger that is missing, or another one, is as it should be once a store was opened (M17)."""
    async with SqliteStore.open(path) as store:
        mailbox = store.mailbox("m")
        holder = await mailbox.attach(source="run", subject="7")
        await mailbox.send(1)
        delivery = await mailbox.check(holder)
    whole = standing(path)
    assert whole == sorted((one.name, one.sql) for one in standing_objects())
    connection = connected(path)
    connection.executescript(damage)
    connection.close()
    assert standing(path) != whole
    async with SqliteStore.open(path) as store:
        again = await store.mailbox("m").check(holder)
        assert (again.id, again.replayed) == (delivery.id, True)
        assert (await store.mailbox("m").acknowledge(holder, delivery.id)).duplicate is False
    assert standing(path) == whole


async def test_a_store_of_the_first_schema_gets_mailboxes(path: Path) -> None:
    """A file that an older version made is brought forward when it is opened, with what was in it."""
    connection = connected(path)
    connection.execute("PRAGMA journal_mode = WAL")
    migrate(connection.cursor(), "app", known_migrations()[:1])
    connection.execute("INSERT INTO alkstore_locks VALUES ('l', 'o', 7, 9999999999)")
    connection.close()
    async with SqliteStore.open(path) as store:
        assert (await store.try_lock("l", "o", 10)).token == 7
        await store.mailbox("m").send(1)
    connection = connected(path)
    assert schema_version(connection.cursor()) == _NEWEST
    connection.close()


async def test_an_application_keeps_its_own_tables_and_versions(path: Path) -> None:
    """alkstore touches neither the application's tables nor SQLite's user_version, which is the application's."""
    connection = connected(path)
    connection.execute("CREATE TABLE orders (id)")
    connection.execute("PRAGMA user_version = 42")
    connection.close()
    async with SqliteStore.open(path) as store:
        await store.queue("q").enqueue(1)
    connection = connected(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (42,)
    assert connection.execute("SELECT sql FROM sqlite_master WHERE name = 'orders'").fetchone() is not None
    connection.close()


_OPENER = """
import asyncio, sys
from alkstore_sqlite import SqliteStore
async def main():
    for path in sys.argv[1:]:
        print("ready", flush=True)
        sys.stdin.readline()
        async with SqliteStore.open(path, busy_timeout=30) as store:
            await store.queue("q").enqueue(1)
        print("done", flush=True)
asyncio.run(main())
"""


async def test_eight_processes_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    """Twenty rounds of a simultaneous first open: no error, one schema, every job there."""
    paths = [tmp_path / f"{number}.db" for number in range(20)]
    command = [sys.executable, "-W", "error", "-c", _OPENER, *map(str, paths)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        for _ in range(8)
    ]
    try:
        for _ in paths:
            for said in ("ready", "done"):
                for child in children:
                    assert child.stdout is not None
                    assert await asyncio.to_thread(child.stdout.readline) == f"{said}\n"
                if said == "ready":
                    for child in children:
                        assert child.stdin is not None
                        child.stdin.write("\n")
                        child.stdin.flush()
    finally:
        for child in children:
            child.communicate()
    assert [child.returncode for child in children] == [0] * 8
    for path in paths:
        connection = connected(path)
        assert schema_version(connection.cursor()) == known_migrations()[-1].version
        assert connection.execute("SELECT count(*) FROM alkstore_jobs").fetchone() == (8,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


async def test_a_newer_schema_stops_transactions_too(path: Path, store: SqliteStore) -> None:
    """Those of the store and joined ones: a file that was migrated meanwhile is not written to by old rules (X2)."""
    tx = await store.begin_tx()
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("UPDATE alkstore_meta SET value = 99 WHERE key = 'schema_version'")
        newer.execute("ALTER TABLE alkstore_jobs ADD COLUMN novel TEXT")
    with pytest.raises(DatabaseError, match="schema version 99"):
        await tx.enqueue("q", 1)
    await tx.rollback()
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="schema version 99"):
            await store.enlist(connection).enqueue("q", 1)
        await connection.execute("ROLLBACK")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM alkstore_jobs").fetchone() == (0,)
