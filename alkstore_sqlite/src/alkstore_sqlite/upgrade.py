"""Taking over a database of the older design, in which deliveries had a status (M16 to M19).

Its messages and deliveries move into alkstore's own tables, in one transaction, and `SqliteStore` opens the file
afterwards. The mailbox of ``(run_id, recipient)`` is called ``run_id:recipient`` (without a run, ``recipient``). Its
consumer has the source ``run``, the run's id as its subject, and the greatest generation of its deliveries.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from alkstore_core.errors import AlkstoreError, DatabaseError
from alkstore_core.names import shared_name

from alkstore_sqlite.database import begin_immediate, checked_library, checked_path
from alkstore_sqlite.failures import database_error
from alkstore_sqlite.gate import Gate
from alkstore_sqlite.migrations import is_standing, known_migrations, refuse_newer, restoring, schema_version
from alkstore_sqlite.statements import Statements

OLD_VERSION, NEW_VERSION = 40, 41
"""The ``user_version`` of the older design, and of a file that was taken over. `SqliteStore` looks at neither."""

SQL = Statements("upgrade")
_COLUMNS = {
    "messages": {"id", "run_id", "recipient", "type", "payload", "sequence", "read", "created_at"},
    "deliveries": {
        "id",
        "run_id",
        "mailbox_handle",
        "consumer_generation",
        "message_ids",
        "status",
        "created_at",
        "acknowledged_at",
    },
}
_PATIENCE_S = 30.0
_REPORTED_ROWS = 10_000

Progress = Callable[[str, int, int], None]
"""Told what is being taken over, how many of it are done, and how many there are."""


def upgrade_deliveries(
    path: str | os.PathLike[str], *, backup: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> bool:
    """Bring the database at `path` from version 40 to 41; False where it is there already, and nothing changes (M17).

    It is one-way: a program that reads ``deliveries.status`` cannot use the file afterwards (M18). All of it is one
    transaction, so that a fault anywhere leaves version 40 as it was.

    Args:
        path: the database file; nobody else writes to it meanwhile.
        backup: where to copy the database to first; nothing may be there yet.
        progress: called now and then.

    Raises:
        DatabaseError: it is no such database, cannot be written, stays locked, or holds what cannot be taken over.
    """
    checked_library()
    file = checked_path(path)
    if not Path(file).is_file():
        raise DatabaseError(f"{file} is no file: give the path of the database to take over")
    if backup is not None and Path(backup).exists():
        raise DatabaseError(f"{os.fspath(backup)} exists: name a file for the backup that is not there yet")
    try:
        with closing(_connect(file)) as connection:
            return _upgrade(connection, file, backup, progress or _say_nothing)
    except AlkstoreError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise database_error(error, file) from error


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0.01, isolation_level=None, uri=False)


def _upgrade(
    connection: sqlite3.Connection, path: str, backup: str | os.PathLike[str] | None, progress: Progress
) -> bool:
    cursor = connection.cursor()
    if _is_new(cursor, path):
        return False
    gate, deadline = Gate(path), time.monotonic() + _PATIENCE_S
    try:
        if not gate.enter(deadline):
            raise DatabaseError(f"{path}: other processes kept it busy for {_PATIENCE_S:g} s: close their stores first")
        begin_immediate(cursor, deadline)
        try:
            done = not _is_new(cursor, path)  # somebody may have been faster
            if done:
                if backup is not None:
                    _copy(path, backup)
                _take_over(cursor, path, progress)
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                sqlite3.Cursor(connection).execute("ROLLBACK")
            raise
    finally:
        connection.close()  # behind the gate: the last connection to a database checkpoints when it closes
        gate.close()
    return done


def _is_new(cursor: sqlite3.Cursor, path: str) -> bool:
    """Whether the file is at the new version; False if it is at the old one.

    Raises:
        DatabaseError: it is at neither, or it does not have the tables of its version.
    """
    version: int = cursor.execute("PRAGMA user_version").fetchone()[0]
    if version == NEW_VERSION and schema_version(cursor) >= 2:
        return True
    if version != OLD_VERSION:
        raise DatabaseError(
            f"{path} has user_version {version}, and only version {OLD_VERSION} can be taken over: it is not a "
            "database of that design, or one of an earlier version of it, which its own program upgrades"
        )
    for table, columns in _COLUMNS.items():
        found = {row[1] for row in cursor.execute(f"PRAGMA table_info({table})")}
        if missing := sorted(columns - found):
            raise DatabaseError(f"{path}: its table {table} has no {', '.join(missing)}: it cannot be taken over")
        if more := sorted(found - columns):
            raise DatabaseError(
                f"{path}: its table {table} also has {', '.join(more)}, which would be lost: copy that to a table of "
                "yours, drop it there, and try again"
            )
    return False


def _copy(path: str, backup: str | os.PathLike[str]) -> None:
    # Another connection: this one is writing, and what it has not written yet is what the copy is of.
    with closing(_connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)


def _take_over(cursor: sqlite3.Cursor, path: str, progress: Progress) -> None:
    migrations = known_migrations()
    version = schema_version(cursor)
    refuse_newer(version, path, migrations)
    statements = [text for step in migrations if step.version > version for text in step.statements()]
    for statement in statements:
        _execute(cursor, statement)
    if not is_standing(cursor):
        for statement in restoring():
            _execute(cursor, statement)
    _check(cursor, path)
    _move(cursor, "messages", SQL.count_messages, SQL.old_messages, SQL.take_message, progress)
    _move(cursor, "deliveries", SQL.count_deliveries, SQL.old_deliveries, SQL.take_delivery, progress)
    _execute(cursor, SQL.take_consumers)
    for statement in (SQL.drop_deliveries, SQL.drop_messages, SQL.number_it):
        _execute(cursor, statement)


def _check(cursor: sqlite3.Cursor, path: str) -> None:
    for mailbox, count in _execute(cursor, SQL.mailboxes):
        if count > 1:
            raise DatabaseError(
                f"{path}: {count} mailboxes would all be called {mailbox!r}: rename a run or a recipient, and try again"
            )
        shared_name("mailbox", mailbox)
    for id, status, message_ids in _execute(cursor, SQL.strange_delivery):
        raise DatabaseError(
            f"{path}: the delivery {id!r} has the status {status!r} and the messages {message_ids!r}, and cannot be "
            "taken over: mend it with the program that made it"
        )


def _move(cursor: sqlite3.Cursor, what: str, counting: str, reading: str, writing: str, progress: Progress) -> None:
    """Move rows one by one, so that it costs the same memory for however many, and can be watched."""
    total: int = _execute(cursor, counting).fetchone()[0]
    progress(what, 0, total)
    with closing(cursor.connection.cursor()) as source:
        _execute(cursor, writing, _reported(_execute(source, reading), what, total, progress))


def _reported(rows: Iterable[Any], what: str, total: int, progress: Progress) -> Iterator[Any]:
    number = 0
    for number, row in enumerate(rows, 1):
        if number % _REPORTED_ROWS == 0:
            progress(what, number, total)
        yield row
    progress(what, number, total)


def _execute(cursor: sqlite3.Cursor, sql: str, many: Iterable[Any] | None = None) -> sqlite3.Cursor:
    """Execute one statement of the transaction; every one of them goes through here."""
    return cursor.execute(sql) if many is None else cursor.executemany(sql, many)


def _say_nothing(what: str, done: int, total: int) -> None:
    """Progress for nobody."""
