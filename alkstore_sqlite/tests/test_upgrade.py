"""Taking over a database of the older design, in which deliveries had a status (M16 to M19)."""

import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alkstore_core import Acknowledgement, Holder
from alkstore_core.errors import ConsumerFencedError, DatabaseError
from alkstore_core.testing import ManualClock
from alkstore_sqlite import SqliteStore, upgrade
from alkstore_sqlite.__main__ import main
from alkstore_sqlite.upgrade import upgrade_deliveries

OLD = """
CREATE TABLE messages (
    id TEXT PRIMARY KEY, run_id, recipient, type, payload, sequence INTEGER, read INTEGER, created_at
);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY, run_id, mailbox_handle, consumer_generation, message_ids TEXT, status, created_at,
    acknowledged_at
);
CREATE UNIQUE INDEX one_outstanding ON deliveries (run_id, mailbox_handle) WHERE status = 'outstanding';
CREATE TABLE runs (id TEXT PRIMARY KEY, title);
INSERT INTO runs VALUES ('7', 'not alkstore''s');
PRAGMA user_version = 40;
"""
MESSAGES = [
    # id, run_id, recipient, type, payload, sequence, read, created_at
    ("msg-b", "7", "lead", "status", '{"n": 2}', 2, 1, "2026-11-01T10:00:00.000Z"),
    ("msg-a", "7", "lead", "status", '{"n":1,  "é":"\\u00e9"}', 1, 1, "2026-11-01T09:00:00.000Z"),
    ("msg-c", "7", "lead", None, "plain words", 3, 1, "2026-11-01T11:00:00+02:00"),
    ("msg-d", "7", "lead", "", None, 4, 0, "2026-11-02 12:00:00"),
    ("msg-e", "7", "lead", "result", "17", 5, 0, 1_793_000_000),
    ("msg-f", "8", "lead", "status", '"another run"', 1, 0, 1_793_000_001),
    ("msg-g", "8", "worker", "status", '"suppressed"', 2, 1, 1_793_000_002),
    ("msg-h", "8", "worker", "status", '"next"', 3, 0, 1_793_000_003),
    ("msg-i", None, "everybody", "status", b'"bytes"', 1, 0, 1_793_000_004),
]
DELIVERIES = [
    # id, run_id, mailbox_handle, consumer_generation, message_ids, status, created_at, acknowledged_at
    ("dlv-1", "7", "lead", 1, '["msg-a", "msg-b"]', "fenced", "2026-11-01T10:30:00.000Z", None),
    ("dlv-2", "7", "lead", 2, '["msg-b","msg-a"]', "acknowledged", "2026-11-01T10:31:00.000Z", "2026-11-01 10:32:00"),
    ("dlv-3", "7", "lead", 2, '["msg-c",\n "msg-d"]', "outstanding", "2026-11-02T12:01:00.123Z", None),
    ("dlv-4", "8", "worker", 5, '["msg-g"]', "outstanding", 1_793_000_010, None),
    ("dlv-5", "9", "ghost", 3, "[]", "acknowledged", 1_793_000_011, 1_793_000_012),
]


def make_old(path: Path, messages=MESSAGES, deliveries=DELIVERIES) -> None:
    """A database as the older design left it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(OLD)
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", messages)
        connection.executemany("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", deliveries)


def asked(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def content(path: Path) -> list[str]:
    """All that is in a database, its schema and its version."""
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.iterdump(), str(connection.execute("PRAGMA user_version").fetchone())]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of the older design."""
    path = tmp_path / "old.db"
    make_old(path)
    return path


