"""The gate: whose turn it is to write, among the processes on one database file.

SQLite's own busy handler polls, and starves: of six writers on one file one made nearly all commits. So each writing
transaction of alkstore holds an exclusive ``flock`` on a sidecar file, in two steps: `next`, held while waiting, and
`turn`, held while writing. Who has just written finds `next` taken by a waiter and queues behind it. The waits are
sliced, so that they end at a deadline, and a process that dies leaves nothing locked. SQLite's locks stay in force
underneath, for writers that know nothing of the gate.
"""

import contextlib
import fcntl
import os
import random
import time
import weakref
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.0002
"""How often the next in line looks whether its turn has come."""
_QUEUE_POLL_S = 0.001
"""How often the others look whether they are next, on average."""


class Gate:
    """One store's place at the gate of its database. Entered and left by one thread at a time."""

    def __init__(self, path: str) -> None:
        """Open the two sidecar files of the database at `path`; they are never deleted.

        They stand beside the file itself, as SQLite's own do, whatever links lead to it; and who may write the
        database may open them.

        Raises:
            OSError: they cannot be made.
        """
        self._files: list[int] = []
        path = os.path.realpath(path)
        try:
            for role in ("gate-next", "gate"):
                self._files.append(os.open(f"{path}-{role}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                with contextlib.suppress(OSError):  # there is no database yet, or the sidecar is somebody else's
                    _open_to_writers(self._files[-1], Path(path).stat().st_mode)
        except OSError:
            self.close()
            raise
        _gates.add(self)

    def enter(self, deadline: float, give_up: Callable[[], object] = lambda: None) -> bool:
        """Wait for this store's turn; whether it came before `deadline`, on the monotonic clock.

        Args:
            deadline: when to stop waiting.
            give_up: called between looks; whatever it raises ends the wait.
        """
        if self.try_enter():
            return True
        following, turn = self._files
        if not _locked(following):
            while not _locked(following, random.uniform(0.5, 1.5) * _QUEUE_POLL_S):
                give_up()
                if time.monotonic() >= deadline:
                    return False
        try:
            while not _locked(turn):
                give_up()
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
        finally:
            fcntl.flock(following, fcntl.LOCK_UN)
        return True

    def try_enter(self) -> bool:
        """Take the turn if nobody has it or waits for it; whether that was so."""
        following, turn = self._files
        if not _locked(following):
            return False
        entered = _locked(turn)
        fcntl.flock(following, fcntl.LOCK_UN)
        return entered

    def leave(self) -> None:
        """Let the next one write."""
        fcntl.flock(self._files[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up the place. Idempotent."""
        files, self._files = self._files, []
        for file in files:
            with contextlib.suppress(OSError):
                os.close(file)

    def __del__(self) -> None:
        self.close()


def _open_to_writers(file: int, mode: int) -> None:
    # Whoever can open it can lock it, so it is for those alone who may write the database.
    writers = mode & 0o222
    os.fchmod(file, writers | writers << 1)


def _locked(file: int, pause: float = 0.0) -> bool:
    if pause:
        time.sleep(pause)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


def _close_inherited() -> None:
    # An flock belongs to the open file, which a forked child shares: a child that outlives its parent would keep
    # the gate shut.
    for gate in list(_gates):
        gate.close()


os.register_at_fork(after_in_child=_close_inherited)
