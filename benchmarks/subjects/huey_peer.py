"""huey on SQLite, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from huey import SqliteHuey

from benchmarks.subject import Seen, Subject, payload


class Huey(Subject):
    """A producer, and a consumer of one thread."""

    blocking = True
    most_jobs = 4000
    pause = (0.02, 0.25)  # its consumer polls every 0.1 s and backs off

    async def open(self) -> None:
        self.seen: Callable[[int], object] = lambda _: None
        self.huey: Any = SqliteHuey("bench", filename=str(self.place.folder / "peer.db"))

        def no_op(number: int, **_: object) -> None:
            self.seen(number)

        self.task: Any = self.huey.task()(no_op)

    async def close(self) -> None:
        self.huey.storage.close()

    def settings(self) -> str:
        return "WAL, synchronous=FULL (its default); consumer of one thread; a job leaves the table when it is taken"

    def put(self, number: int) -> None:
        self.task(**payload(number))

    async def drain(self, count: int, seconds: float) -> int:
        done, finished = 0, threading.Event()

        def seen(_: int) -> None:
            nonlocal done
            done += 1
            if done >= count:
                finished.set()

        self.seen = seen
        consumer = self.huey.create_consumer(workers=1, periodic=False)
        consumer.start()
        await asyncio.to_thread(finished.wait, seconds)
        self.seen = lambda _: None
        return min(done, count)

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        self.seen = seen
        self.huey.create_consumer(workers=1, periodic=False).start()
        ready()
        await asyncio.Event().wait()