def test_the_facts_are_kept_to_the_byte(old: Path) -> None:
    """Ids, ordered membership, generation and times are what they were; the status is what it stood for (M16)."""
    assert upgrade_deliveries(old) is True
    assert asked(old, "PRAGMA user_version") == [(41,)]
    assert asked(
        old,
        "SELECT id, mailbox, source, subject, generation, message_ids, created_at, acknowledged_at, fenced "
        "FROM alkstore_deliveries ORDER BY id",
    ) == [
        (id, f"{run}:{handle}", "run", run, generation, ids, created, acknowledged, int(status == "fenced"))
        for id, run, handle, generation, ids, status, created, acknowledged in DELIVERIES
    ]
    kept = {
        row[0]: row[1:]
        for row in asked(old, "SELECT id, mailbox, type, payload, read, created_at FROM alkstore_messages")
    }
    as_json = {"msg-c": b'"plain words"', "msg-d": b"null", "msg-i": b'"bytes"'}
    assert kept == {
        id: (
            f"{run}:{to}" if run else to,
            type or None,
            as_json.get(id) or str(payload).encode(),
            read,
            created_at,
        )
        for id, run, to, type, payload, _, read, created_at in MESSAGES
    }
    assert asked(old, "SELECT id FROM alkstore_messages WHERE mailbox = '7:lead' ORDER BY sequence") == [
        (f"msg-{letter}",) for letter in "abcde"
    ]
    assert asked(old, "SELECT * FROM alkstore_consumers ORDER BY mailbox") == [
        ("7:lead", "run", "7", 2, 0),
        ("8:worker", "run", "8", 5, 0),
        ("9:ghost", "run", "9", 3, 0),
    ]
    assert asked(old, "SELECT id FROM outstanding_deliveries") == [("dlv-3",)]
    assert (
        asked(old, "SELECT name FROM sqlite_master WHERE name IN ('messages', 'deliveries', 'one_outstanding')") == []
    )
    assert asked(old, "SELECT * FROM runs") == [("7", "not alkstore's")]
    assert asked(old, "PRAGMA integrity_check") == [("ok",)]


async def test_a_store_goes_on_where_the_older_design_stopped(old: Path) -> None:
    """The consumer of before has its batch again, a suppressed one needs no repair, and what was fenced stays so."""
    upgrade_deliveries(old)
    async with SqliteStore.open(old, clock=ManualClock(1_794_000_000)) as store:
        lead, holder = store.mailbox("7:lead"), Holder("run", "7", 2)
        delivery = await lead.check(holder)
        assert (delivery.id, delivery.replayed, delivery.created_at) == ("dlv-3", True, 1_793_620_860)
        assert [(one.id, one.type, one.created_at) for one in delivery.messages] == [
            ("msg-c", None, 1_793_523_600),
            ("msg-d", None, 1_793_620_800),
        ]
        assert [one.payload_as(object) for one in delivery.messages] == ["plain words", None]
        assert [one.payload_as(object) for one in await lead.pending()] == [17]
        again = await lead.acknowledge(holder, "dlv-2")
        assert again == Acknowledgement(1_793_529_120, duplicate=True)
        with pytest.raises(ConsumerFencedError):
            await lead.acknowledge(holder, "dlv-1")
        assert await lead.acknowledge(holder, "dlv-3") == Acknowledgement(1_794_000_000, duplicate=False)
        assert [one.id for one in (await lead.check(holder)).messages] == ["msg-e"]

        worker, holder = store.mailbox("8:worker"), Holder("run", "8", 5)
        delivery = await worker.check(holder)
        assert ([one.id for one in delivery.messages], delivery.replayed) == (["msg-h"], False)
        assert await worker.acknowledge(holder, "dlv-4") == Acknowledgement(1_794_000_000, duplicate=False)
        assert await worker.attach(source="run", subject="8") == Holder("run", "8", 6)

        assert [one.payload_as(str) for one in await store.mailbox("everybody").pending()] == ["bytes"]
        new = await store.mailbox("7:lead").send("new")
        assert [one.id for one in await lead.pending()] == [new]


