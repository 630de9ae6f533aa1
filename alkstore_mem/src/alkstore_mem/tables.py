"""Tables of committed rows, and what keeps them in the order that they are read in."""

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from alkstore_core.engine import Claim, NewSchedule
from alkstore_core.values import StreamEvent

from alkstore_mem.backlog import Backlog

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Sequence:
    """Numbers that only grow, from 1, and that a rollback does not give back."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self) -> int:
        """The next number."""
        self.drawn += 1
        return self.drawn


class Table(Generic[K, R]):
    """Committed rows by key."""

    def __init__(self) -> None:
        self.rows: dict[K, R] = {}

    def store(self, key: K, row: R | None, now: int) -> None:  # noqa: ARG002 - for tables that keep rows by time
        """Insert, replace or (None) delete a row."""
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row


class JobTable(Table[int, Claim]):
    """Jobs by id, and by queue in a `Backlog`."""

    def __init__(self) -> None:
        super().__init__()
        self.backlogs: dict[str, Backlog] = {}

    def store(self, key: int, row: Claim | None, now: int) -> None:
        known = row or self.rows.get(key)
        if known is None:
            return
        super().store(key, row, now)
        queue = known.job.queue
        backlog = self.backlogs.get(queue) or self.backlogs.setdefault(queue, Backlog())
        backlog.store(key, row, now)
        if not backlog.live and not backlog.dead:
            del self.backlogs[queue]


class EventTable(Table[int, StreamEvent]):
    """Events by stream, in the order of their offsets, which with one writer is the order of the commits (S8)."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, list[StreamEvent]] = {}

    def store(self, key: int, row: StreamEvent | None, now: int) -> None:  # noqa: ARG002
        if row is not None:
            self.streams.setdefault(row.stream, []).append(row)


class HorizonTable(Table[str, int]):
    """Trims: storing a stream's horizon deletes its events up to there, and keeps no row."""

    def __init__(self, events: EventTable) -> None:
        super().__init__()
        self._streams = events.streams

    def store(self, key: str, row: int | None, now: int) -> None:  # noqa: ARG002
        events = self._streams.get(key)
        if events and row is not None:
            del events[: bisect_right(events, row, key=lambda event: event.offset)]
            if not events:
                del self._streams[key]


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A stored schedule, and the boundary that it fires next."""

    schedule: NewSchedule
    next_fire: int
