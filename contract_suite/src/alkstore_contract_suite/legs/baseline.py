"""What there is while no store is open, so that a leg can tell what one left running."""

import threading
from pathlib import Path

from alkstore_core.testing import running_tasks

from alkstore_contract_suite.harness import Harness


def _open_files() -> int:
    """How many files and sockets this process has open; 0 where it cannot be asked."""
    files = Path("/proc/self/fd")
    return len(list(files.iterdir())) if files.exists() else 0


class Baseline:
    """The tasks, threads and files that there are while no store is open."""

    def __init__(self) -> None:
        self._tasks, self._threads, self._files = running_tasks(), set(threading.enumerate()), _open_files()

    @classmethod
    async def of(cls, harness: Harness) -> "Baseline":
        """Now, and after whatever the first store of a process leaves for good."""
        async with harness.open() as store, store.transaction() as tx:
            await tx.enqueue("warm", 1)
        return cls()

    def check(self) -> None:
        """Fail if there are more now."""
        assert running_tasks() - self._tasks == set()
        assert {thread for thread in threading.enumerate() if thread.is_alive()} - self._threads == set()
        assert _open_files() <= self._files
