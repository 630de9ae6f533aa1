"""Wrong paths and bad files: a clear error, nothing lost, and the store works afterwards (E1, E3, X2, N5)."""

import asyncio
import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alkstore_core import open_store
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_sqlite import SqliteStore


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "is no file"),
        (":memory:", "alkstore-mem"),
        ("no/such/folder/app.db", "folder does not exist"),
        (".", "is a folder"),
        ("a\0b", "NUL"),
        (b"app.db", "bytes"),
        (7, "str or Path"),
    ],
)
def test_a_path_that_names_no_file_is_refused_at_once(given: object, said: str) -> None:
    """Before anything is opened, with what was wrong."""
    with pytest.raises(DatabaseError, match=said):
        SqliteStore.open(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["file:odd?mode=memory", "with ?question", "ünïcödé", "%41", "a b", "-dash"])
async def test_odd_names_are_plain_files(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No path is read as a URI: what was stored under a name is found under it again, in a file of that name."""
    monkeypatch.chdir(tmp_path)
    async with SqliteStore.open(name) as store:
        await store.queue("q").enqueue(1)
    assert (tmp_path / name).is_file()
    async with SqliteStore.open(tmp_path / name) as store:
        assert await store.queue("q").claim_one("w") is not None


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:app.db", "sqlite://host/app.db"])
def test_a_wrong_url_says_how_it_is_written(url: str) -> None:
    """Three slashes for a relative path, four for an absolute one."""
    with pytest.raises(DatabaseError, match="sqlite:///relative"):
        open_store(url)


async def test_a_url_opens_the_file_that_it_names(path: Path) -> None:
    """An absolute URL and the path are the same store."""
    async with open_store(f"sqlite:///{path}") as store, SqliteStore.open(path) as other:
        job_id = await store.queue("q").enqueue(1)
        assert await other.queue("q").get_job(job_id) is not None


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("synchronous", "SOMETIMES", ValueError),
        ("synchronous", 1, ValueError),
        ("busy_timeout", 0, ValueError),
        ("busy_timeout", "5", TypeError),
        ("busy_timeout", float("nan"), ValueError),
        ("poll_interval", -1, ValueError),
        ("readers", 0, ValueError),
        ("readers", 2.0, TypeError),
        ("reader", 2, TypeError),
    ],
)
def test_a_wrong_option_is_refused_at_once(path: Path, option: str, value: object, error: type[Exception]) -> None:
    """Options are checked before anything is opened."""
    with pytest.raises(error, match=option):
        SqliteStore.open(path, **{option: value})  # type: ignore[arg-type]
    assert not path.exists()


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """Somebody's text file gives a clear error and keeps its text."""
    text = "Dear diary, " * 400
    path.write_text(text)
    with pytest.raises(DatabaseError, match="not a database"):
        await SqliteStore.open(path)
    assert path.read_text() == text
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208 - the names are all


async def test_a_newer_schema_is_refused_untouched(path: Path) -> None:
    """A file from a newer alkstore is not migrated, not switched to WAL, and gets no file beside it."""
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE alkstore_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    connection.execute("INSERT INTO alkstore_meta VALUES ('schema_version', 99)")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseError, match="schema version 99"):
        await SqliteStore.open(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("alkstore_meta",)]
    connection.close()
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208


async def test_a_store_that_is_overtaken_by_a_newer_schema_steps_down(store: SqliteStore, path: Path) -> None:
    """While it runs, a newer alkstore migrates the file: its writes are refused and say so, and nothing is written."""
    await store.queue("q").enqueue("before")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE alkstore_new (id)")
    connection.execute("UPDATE alkstore_meta SET value = 99 WHERE key = 'schema_version'")
    connection.commit()
    with pytest.raises(DatabaseError, match="schema version 99"):
        await store.queue("q").enqueue("after")
    assert connection.execute("SELECT count(*) FROM alkstore_jobs").fetchone() == (1,)
    connection.close()


