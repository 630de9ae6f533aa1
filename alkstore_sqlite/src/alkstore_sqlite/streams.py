"""Streams on SQLite: the operations behind `Session`'s stream primitives.

There is one writer, so events are committed in the order of their offsets, and a plain read skips none (S8).
"""

from collections.abc import Sequence

from alkstore_core.making import maker
from alkstore_core.values import StreamEvent
from alkstore_core.wakes import stream_topic

from alkstore_sqlite.operations import Operation, Row, Scope, count, many, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("streams")
make_event = maker(StreamEvent)
_APPEND_EVENT = SQL.append_event


def append_events(scope: Scope, stream: str, events: Sequence[tuple[str | None, bytes]]) -> Operation[list[int]]:
    """Append them; their offsets in order (S1, Q12)."""
    now = scope.now()
    scope.topics.add(stream_topic(stream))
    if len(events) == 1:
        key, payload = events[0]
        found: list[Row] = yield rows(_APPEND_EVENT, stream, key, payload, now)
        return [found[0][0]]
    yield many(SQL.append_events, ((stream, key, payload, now) for key, payload in events))
    found = yield rows(SQL.last_offset)
    last: int = found[0][0]
    return list(range(last - len(events) + 1, last + 1))


def append_event_as(offset: int, stream: str, key: str | None, payload: bytes, now: int) -> Operation[None]:
    """Append the event that was promised this offset at this time (S1)."""
    yield count(SQL.append_event_as, offset, stream, key, payload, now)


def read_events(scope: Scope, stream: str, after: int, limit: int) -> Operation[list[StreamEvent]]:
    """Events above an offset, ascending (S3)."""
    found: list[Row] = yield rows(SQL.read_events, stream, after, limit)
    return [make_event(*row) for row in found]


def read_consumer_events(scope: Scope, stream: str, consumer: str, limit: int) -> Operation[list[StreamEvent]]:
    """Events after the consumer's saved offset (S4)."""
    found: list[Row] = yield rows(SQL.read_consumer_events, stream, stream, consumer, limit)
    return [make_event(*row) for row in found]


def save_offset(scope: Scope, stream: str, consumer: str, offset: int) -> Operation[None]:
    """Store it unless a higher one is stored (S4)."""
    yield count(SQL.save_offset, stream, consumer, offset)


def get_offset(scope: Scope, stream: str, consumer: str) -> Operation[int]:
    """The saved offset, or 0 (S4)."""
    found: list[Row] = yield rows(SQL.get_offset, stream, consumer)
    return found[0][0] if found else 0


def trim_events(scope: Scope, stream: str, horizon: int) -> Operation[int]:
    """Delete up to the horizon; how many (S6)."""
    trimmed: int = yield count(SQL.trim_events, stream, horizon)
    return trimmed
