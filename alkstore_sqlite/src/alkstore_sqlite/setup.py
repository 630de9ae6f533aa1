"""Opening a database file: its connection, its gate and its schema, off the event loop."""

import asyncio
import contextlib
import sqlite3
import threading
import time

from alkstore_core.errors import AlkstoreError, DatabaseError

from alkstore_sqlite.database import Database
from alkstore_sqlite.failures import is_busy
from alkstore_sqlite.gate import Gate
from alkstore_sqlite.migrations import is_standing, known_migrations, migrate, refuse_newer, restore, schema_version


class Setup:
    """One attempt at opening; `run` leaves its results here, and `undo` gives them up."""

    gate: Gate
    connection: sqlite3.Connection

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Open, check and migrate.

        Raises:
            DatabaseError: it cannot be opened, is no database, is read-only, or is newer than this package.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                self._open()
            except BaseException as error:
                loop.call_soon_threadsafe(done.set_exception, error)
            else:
                loop.call_soon_threadsafe(done.set_result, None)

        # A thread of its own: the loop's executor would keep one for ever.
        thread = threading.Thread(target=work, name="alkstore-sqlite-setup", daemon=True)
        thread.start()
        try:
            await done
        finally:
            thread.join()

    def undo(self) -> None:
        """Close whatever was opened."""
        with contextlib.suppress(AttributeError, sqlite3.Error):
            self.connection.close()
        with contextlib.suppress(AttributeError):
            self.gate.close()

    def _open(self) -> None:
        database = self._database
        deadline = time.monotonic() + database.busy_timeout
        try:
            current = self._is_current()
            self.gate = Gate(database.path)
            if current:
                # Nothing to change, so nothing to wait for: not even for a long transaction of another process.
                self.connection = database.connect(checkpoints=True)
                database.opened = database.identity()
                return
            if not self.gate.enter(deadline):
                raise DatabaseError(
                    f"{database.path}: other processes kept it locked for {database.busy_timeout:g} s while it was to "
                    "be opened: try again, or raise busy_timeout"
                )
            try:
                self._prepare(deadline)
            finally:
                self.gate.leave()
            database.opened = database.identity()
        except AlkstoreError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise database.failed(error) from error

    def _is_current(self) -> bool:
        """Whether the file is as this package leaves it.

        A newer schema is refused here, before anything of it, the sidecar files included, is touched (X2).
        """
        if self._database.identity() is None:
            return False
        connection = self._database.connect()
        try:
            cursor = connection.cursor()
            version = schema_version(cursor)
            refuse_newer(version, self._database.path, known_migrations())
            mode: str = cursor.execute("PRAGMA journal_mode").fetchone()[0]
            return mode == "wal" and version == known_migrations()[-1].version and is_standing(cursor)
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            raise
        finally:
            connection.close()

    def _prepare(self, deadline: float) -> None:
        database = self._database
        self.connection = database.connect(checkpoints=True)
        while True:
            try:
                cursor = self.connection.cursor()
                mode: str = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise DatabaseError(
                        f"{database.path}: its journal mode stays {mode!r} and alkstore needs WAL: the file or its "
                        "folder may be read-only, or on a network file system"
                    )
                migrate(cursor, database.path, known_migrations())
                restore(cursor)
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