def test_run_twice_it_changes_nothing(old: Path, capsys) -> None:
    """The second run finds version 41 and leaves every byte as it is (M17)."""
    assert main(["upgrade-deliveries", str(old)]) == 0
    first, digest = content(old), hashlib.sha256(old.read_bytes()).digest()
    assert main(["upgrade-deliveries", str(old)]) == 0
    assert "already: nothing was changed" in capsys.readouterr().err
    assert upgrade_deliveries(old) is False
    assert content(old) == first
    assert hashlib.sha256(old.read_bytes()).digest() == digest


def statements_of(monkeypatch, old: Path, fails_at: int | None) -> int:
    """Upgrade, and fail at one statement; how many were executed."""
    executed = 0
    right = upgrade._execute

    def execute(cursor, sql, many=None):
        nonlocal executed
        executed += 1
        if executed == fails_at:
            if many is not None:  # in the middle of it
                cursor.execute(sql, next(iter(many)))
            raise sqlite3.OperationalError("the disk is gone")
        return right(cursor, sql, many)

    monkeypatch.setattr(upgrade, "_execute", execute)
    try:
        upgrade_deliveries(old)
    except DatabaseError:
        assert fails_at is not None
    monkeypatch.setattr(upgrade, "_execute", right)
    return executed


def test_a_fault_at_any_statement_leaves_the_old_version(tmp_path: Path, monkeypatch) -> None:
    """Whichever statement fails, the file is as it was, its own program can go on, and the next run succeeds (M17)."""
    whole = tmp_path / "whole.db"
    make_old(whole)
    before = content(whole)
    count = statements_of(monkeypatch, whole, None)
    assert count > 25
    after = content(whole)
    for number in range(1, count + 1):
        path = tmp_path / f"{number}.db"
        make_old(path)
        assert statements_of(monkeypatch, path, number) == number
        assert content(path) == before
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE deliveries SET status = 'acknowledged', acknowledged_at = 1 WHERE id = 'dlv-3'")
            connection.execute(
                "UPDATE deliveries SET status = 'outstanding', acknowledged_at = NULL WHERE id = 'dlv-3'"
            )
        assert upgrade_deliveries(path) is True
        assert content(path) == after


KILLED = """
import os, signal, sys
from alkstore_sqlite import upgrade
right, executed = upgrade._execute, 0
def execute(cursor, sql, many=None):
    global executed
    executed += 1
    if executed == int(sys.argv[2]):
        if many is not None:
            cursor.execute(sql, next(iter(many)))
        os.kill(os.getpid(), signal.SIGKILL)
    return right(cursor, sql, many)
upgrade._execute = execute
upgrade.upgrade_deliveries(sys.argv[1])
"""


