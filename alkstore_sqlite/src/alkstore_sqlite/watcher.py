"""The watcher: one thread per store that notices what other processes commit (N2, N5, N7).

It polls ``PRAGMA data_version``, which changes with every commit of another connection, and then compares the stamps of
the topics that this store listens to with those it saw last. While nobody listens it sleeps.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.wakes import Subscription, WakeHub

from alkstore_sqlite.database import Database
from alkstore_sqlite.failures import is_busy
from alkstore_sqlite.notify import read_stamps
from alkstore_sqlite.operations import drive

_LOOK_S = 0.25
"""How often the path is looked at, whether the file is still there."""


_PATIENCE_S = 2.0
"""For how long a look may fail, each time on a new connection, before the watcher gives up."""


class Watcher:
    """Feeds a hub with other processes' wakes."""

    def __init__(self, database: Database, hub: WakeHub, own_stamps: dict[str, int], poll_interval: float) -> None:
        self._database = database
        self._hub = hub
        self._own = own_stamps
        self._poll_interval = poll_interval
        self._loop = asyncio.get_running_loop()
        self._seen: dict[str, int | None] = {}
        self._version = -1
        self._registrations: deque[tuple[str, asyncio.Future[Subscription]]] = deque()
        self._joining: dict[asyncio.Future[Subscription], str] = {}
        self._attention = threading.Event()
        self._closing = False
        self.failure: DatabaseError | None = None
        """Why it died, if it did."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="alkstore-sqlite-watcher", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    async def register(self, topic: str) -> Subscription:
        """A subscription that hears what is committed from now on.

        Raises:
            DatabaseError: the watcher has died, and why.
        """
        future: asyncio.Future[Subscription] = self._loop.create_future()
        self._registrations.append((topic, future))
        self._attention.set()
        if self._ended.done():
            self._refuse()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise

    async def close(self) -> None:
        """End the thread."""
        self.forget()
        await self._ended
        self._thread.join()

    def forget(self) -> None:
        """End the thread without waiting for it."""
        self._closing = True
        self._attention.set()

    # the thread

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        next_look = 0.0
        failing_since: float | None = None
        try:
            while not self._closing:
                try:
                    if connection is None:
                        connection = self._database.connect()
                        self._version = -1
                    self._poll(connection.cursor())
                    failing_since = None
                except sqlite3.OperationalError as error:
                    # Busy: look again, and compare with the version seen last. Anything else: on a new connection,
                    # and not for ever, since who listens would wait in silence (N5).
                    if not is_busy(error):
                        failing_since = time.monotonic() if failing_since is None else failing_since
                        if time.monotonic() - failing_since > _PATIENCE_S:
                            raise
                        if connection is not None:
                            connection.close()
                            connection = None
                if (now := time.monotonic()) >= next_look:
                    next_look = now + _LOOK_S
                    self._database.check()
                self._attention.wait(self._poll_interval if self._is_needed() else None)
                self._attention.clear()
        except sqlite3.Error as error:
            self._die(self._database.failed(error))
        except DatabaseError as error:
            self._die(error)
        except Exception as error:
            self._die(DatabaseError(f"the watcher of {self._database.path} failed: {error!r}"))
        finally:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
            self._post(self._end)

    def _is_needed(self) -> bool:
        return bool(self._registrations or self._joining or self._hub.topics())

    def _poll(self, cursor: sqlite3.Cursor) -> None:
        """Wake who is to be woken, then take in who wants to listen: what was committed before does not wake them."""
        version: int = cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            changed = self._changed(cursor)
            self._version = version
            if changed:
                self._post(self._hub.wake, changed)
        while self._registrations:
            topic, future = self._registrations[0]
            if topic not in self._seen:
                self._seen.update(drive(cursor, read_stamps((topic,))))
            self._joining[future] = topic
            self._registrations.popleft()
            self._post(self._take_in, topic, future)

    def _changed(self, cursor: sqlite3.Cursor) -> list[str]:
        # In this order: who has joined is in one of the two.
        joining = set(self._joining.copy().values())
        listened = self._hub.topics() | joining
        for topic in [topic for topic in self._seen if topic not in listened]:
            del self._seen[topic]
            self._own.pop(topic, None)
        latest = drive(cursor, read_stamps(self._seen))
        changed = [
            topic for topic, stamp in latest.items() if stamp != self._seen[topic] and stamp != self._own.get(topic)
        ]
        self._seen = latest
        return changed

    def _die(self, failure: DatabaseError) -> None:
        self.failure = failure
        self._post(self._hub.close)

    def _post(self, callback: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens any more
            self._loop.call_soon_threadsafe(callback, *arguments)

    # back on the loop

    def _take_in(self, topic: str, future: "asyncio.Future[Subscription]") -> None:
        if not future.done():
            future.set_result(self._hub.subscribe(topic))
        self._joining.pop(future, None)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        self._hub.close()  # whoever still listens would hear nothing more: the store may have been forgotten
        self._refuse()

    def _refuse(self) -> None:
        while self._registrations:
            future = self._registrations.popleft()[1]
            if not future.done():
                future.set_exception(self.failure or ClosedError("this store is closed: open another one"))
