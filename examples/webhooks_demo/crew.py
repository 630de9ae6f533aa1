"""The workers: processes that are started, killed at random moments, and started again."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

SCRIPT: tuple[str, ...] = (str(Path(__file__).parents[1] / "webhooks_worker.py"),)
"""What a worker process runs."""


class WorkerEndedError(Exception):
    """A worker process ended that nobody had killed or stopped."""


class Crew:
    """Worker processes at work. Made by `hire`."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self.kills: dict[str, float] = {}
        """When each killed worker was killed, on the event loop's clock."""
        self._arguments = arguments
        self._processes: dict[str, Process] = {}
        self._ready: set[str] = set()
        self._changed = asyncio.Event()
        self._stopping = False

    async def keep_running(self, number: int) -> None:
        """Have worker `number` run until the crew stops, each time under a new name.

        Raises:
            WorkerEndedError: it ended by itself.
        """
        life = 0
        while not self._stopping:
            life += 1
            name = f"worker-{number}.{life}"
            command = [sys.executable, *SCRIPT, *self._arguments, name]
            async with await anyio.open_process(command, stderr=None) as process:
                self._processes[name] = process
                try:
                    assert process.stdout is not None
                    async for _ in process.stdout:  # all it ever says is that it is ready
                        self._ready.add(name)
                        self._tell()
                    status = await process.wait()
                finally:
                    del self._processes[name]
                    self._ready.discard(name)
            if not self._stopping and name not in self.kills:
                raise WorkerEndedError(f"{name} ended by itself with status {status}")

    async def all_ready(self, count: int) -> None:
        """Return once `count` workers are at work."""
        while len(self._ready) < count:
            await self._changed.wait()

    async def kill_one(self) -> None:
        """Kill one of those at work with SIGKILL, whichever it hits."""
        await self.all_ready(1)
        name = random.choice(sorted(self._ready))
        self._ready.discard(name)
        self.kills[name] = asyncio.get_running_loop().time()
        self._processes[name].kill()

    async def stop(self) -> None:
        """Let the workers finish what they have in hand, and end: their input ends."""
        self._stopping = True
        for process in tuple(self._processes.values()):
            assert process.stdin is not None
            await process.stdin.aclose()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def hire(count: int, *arguments: str) -> AsyncIterator[Crew]:
    """`count` workers at work, ended at the end; `arguments` are those of the script, up to the worker's name."""
    crew = Crew(arguments)
    async with anyio.create_task_group() as group:
        for number in range(1, count + 1):
            group.start_soon(crew.keep_running, number)
        await crew.all_ready(count)
        yield crew
        await crew.stop()