def run_in_mount(folder: Path, size: str, steps: str, script: str) -> subprocess.CompletedProcess[str] | None:
    """Run `script` where `folder` is a small file system of its own, after the shell's `steps`.

    The mount lives in a namespace that ends with the child; not only root may have one. None where the system gives
    one to nobody, or only to root: then the test has another way to the same fault.
    """
    folder.mkdir()
    file = folder.parent / "script.py"
    file.write_text(script)
    shell = f"mount -t tmpfs -o size={size} tmpfs '{folder}' || exit 99; set -e; {steps}"
    python = f"'{sys.executable}' '{file}' '{folder}'"
    flags = "-m" if os.geteuid() == 0 else "-rm"
    ended = subprocess.run(
        ["unshare", flags, "sh", "-c", shell.replace("PYTHON", python)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    refused = ended.returncode == 99 or ended.stderr.startswith("unshare:")
    return None if refused else ended


def run_in_folder(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` on an ordinary folder."""
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )


_LIMITED = """
import builtins, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, resource.RLIM_INFINITY))
plain_open = open
def open(*arguments):  # what frees space on a small file system lifts the limit here
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return plain_open(*arguments)
"""

_OPEN = """
import asyncio, sys
from alkstore_core.errors import DatabaseError
from alkstore_sqlite import SqliteStore
async def main(name):
    try:
        async with SqliteStore.open(sys.argv[1] + name) as store:
            await store.queue("q").enqueue(1)
    except DatabaseError as error:
        print(error)
    else:
        print("stored")
asyncio.run(main("/app.db"))
asyncio.run(main("/new.db"))
"""


async def test_a_read_only_place_is_told_with_what_to_do(tmp_path: Path) -> None:
    """An old file and a new one on a file system that cannot be written: both fail and name permissions."""
    folder = tmp_path / "small"
    steps = f"PYTHON >/dev/null; mount -o remount,ro tmpfs '{folder}'; PYTHON"
    ended = await asyncio.to_thread(run_in_mount, folder, "4m", steps, _OPEN)
    if ended is None:  # and so not root, whom permissions do bind
        for mode in (0o755, 0o555):
            folder.chmod(mode)
            for file in folder.iterdir():
                file.chmod(mode & 0o666)
            ended = await asyncio.to_thread(run_in_folder, folder, _OPEN)
        folder.chmod(0o755)
    assert ended is not None
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "check their permissions" in line or "can be written" in line, line


async def test_a_replaced_file_ends_receivers_and_writes_say_so(path: Path, tmp_path: Path) -> None:
    """Another file at the path: waiting receivers end within two seconds, and nothing is acknowledged any more (N5)."""
    async with SqliteStore.open(tmp_path / "new.db"):
        pass
    async with SqliteStore.open(path) as store:
        receiver = await store.listen("c")
        async with store.stream("s").subscribe("me") as events:
            await store.queue("q").enqueue("before")
            waiting = asyncio.create_task(receiver.recv())
            following = asyncio.create_task(events.recv())
            (tmp_path / "new.db").replace(path)
            async with asyncio.timeout(2):
                assert await waiting is None
                # It ends, or says why when it was just about to read; and then it has ended.
                (outcome,) = await asyncio.gather(following, return_exceptions=True)
                assert outcome is None or "replaced" in str(outcome)
                assert await events.recv() is None
        with pytest.raises(ClosedError):
            await receiver.try_recv()
        for refused in (store.queue("q").enqueue("after"), store.listen("d"), begun(store)):
            with pytest.raises(DatabaseError, match="replaced"):
                await refused
    # SQLite would read the old file's log into the new one: whoever replaces a database takes its log away too.
    for beside in path.parent.glob("app.db-*"):
        beside.unlink()
    async with SqliteStore.open(path) as store:
        assert await store.queue("q").claim_one("w") is None


async def begun(store: SqliteStore) -> None:
    await store.begin_tx()


async def test_a_deleted_file_is_noticed_by_a_commit(path: Path) -> None:
    """A transaction whose file is gone is not reported as committed."""
    async with SqliteStore.open(path) as store:
        tx = await store.begin_tx()
        await tx.enqueue("q", 1)
        path.unlink()
        with pytest.raises(DatabaseError, match="deleted or replaced"):
            await tx.commit()


_FULL = """
import asyncio, json, sys
from alkstore_core.errors import DatabaseError
from alkstore_sqlite import SqliteStore
async def main():
    folder = sys.argv[1]
    stored, errors, tx_error = [], [], None
    async with SqliteStore.open(folder + "/app.db") as store:
        queue = store.queue("q")
        while not errors:
            results = await asyncio.gather(*(queue.enqueue("x" * 4000) for _ in range(8)), return_exceptions=True)
            stored += [r for r in results if isinstance(r, int)]
            errors += [str(r) for r in results if isinstance(r, DatabaseError)]
        try:
            async with store.transaction() as tx:
                await tx.connection.execute("CREATE TABLE big AS SELECT randomblob(400000) AS b")
                ghost = await tx.enqueue("q", "ghost")
        except Exception as error:
            tx_error = type(error).__name__
        # Some space again: everything works, and everything that was acknowledged is there.
        with open(folder + "/ballast", "w"): pass
        claimed = []
        while handles := await queue.claim_batch("w", 20):
            claimed += [handle.job.id for handle in handles]
            assert all([await handle.ack() for handle in handles])
        again = await queue.enqueue("again")
    print(json.dumps({"stored": sorted(stored), "claimed": sorted(claimed), "error": errors[0], "tx": tx_error,
                      "again": again}))
asyncio.run(main())
"""


async def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """On a file system of two megabytes the store says that it is full, and works when there is space again."""
    folder = tmp_path / "small"
    steps = f"head -c 1300000 /dev/zero > '{folder}/ballast'; PYTHON"
    ended = await asyncio.to_thread(run_in_mount, folder, "2m", steps, _FULL)
    if ended is None:  # no file may grow beyond some size: SQLite says so in other words
        ended = await asyncio.to_thread(run_in_folder, folder, _LIMITED + _FULL)
        assert ended.returncode == 0, ended.stderr
        result = json.loads(ended.stdout)
        assert "disk I/O error" in result["error"]
    else:
        assert ended.returncode == 0, ended.stderr
        result = json.loads(ended.stdout)
        assert "full" in result["error"]
        assert "nothing of this operation was stored" in result["error"]
    assert result["tx"] is not None
    assert result["claimed"] == result["stored"]
    assert result["again"] > max(result["stored"])


async def test_a_link_leads_to_the_same_gate(tmp_path: Path) -> None:
    """Whoever opens the file by another name waits for the same turn."""
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    async with SqliteStore.open(real) as store:
        link.symlink_to(real)
        async with SqliteStore.open(link, busy_timeout=0.1) as other, store.transaction() as tx:
            await tx.enqueue("q", 1)
            with pytest.raises(DatabaseError, match="the writer was taken"):
                await other.queue("q").enqueue(2)
    assert {file.name for file in tmp_path.iterdir()} == {"real.db", "link.db", "real.db-gate", "real.db-gate-next"}


async def test_who_may_write_the_database_may_use_its_gate(tmp_path: Path) -> None:
    """And nobody else, who could lock it: the sidecar files follow the database each time that it is opened."""
    path = tmp_path / "app.db"
    async with SqliteStore.open(path):
        pass
    for mode in (0o666, 0o600, 0o664):
        path.chmod(mode)
        async with SqliteStore.open(path):
            pass
        gates = [tmp_path / "app.db-gate", tmp_path / "app.db-gate-next"]
        assert {stat.S_IMODE(gate.stat().st_mode) for gate in gates} == {mode & ~0o004 if mode == 0o664 else mode}
