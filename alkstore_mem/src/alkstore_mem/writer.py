"""The writer slot: one transaction or auto-commit write at a time, in the order in which they asked (T11)."""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from alkstore_core.errors import ClosedError, DatabaseError


class Turn:
    """One caller's turn to write, waited for or held. `owner` is the engine that it belongs to."""

    __slots__ = ("_task", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        task = asyncio.current_task()
        # Weak, so that a transaction which its dropped task left open can still be collected (T5).
        self._task = None if task is None else weakref.ref(task)

    def is_mine(self) -> bool:
        """Whether the task that runs now is the one that took this turn."""
        return self._task is not None and self._task() is asyncio.current_task()


class WriterSlot:
    """Who may write now, and who waits for it. Everything but `take` is called inside ``exclusive``."""

    def __init__(self, exclusive: Callable[[], AbstractContextManager[None]]) -> None:
        self.holder: Turn | None = None
        self._exclusive = exclusive
        self._waiting: dict[Turn, asyncio.Future[None]] = {}

    async def take(self, turn: Turn, busy_timeout: float) -> None:
        """Make `turn` the holder. Once it returns the caller must see to it that `leave` is called.

        Raises:
            DatabaseError: the calling task is the holder already, or the slot stayed taken for `busy_timeout` seconds.
            ClosedError: the turn's owner was closed meanwhile.
        """
        with self._exclusive():
            if self.holder is None:
                self.holder = turn
                return
            if self.holder.is_mine():
                raise DatabaseError(
                    "this task holds an open transaction on this database, which has one writer, so this write would "
                    "wait for itself: do it on the transaction, or end that first"
                )
            waiter = self._waiting[turn] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(busy_timeout):
                await waiter
        except BaseException as error:
            with self._exclusive():
                self.leave(turn)
            if isinstance(error, TimeoutError):
                raise DatabaseError(
                    f"another task's transaction kept the writer busy for {busy_timeout} s: end transactions sooner, "
                    "or open the store with a longer busy_timeout"
                ) from error
            raise
        with self._exclusive():
            self.check(turn)

    def check(self, turn: Turn) -> None:
        """Raise `ClosedError` unless `turn` is the holder still."""
        if self.holder is not turn:
            raise ClosedError("this transaction has ended, by its own end or with its store: begin another one")

    def leave(self, turn: Turn) -> None:
        """Give up a turn, held or waited for; one that has ended is no error. The next in line becomes the holder."""
        self._waiting.pop(turn, None)
        if self.holder is not turn:
            return
        self.holder = None
        while self._waiting and self.holder is None:
            following = next(iter(self._waiting))
            waiter = self._waiting.pop(following)
            try:
                waiter.get_loop().call_soon_threadsafe(_grant, waiter)
            except RuntimeError:  # its loop is closed: it waits no more
                continue
            self.holder = following

    def evict(self, owner: object) -> None:
        """End every turn of an engine that closes, the held one and the waiting ones."""
        for turn in [turn for turn in self._waiting if turn.owner is owner]:
            waiter = self._waiting.pop(turn)
            with suppress(RuntimeError):
                waiter.get_loop().call_soon_threadsafe(_refuse, waiter)
        if self.holder is not None and self.holder.owner is owner:
            self.leave(self.holder)


def _grant(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _refuse(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(ClosedError("this store was closed while the call waited for the writer"))
