"""Notify on SQLite: a stamp per topic, written in the transaction that wakes.

This process's own commits wake its own listeners directly. For the others a stamp is left, which their watcher compares
with the one it saw last (N7).
"""

import random
import sqlite3
import time
from collections.abc import Iterable

from alkstore_core.numbers import INT64_MAX
from alkstore_core.wakes import WakeHub, channel_topic

from alkstore_sqlite.operations import Operation, Row, Scope, count, drive, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("notify")

TOPIC_LIMIT = 10_000
"""About how many topics keep a stamp; channels named after ids would otherwise fill the file."""
BOUND_EVERY = 4096
"""One stamping in so many looks at how many topics there are. Which ones, the random bits of the stamp say."""


def notify(scope: Scope, channel: str, payload: bytes | None) -> Operation[None]:
    """Wake the channel at the commit. The payload was checked and is not kept: wakes carry none (N1, N3)."""
    scope.topics.add(channel_topic(channel))
    yield from ()


class Stamps:
    """Leaves the stamps of this process's commits, and knows which of them its own listeners need not be told of."""

    def __init__(self, hub: WakeHub) -> None:
        self._hub = hub
        self.own: dict[str, int] = {}
        """The latest stamp that this process left on each topic that it listened to then, and woke itself."""

    def leave(self, cursor: sqlite3.Cursor, topics: Iterable[str]) -> None:
        """Stamp the topics in the transaction that `cursor` is in, which is about to be committed."""
        stamp = _new_stamp()
        drive(cursor, _stamp_topics(topics, stamp))
        for topic in topics:
            if topic in self._hub:
                self.own[topic] = stamp


def stamp_topics(topics: Iterable[str]) -> Operation[None]:
    """Stamp the topics in a transaction that somebody else commits, or does not."""
    yield from _stamp_topics(topics, _new_stamp())


def _new_stamp() -> int:
    """A stamp that its topic never had: the time in microseconds, and ten bits in case a clock is set back."""
    return (time.time_ns() // 1000 << 10 | random.getrandbits(10)) & INT64_MAX


def _stamp_topics(topics: Iterable[str], stamp: int) -> Operation[None]:
    if stamp % BOUND_EVERY == 0:
        yield from _bound_topics()  # before these stamps, which must all be seen
    for topic in topics:
        yield count(SQL.stamp_topic, topic, stamp)


def read_stamps(topics: Iterable[str]) -> Operation[dict[str, int | None]]:
    """The latest stamp of each topic, None for one that has none."""
    stamps: dict[str, int | None] = {}
    for topic in topics:
        found: list[Row] = yield rows(SQL.read_stamp, topic)
        stamps[topic] = found[0][0] if found else None
    return stamps


def _bound_topics() -> Operation[None]:
    """Keep the number of stamps near `TOPIC_LIMIT`, by dropping the oldest, which every watcher has seen long ago."""
    found: list[Row] = yield rows(SQL.count_topics)
    excess = found[0][0] - TOPIC_LIMIT
    if excess > 0:
        yield count(SQL.forget_topics, excess)
