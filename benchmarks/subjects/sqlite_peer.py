"""What the peers on SQLite have in common: their calls block."""

import asyncio
import json
import threading
from abc import abstractmethod
from collections.abc import Callable

from benchmarks.subject import Seen, Subject, payload


def body(number: int) -> str:
    """The payload, encoded."""
    return json.dumps(payload(number))


class SqlitePeer(Subject):
    """A peer with a blocking API."""

    blocking = True
    most_jobs = 4000

    @property
    def path(self) -> str:
        """Its database file."""
        return str(self.place.folder / "peer.db")

    async def close(self) -> None:
        pass

    @abstractmethod
    def take(self) -> int | None:
        """Take the next job, and acknowledge it: its number, or None if there is none."""

    async def drain(self, count: int, seconds: float) -> int:
        done, end = 0, asyncio.get_running_loop().time() + seconds
        while done < count and asyncio.get_running_loop().time() < end and self.take() is not None:
            done += 1
        return done

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        stopped = threading.Event()
        ready()
        try:
            await asyncio.to_thread(self.loop, seen, stopped)
        finally:
            stopped.set()

    def loop(self, seen: Seen, stopped: threading.Event) -> None:
        """Take jobs one after the other, until stopped."""
        raise NotImplementedError
