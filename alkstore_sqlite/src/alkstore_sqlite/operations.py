"""Operations: what a primitive does to the database, written once and driven from two places.

An operation is a generator that yields one `Step` after the other and is sent each one's result. It knows nothing of
threads and transactions: the writer thread drives many of them inside one shared commit, and a caller's transaction
drives one at a time on its own connection. An operation may be driven again from its beginning after a rollback, so it
keeps no state outside itself.
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

from alkstore_core.clock import Clock

T = TypeVar("T")


class Kind(Enum):
    """What is wanted of a statement."""

    ROWS = auto()
    COUNT = auto()
    MANY = auto()


class Step(NamedTuple):
    """One statement to be executed; the result is its rows, or the number of rows it changed."""

    kind: Kind
    sql: str
    parameters: Iterable[Any]


Operation = Generator[Step, Any, T]
Row = Sequence[Any]


def rows(sql: str, *parameters: object) -> Step:
    """A statement whose rows are wanted."""
    return Step(Kind.ROWS, sql, parameters)


def count(sql: str, *parameters: object) -> Step:
    """A statement of which is wanted how many rows it changed."""
    return Step(Kind.COUNT, sql, parameters)


def many(sql: str, parameters: Iterable[Sequence[object]]) -> Step:
    """A statement executed once for each of `parameters`; how many rows that changed in all."""
    return Step(Kind.MANY, sql, parameters)


class Scope:
    """What an operation needs to know of where it runs: the time, and whom to wake once it is committed."""

    __slots__ = ("clock", "topics")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.topics: set[str] = set()

    def now(self) -> int:
        """The current unix second."""
        return self.clock.now()


def drive(cursor: sqlite3.Cursor, operation: Operation[T]) -> T:
    """Run `operation` to its end on `cursor`; what it returns."""
    execute, fetch = cursor.execute, cursor.fetchall
    result: Any = None
    try:
        while True:
            kind, sql, parameters = operation.send(result)
            if kind is Kind.ROWS:
                execute(sql, parameters)  # type: ignore[arg-type]  # an iterable only for MANY
                result = fetch()
            elif kind is Kind.COUNT:
                execute(sql, parameters)  # type: ignore[arg-type]
                result = cursor.rowcount
            else:
                cursor.executemany(sql, parameters)
                result = cursor.rowcount
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
