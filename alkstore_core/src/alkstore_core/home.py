"""The event loop and the process that a store belongs to (T15)."""

import asyncio
import os

from alkstore_core.errors import DatabaseError


class _Process:
    """The running process, as far as it matters here.

    Attributes:
        forks: how often it is a fork of one that had imported alkstore. Cheaper to compare than the process id, and
            a forked child that forks again is told apart too.
    """

    forks = 0


def _forked() -> None:
    _Process.forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Home:
    """Where something was made, on a running event loop: it must not be used elsewhere."""

    __slots__ = ("_forks", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        """The event loop."""
        self._forks = _Process.forks

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process that it was made in."""
        return self._forks != _Process.forks

    def check(self) -> None:
        """Return if this is home.

        Raises:
            DatabaseError: this is a forked child, another event loop, or no event loop (T15).
        """
        if self._forks != _Process.forks:
            raise DatabaseError(
                "this store was opened before the process forked: open one in the child, the parent keeps its own"
            )
        try:
            if asyncio.get_running_loop() is self.loop:
                return
        except RuntimeError:  # no loop runs here, which is another place too
            pass
        raise DatabaseError("this store belongs to another event loop: open one on this loop")
