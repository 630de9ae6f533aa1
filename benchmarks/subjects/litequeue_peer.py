"""litequeue, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import json
import threading
import time
from typing import Any

from litequeue import LiteQueue

from benchmarks.subject import BATCH, Seen
from benchmarks.subjects.sqlite_peer import SqlitePeer, body

_POLL_S = 0.01


class OnLitequeue(SqlitePeer):
    """Its queue, with the durability of the others."""

    async def open(self) -> None:
        self.queue: Any = LiteQueue(self.path)
        self.queue.conn.execute("PRAGMA synchronous = FULL")

    def settings(self) -> str:
        return "WAL, synchronous=FULL (set on its connection); pop() and done() in a loop, which polls every 10 ms"

    def put(self, number: int) -> None:
        self.queue.put(body(number))

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            with self.queue.transaction(mode="IMMEDIATE"):
                for number in range(begin, min(count, begin + BATCH)):
                    self.queue.put(body(number))

    def take(self) -> int | None:
        return self._take(lambda _: None)

    def _take(self, seen: Seen) -> int | None:
        message = self.queue.pop()
        if message is None:
            return None
        number = int(json.loads(message.data)["number"])
        seen(number)
        self.queue.done(message.message_id, claim_id=message.claim_id)
        return number

    def loop(self, seen: Seen, stopped: threading.Event) -> None:
        while not stopped.is_set():
            if self._take(seen) is None:
                time.sleep(_POLL_S)
