"""persist-queue's SQLiteAckQueue, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import threading
from typing import Any

from persistqueue import Empty, SQLiteAckQueue

from benchmarks.subject import Seen, payload
from benchmarks.subjects.sqlite_peer import SqlitePeer


class PersistQueue(SqlitePeer):
    """One queue object for all threads of a process."""

    alone = "another process's put wakes no get()"

    async def open(self) -> None:
        self.queue: Any = SQLiteAckQueue(str(self.place.folder), multithreading=True)

    def settings(self) -> str:
        return "SQLiteAckQueue(multithreading=True), WAL, synchronous=FULL (SQLite's default), pickle"

    def put(self, number: int) -> None:
        self.queue.put(payload(number))

    def take(self) -> int | None:
        try:
            return self._take(lambda _: None, block=False)
        except Empty:
            return None

    def _take(self, seen: Seen, *, block: bool) -> int:
        message = self.queue.get(block=block, timeout=1 if block else None, raw=True)
        number = int(message["data"]["number"])
        seen(number)
        self.queue.ack(id=message["pqid"])
        return number

    def loop(self, seen: Seen, stopped: threading.Event) -> None:
        while not stopped.is_set():
            try:
                self._take(seen, block=True)
            except Empty:
                continue
