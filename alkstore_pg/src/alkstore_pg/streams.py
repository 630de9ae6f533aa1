"""Streams: append, read, save offsets (contract section 6). How followers never skip is told in `sql/functions`."""

import hashlib
from collections.abc import Sequence
from typing import Any

from alkstore_core.making import maker
from alkstore_core.values import StreamEvent
from alkstore_core.wakes import stream_topic

from alkstore_pg.names import key_of
from alkstore_pg.primitives import Primitives
from alkstore_pg.sharing import Records, Row, Shared


def sorted_ids(rows: Sequence[Row], records: Records) -> list[Any]:
    """The ids that one INSERT drew for `rows`: they grow in the order of the rows."""
    ids: list[int] = records[0]["ids"]
    assert len(ids) == len(rows)
    ids.sort()
    return ids


make_event = maker(StreamEvent)
_APPEND = Shared("append_events", sorted_ids, announces=True)


def stream_hash(schema: str, stream: str) -> int:
    """The signed 24 bits that stand for a stream in the keys of its publishers' locks."""
    return int.from_bytes(hashlib.blake2b(f"{schema}\0{stream}".encode(), digest_size=3).digest(), signed=True)


class StreamPrimitives(Primitives):
    """Streams, on a transaction or by itself."""

    async def append_events(self, stream: str, events: Sequence[tuple[str | None, bytes]]) -> list[int]:
        number = stream_hash(self.schema, stream)
        name = key_of(stream)
        rows = [(name, number, key, payload) for key, payload in events]
        return await self.share(_APPEND, rows, topics=(stream_topic(stream),))

    async def read_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        return _events(stream, await self.run("read_events", key_of(stream), after, limit, writes=False))

    async def read_settled_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        number = stream_hash(self.schema, stream)
        records = await self.run("read_settled_events", key_of(stream), number, after, limit, writes=False)
        if records and records[-1]["offset"] is None:
            records.pop()
            self.held_back(stream)
        else:
            self.not_held_back(stream)
        return _events(stream, records)

    async def read_consumer_events(self, stream: str, consumer: str, limit: int) -> list[StreamEvent]:
        return _events(
            stream, await self.run("read_consumer_events", key_of(stream), key_of(consumer), limit, writes=False)
        )

    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        await self.run("save_offset", key_of(stream), key_of(consumer), offset)

    async def get_offset(self, stream: str, consumer: str) -> int:
        records = await self.run("get_offset", key_of(stream), key_of(consumer), writes=False)
        return records[0][0] if records else 0

    async def trim_events(self, stream: str, horizon: int) -> int:
        trimmed: int = (await self.run("trim_events", key_of(stream), horizon))[0][0]
        return trimmed

    def held_back(self, stream: str) -> None:
        """Committed events of `stream` wait for an older publisher: if that one rolls back or dies, nobody is woken."""

    def not_held_back(self, stream: str) -> None:
        """Nothing of `stream` waits for an older publisher."""


def _events(stream: str, records: Records) -> list[StreamEvent]:
    return [make_event(offset, stream, key, payload, created_at) for offset, key, payload, created_at in records]
