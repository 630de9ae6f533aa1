"""The database file: which path it is, how connections to it are opened, and whether it is still there."""

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alkstore_core.errors import DatabaseError

from alkstore_sqlite.failures import database_error, is_busy

_OLDEST = (3, 37, 0)
"""STRICT tables came with 3.37."""
_BUSY_SLICE_S = 0.01
"""How long SQLite itself waits for a foreign lock at a time; between slices a waiter can give up."""

_CHECKPOINT_PAGES = 1000
_WAL_KEPT_BYTES = 64 * 1024 * 1024
"""A WAL that grew beyond this, behind a slow reader, is cut back once it is empty."""

_log = logging.getLogger("alkstore.sqlite")


@dataclass(slots=True)
class Database:
    """One database file, and how this store talks to it.

    Attributes:
        path: absolute.
        synchronous: SQLite's pragma of that name.
        busy_timeout: how long a writer waits for its turn, in seconds.
        opened: which file it is, once the store is open.
    """

    path: str
    synchronous: str
    busy_timeout: float
    opened: tuple[int, int] | None = None

    def connect(
        self, factory: type[sqlite3.Connection] = sqlite3.Connection, *, checkpoints: bool = False
    ) -> sqlite3.Connection:
        """A new connection.

        Args:
            factory: its class.
            checkpoints: whether its commits copy a long WAL back into the database. Only for connections that commit
                while they hold the gate, so that never two checkpoint at the same moment.

        Raises:
            sqlite3.Error: the file cannot be opened.
            DatabaseError: it is not the one that was opened first.
        """
        deadline = time.monotonic() + self.busy_timeout
        while True:
            connection = sqlite3.connect(
                self.path,
                timeout=_BUSY_SLICE_S,
                isolation_level=None,
                check_same_thread=False,  # opened and closed by one thread, used by another; never by two at once
                cached_statements=256,
                factory=factory,
                uri=False,
            )
            try:
                self._configure(connection, checkpoints=checkpoints)
            except BaseException as error:
                connection.close()
                # While one process recovers the log that a killed one left, the others find it locked.
                if isinstance(error, sqlite3.Error) and is_busy(error) and time.monotonic() < deadline:
                    continue
                raise
            return connection

    def _configure(self, connection: sqlite3.Connection, *, checkpoints: bool) -> None:
        # Before the first read: SQLite would read the old file's log into another file at the path, and write it
        # there when the connection closes.
        self.check()
        cursor = sqlite3.Cursor(connection)
        cursor.execute(f"PRAGMA synchronous = {self.synchronous}")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES if checkpoints else 0}")
        cursor.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
        cursor.close()

    def failed(self, error: sqlite3.Error | OSError) -> DatabaseError:
        """The error to raise from `error`."""
        return database_error(error, self.path)

    def too_busy(self, cause: sqlite3.Error | None = None) -> DatabaseError:
        """The error for a writer that waited for its turn in vain, and what SQLite said, if it was asked."""
        error = DatabaseError(
            f"{self.path}: the writer was taken for {self.busy_timeout:g} s by another transaction, of this process or "
            "another: end it sooner, or raise busy_timeout"
        )
        error.__cause__ = cause
        return error

    def identity(self) -> tuple[int, int] | None:
        """Which file stands at the path now, or None where there is none. It is looked at and not opened."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - once a commit, and a Path costs more than the call
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise DatabaseError if the file at the path is not the one that the store opened."""
        if self.opened is not None and self.identity() != self.opened:
            raise DatabaseError(
                f"{self.path}: the file was deleted or replaced while the store was open, so what is written no longer "
                "goes there: close the store and open another"
            )


def begin_immediate(
    cursor: sqlite3.Cursor, deadline: float, meanwhile: Callable[[sqlite3.Error], object] = lambda _: None
) -> None:
    """Begin a writing transaction, waiting for foreign writers until `deadline` on the monotonic clock.

    The wait is sliced, since SQLite's own cannot be interrupted; `meanwhile` is called between the slices, with what
    SQLite says.

    Raises:
        sqlite3.OperationalError: the deadline passed.
    """
    while True:
        try:
            sqlite3.Cursor.execute(cursor, "BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            meanwhile(error)
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        else:
            return


def checked_path(path: object) -> str:
    """The absolute form of `path`, a plain file path.

    Raises:
        DatabaseError: not a path, empty, ``:memory:``, a folder, or in a folder that does not exist.
    """
    if not isinstance(path, str | os.PathLike):
        raise DatabaseError(f"the path of a SQLite database is a str or Path, not {type(path).__name__}: {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise DatabaseError(f"the path of a SQLite database is text, not bytes: {text!r}")
    if not text or text == ":memory:":
        raise DatabaseError(f"{text!r} is no file: give the path of a file, or use alkstore-mem for a store in memory")
    if "\0" in text:
        raise DatabaseError(f"the path {text!r} has a NUL: remove it")
    # Absolute before connecting: some builds of SQLite read a leading "file:" as a URI even when told not to.
    absolute = Path(text).absolute()
    if absolute.is_dir():
        raise DatabaseError(f"{absolute} is a folder: give the path of a file in it")
    if not absolute.parent.is_dir():
        raise DatabaseError(f"{absolute}: its folder does not exist: make it first")
    return str(absolute)


def checked_library() -> None:
    """Check that SQLite is new enough, and say which it is where two processes may checkpoint at once.

    Raises:
        DatabaseError: older than 3.37.
    """
    version = sqlite3.sqlite_version_info
    if version < _OLDEST:
        raise DatabaseError(
            f"SQLite {sqlite3.sqlite_version} is too old: alkstore needs 3.37 or newer, which Python 3.11 from any "
            "current distribution brings"
        )
    if (3, 7, 0) <= version <= (3, 51, 2) and version not in ((3, 44, 6), (3, 50, 7)):
        _log_checkpoint_fault(sqlite3.sqlite_version)


@cache
def _log_checkpoint_fault(version: str) -> None:
    """Say it once in a process."""
    _log.info(
        "SQLite %s can damage a WAL database when two connections checkpoint at the same moment; alkstore checkpoints "
        "only while it holds the gate, so keep other programs from checkpointing this file",
        version,
    )
