"""Writes of a caller's transaction that are answered before they are done.

A hop to the connection's thread and back costs more than an insert. Once the transaction has begun nobody else can
write, so what an insert will return is known: the next id. It is answered at once, and done together with the
transaction's next statement, whichever that is, or before it commits: always before anything that could tell the
difference. What fails then, fails that statement or the commit, and the transaction cannot be committed without it.
"""

import sqlite3
from collections import deque
from collections.abc import Callable
from typing import Any

from alkstore_core.numbers import INT64_MAX

from alkstore_sqlite.operations import Operation, drive
from alkstore_sqlite.statements import Statements

JOBS = "alkstore_jobs"
EVENTS = "alkstore_events"
MOST = 32
"""So many wait at most: then the caller waits for a hop, and the event loop has its turn."""
LONGEST = 64 * 1024
"""A payload of more bytes is not kept waiting; beside it a hop costs nothing."""

SQL = Statements("promises")


class Promises:
    """Those of one transaction. Made on the event loop, kept on the connection's thread."""

    __slots__ = ("_last", "_made", "is_refused", "under_way")

    def __init__(self) -> None:
        self._made: deque[Callable[[], Operation[Any]]] = deque()
        self._last: dict[str, int] | None = None
        self.under_way = 0
        """How many hops are waited for: before their end it is not known what comes next."""
        self.is_refused = False
        """Whether there must be none any more: what runs is not waited for, somebody else writes here too, or the ids
        are about to run out."""

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """The transaction has begun: from here on the next ids are known."""
        self._last = {JOBS: 0, EVENTS: 0}
        self._last.update(cursor.execute(SQL.sequences).fetchall())
        if max(self._last.values()) > INT64_MAX // 2:
            self.is_refused = True  # where ids could run out, SQLite says so at the call

    @property
    def are_possible(self) -> bool:
        """Whether one may be made now."""
        return self._last is not None and not self.under_way and not self.is_refused and len(self._made) < MOST

    def next_id(self, table: str) -> int:
        """The id that the next row of `table` gets, which is given out with this."""
        assert self._last is not None
        self._last[table] += 1
        return self._last[table]

    def note(self, table: str, last: int) -> None:
        """Rows of `table` were inserted, up to this id."""
        if self._last is not None:
            self._last[table] = last

    def make(self, build: Callable[[], Operation[Any]]) -> None:
        """Have an operation done before the next statement. It knows its ids and its times already."""
        self._made.append(build)

    def keep(self, cursor: sqlite3.Cursor) -> None:
        """Do what was promised.

        Raises:
            sqlite3.Error: that was not possible; it is tried again before the next statement.
        """
        while self._made:
            drive(cursor, self._made[0]())
            self._made.popleft()

    def __len__(self) -> int:
        return len(self._made)