@pytest.mark.parametrize("at", [1, 12, 20, 24, 26, 28])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_kill_in_the_middle_leaves_the_old_version(old: Path, at: int, mode: str) -> None:
    """A process that is killed in the middle leaves version 40, and the next one takes it over (M17)."""
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    before = content(old)
    process = subprocess.run([sys.executable, "-c", KILLED, str(old), str(at)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert content(old) == before
    assert upgrade_deliveries(old) is True
    assert asked(old, "SELECT id FROM outstanding_deliveries") == [("dlv-3",)]


def test_it_is_one_way_and_says_so(old: Path, capsys) -> None:
    """A program that reads the status finds none; the command says that first, and takes no backup unasked (M18)."""
    assert main(["upgrade-deliveries", str(old)]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"{old}: this is one-way; no backup is taken\n")
    assert f"messages: 9 of 9\ndeliveries: 0 of 5\ndeliveries: 5 of 5\n{old} is at version 41" in told
    assert sorted(path.name for path in old.parent.iterdir() if "gate" not in path.name) == ["old.db"]
    with pytest.raises(sqlite3.OperationalError, match="no such table: deliveries"):
        asked(old, "SELECT status FROM deliveries")


def test_a_backup_leads_back(old: Path, capsys) -> None:
    """With --backup the old database is beside it, whole; put in its place, it can be taken over again (M18)."""
    before = content(old)
    assert main(["upgrade-deliveries", str(old), "--backup"]) == 0
    backup = old.with_name("old.db.40")
    assert f"a backup goes to {backup}" in capsys.readouterr().err
    assert content(backup) == before
    backup.replace(old)
    backup.write_text("of an earlier run")
    assert main(["upgrade-deliveries", str(old), "--backup"]) == 0
    assert backup.read_text() == "of an earlier run"
    assert content(old.with_name("old.db.40.1")) == before


async def test_a_file_that_is_in_use_already_keeps_what_it_has(old: Path) -> None:
    """Where a store has been opened on the file before, its jobs and its mail stay beside what is taken over."""
    async with SqliteStore.open(old) as store:
        await store.queue("emails").enqueue("kept")
        await store.mailbox("7:lead").send("sent before")
    assert upgrade_deliveries(old) is True
    async with SqliteStore.open(old) as store:
        assert (await store.queue("emails").claim_one("w")).job.payload_as(str) == "kept"
        lead = store.mailbox("7:lead")
        assert (await lead.check(Holder("run", "7", 2))).id == "dlv-3"
        assert [one.payload_as(object) for one in await lead.pending()] == ["sent before", 17]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("PRAGMA user_version = 39", "user_version 39"),
        ("PRAGMA user_version = 41", "user_version 41"),
        ("PRAGMA user_version = 0", "user_version 0"),
        ("ALTER TABLE deliveries RENAME COLUMN message_ids TO messages", "no message_ids"),
        ("ALTER TABLE messages ADD COLUMN note", "also has note, which would be lost"),
        ("DROP TABLE messages", "its table messages has no created_at, id"),
        ("UPDATE deliveries SET status = 'lost' WHERE id = 'dlv-1'", "'lost'"),
        ("UPDATE deliveries SET message_ids = 'msg-a' WHERE id = 'dlv-1'", "'msg-a'"),
        (
            "UPDATE messages SET run_id = iif(read, '7:lead', '7'), recipient = iif(read, 'x', 'lead:x')",
            "2 mailboxes would all be called '7:lead:x'",
        ),
        ("UPDATE messages SET run_id = '__alkstore_x' WHERE id = 'msg-a'", "alkstore keeps for itself"),
    ],
    ids=["older", "newer", "none", "column", "more", "table", "status", "members", "names", "reserved"],
)
def test_what_cannot_be_taken_over_is_left_alone(old: Path, capsys, change: str, told: str) -> None:
    """Any other file is refused with the reason, and nothing of it changes."""
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(change)
    before = content(old)
    assert main(["upgrade-deliveries", str(old)]) == 1
    assert told in capsys.readouterr().err
    assert content(old) == before


def test_no_file_is_made(tmp_path: Path, capsys) -> None:
    """A path with nothing there is an error, and stays so."""
    assert main(["upgrade-deliveries", str(tmp_path / "nothing.db")]) == 1
    assert "is no file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


MEASURED = """
import resource, sys, time
from alkstore_sqlite.upgrade import upgrade_deliveries
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
upgrade_deliveries(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Ten times the mail takes about the same memory: rows are moved one by one."""
    grown = []
    for count in (5_000, 50_000):
        path = tmp_path / f"{count}.db"
        messages = [(f"m{n}", "7", f"box {n % 50}", "t", '"' + "x" * 200 + '"', n, 1, n) for n in range(count)]
        deliveries = [
            (f"d{n}", "7", f"box {n % 50}", 1, json.dumps([f"m{n}"]), "acknowledged", n, n) for n in range(0, count, 10)
        ]
        make_old(path, messages, deliveries)
        measured = subprocess.run(
            [sys.executable, "-c", MEASURED, str(path)], check=True, capture_output=True, text=True
        )
        grown.append(int(measured.stdout))
    assert grown[1] < grown[0] + 12_000, grown  # of kilobytes; the rows themselves are fourteen thousand
