"""What SQLite's errors mean for a user (E1, E3)."""

import errno
import sqlite3

from alkstore_core.errors import DatabaseError

_SQLITE_BUSY_SNAPSHOT = 517

_ADVICE = (
    ("database is locked", "another process or connection keeps it locked: end its transaction, or raise busy_timeout"),
    ("database table is locked", "another connection of this process reads it in shared-cache mode: use separate ones"),
    ("file is not a database", "it is another kind of file, or encrypted: give the path of a SQLite database"),
    ("database disk image is malformed", "it is damaged: restore a backup, or use the sqlite3 shell's .recover"),
    ("attempt to write a readonly database", "the file or its folder cannot be written: check their permissions"),
    ("unable to open database file", "check that its folder exists and can be written"),
    ("database or disk is full", "free some space; nothing of this operation was stored"),
    ("no such table: alkstore_", "this is not the database of the store, or it was emptied: open the store on it"),
)


def database_error(error: sqlite3.Error | OSError, path: str) -> DatabaseError:
    """The error to raise, from `error`, for what happened to the database at `path`."""
    text = str(error)
    if getattr(error, "sqlite_errorcode", None) == _SQLITE_BUSY_SNAPSHOT:
        return DatabaseError(
            f"{path}: this transaction began with a read, and somebody has written since, so it cannot write any "
            "more: roll it back and run it again, opened with BEGIN IMMEDIATE"
        )
    if isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.EROFS:
        return DatabaseError(f"{path}: {text}: the file or its folder cannot be written: check their permissions")
    for sign, advice in _ADVICE:
        if sign in text:
            return DatabaseError(f"{path}: {text}: {advice}")
    return DatabaseError(f"{path}: {text}")


def is_full(error: sqlite3.Error) -> bool:
    """Whether there was no space left on the file system."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the lock, so that the same may work a little later."""
    return isinstance(error, sqlite3.OperationalError) and "is locked" in str(error)
