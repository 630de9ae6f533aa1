"""The data: all tables, the changes that a transaction stages over them, and who shares them.

A transaction changes nothing here before its commit. It stages rows in a `Changes`, reads through it, and everybody
else reads the tables, which hold committed rows only.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from alkstore_core.engine import LockGrant

from alkstore_mem.mail import ConsumerRow, DeliveryTable, MessageTable
from alkstore_mem.tables import EventTable, HorizonTable, JobTable, ScheduleRow, Sequence, Table
from alkstore_mem.writer import Turn, WriterSlot

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Participant(Protocol):
    """A store's engine, as the database knows it."""

    def wake(self, topics: frozenset[str]) -> None:
        """Tell its listeners; called from any thread that runs a loop."""
        ...


class Database:
    """All tables, shared by the engines in `engines`, which may run on several loops and threads.

    Everything in it is read and written inside `exclusive`.
    """

    def __init__(self, first: Participant) -> None:
        self.jobs = JobTable()
        self.events = EventTable()
        self.horizons = HorizonTable(self.events)
        self.offsets = Table[tuple[str, str], int]()
        self.locks = Table[str, LockGrant]()
        self.schedules = Table[str, ScheduleRow]()
        self.messages = MessageTable()
        self.deliveries = DeliveryTable()
        self.consumers = Table[tuple[str, str, str], ConsumerRow]()
        self.rows = Table[Hashable, tuple[Any]]()
        self.wakes = Table[str, bool]()
        self.job_ids, self.claim_tokens, self.event_offsets, self.lock_tokens = (Sequence() for _ in range(4))
        self.message_numbers = Sequence()
        self.slot = WriterSlot(self.exclusive)
        self.engines: set[Participant] = {first}
        self._mutex = threading.Lock()
        self._deferred: deque[Callable[[], None]] = deque()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads out. Nothing in here may wait."""
        try:
            with self._mutex:
                yield
        finally:
            self._catch_up()

    def defer(self, work: Callable[[], None]) -> None:
        """Run `work` inside `exclusive`: now, or when whoever is inside leaves.

        For the garbage collector, which may run on any thread and in the middle of anything, `exclusive` included.
        """
        self._deferred.append(work)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._deferred and self._mutex.acquire(blocking=False):
            try:
                while self._deferred:
                    self._deferred.popleft()()
            finally:
                self._mutex.release()

    @contextmanager
    def autocommit(self, turn: Turn, now: Callable[[], int]) -> Iterator["Changes"]:
        """Changes that are committed at the end of the block, which ends the turn; nothing of them if it raises."""
        with self.exclusive():
            try:
                changes = Changes(self)
                yield changes
                self._apply(changes, now())
            finally:
                self.slot.leave(turn)

    def commit(self, turn: Turn, changes: "Changes", now: Callable[[], int]) -> None:
        """Make the changes visible, end the turn, and wake.

        Raises:
            ClosedError: the turn has ended already.
        """
        with self.exclusive():
            self.slot.check(turn)
            try:
                self._apply(changes, now())
            finally:
                self.slot.leave(turn)

    def _apply(self, changes: "Changes", now: int) -> None:
        changes.merge(0)
        for table, staged in changes.layers[0].items():
            if table is not self.wakes:
                for key, row in staged.items():
                    table.store(key, row, now)
        topics = frozenset(changes.staged(self.wakes))
        if topics:
            for engine in self.engines:
                engine.wake(topics)

    def join(self, engine: Participant) -> bool:
        """Let one more engine share the data; False if the last one has left, and the data is gone with it."""
        with self.exclusive():
            if self.engines:
                self.engines.add(engine)
            return bool(self.engines)

    def leave(self, engine: Participant) -> None:
        """An engine closes: its transaction is rolled back. Called inside `exclusive`."""
        self.engines.discard(engine)
        self.slot.evict(engine)


class Changes:
    """What one transaction has staged: rows by table and key, None for a deleted one; a layer for each savepoint."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.layers: list[dict[Table[Any, Any], dict[Any, Any]]] = [{}]

    def get(self, table: Table[K, R], key: K) -> R | None:
        """The row as the transaction sees it."""
        for layer in reversed(self.layers):
            if table in layer and key in layer[table]:
                staged: R | None = layer[table][key]
                return staged
        return table.rows.get(key)

    def put(self, table: Table[K, R], key: K, row: R | None) -> None:
        """Stage a row; None deletes it."""
        self.layers[-1].setdefault(table, {})[key] = row

    def wake(self, topic: str) -> None:
        """Wake `topic` at the commit."""
        self.put(self.database.wakes, topic, True)

    def staged(self, table: Table[K, R]) -> dict[K, R | None]:
        """What is staged for a table, in the order in which it first was."""
        return {key: row for layer in self.layers for key, row in layer.get(table, {}).items()}

    def scan(self, table: Table[K, R]) -> dict[K, R]:
        """All rows of a table as the transaction sees them."""
        staged = self.staged(table)
        return {key: row for key, row in {**table.rows, **staged}.items() if row is not None}

    def merge(self, depth: int) -> None:
        """Put the layers above `depth` into the layer there."""
        for layer in self.layers[depth + 1 :]:
            for table, staged in layer.items():
                self.layers[depth].setdefault(table, {}).update(staged)
        self.discard(depth)

    def discard(self, depth: int) -> None:
        """Forget the layers above `depth`."""
        del self.layers[depth + 1 :]


_named: WeakValueDictionary[str, Database] = WeakValueDictionary()
_naming = threading.Lock()


def join_database(name: str | None, engine: Participant) -> Database:
    """The data of this name in this process, made if nobody has it open; without a name, data of one's own."""
    if name is None:
        return Database(engine)
    with _naming:
        database = _named.get(name)
        if database is None or not database.join(engine):
            database = _named[name] = Database(engine)
        return database


def _forked() -> None:
    _named.clear()  # the parent's
    _naming.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_naming.acquire, after_in_parent=_naming.release, after_in_child=_forked)
