"""The reader threads: reads run beside the writer, each on its own connection and snapshot."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from queue import SimpleQueue
from typing import Any

from alkstore_core.clock import Clock
from alkstore_core.errors import ClosedError

from alkstore_sqlite.commits import Build
from alkstore_sqlite.database import Database
from alkstore_sqlite.failures import is_busy
from alkstore_sqlite.operations import Scope, drive


class Readers:
    """A few threads with a connection each, fed from one queue."""

    def __init__(self, database: Database, clock: Clock, count: int) -> None:
        self._database = database
        self._scope = Scope(clock)  # reads wake nobody, so they can share one
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[tuple[Build, tuple[Any, ...], asyncio.Future[Any]] | None] = SimpleQueue()
        self._ended = [self._loop.create_future() for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._run, args=(ended,), name=f"alkstore-sqlite-reader-{number}", daemon=True)
            for number, ended in enumerate(self._ended)
        ]
        self._closed = False

    def start(self) -> None:
        """Begin to serve."""
        for thread in self._threads:
            thread.start()

    def submit(self, build: Build, arguments: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """Have a reading operation run; a future of what it returns."""
        if self._closed:
            raise ClosedError("this store is closed: open another one")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._incoming.put((build, arguments, future))
        return future

    async def close(self) -> None:
        """Finish what is queued, then end the threads."""
        self.forget()
        for thread, ended in zip(self._threads, self._ended, strict=True):
            await ended
            thread.join()

    def forget(self) -> None:
        """End the threads without waiting for them."""
        self._closed = True
        for _ in self._threads:
            self._incoming.put(None)

    def _run(self, ended: "asyncio.Future[None]") -> None:
        connection: sqlite3.Connection | None = None
        while (item := self._incoming.get()) is not None:
            build, arguments, future = item
            if future.cancelled():
                continue
            result: Any = None
            failure: BaseException | None = None
            try:
                if connection is None:
                    connection = self._database.connect()
                result = self._read(connection, build, arguments)
            except sqlite3.Error as error:
                failure = self._database.failed(error)
                failure.__cause__ = error
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
                    connection = None
            except BaseException as error:
                failure = error
            self._post(future, result, failure)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        self._post(ended, None, None)

    def _read(self, connection: sqlite3.Connection, build: Build, arguments: tuple[Any, ...]) -> Any:
        deadline = time.monotonic() + self._database.busy_timeout
        while True:
            try:
                return drive(connection.cursor(), build(self._scope, *arguments))
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise

    def _post(self, future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(_settle, future, result, failure)


def _settle(future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
