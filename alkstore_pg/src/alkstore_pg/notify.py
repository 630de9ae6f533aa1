"""notify, and the wakes that follow commits (N1, N7).

Every topic has a channel of its own, whose name is a hash: LISTEN would silently cut a long name, and two schemas in
one database must not hear each other (V4).

NOTIFY takes a lock of the whole database at commit, one transaction after the other. Only `notify` itself, and enlisted
transactions, whose commit nobody here sees, pay for that. What wakes queues and streams is a hint, sent after the
commit, for many topics at once.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from alkstore_core.errors import PayloadTooLargeError
from alkstore_core.wakes import channel_topic

from alkstore_pg.primitives import Primitives

PAYLOAD_LIMIT = 7999
"""The most bytes that NOTIFY carries (P4)."""


@lru_cache(maxsize=1024)
def channel_of(schema: str, topic: str) -> str:
    """The Postgres channel of a topic: 48 characters, whatever the names are."""
    return "alkstore" + hashlib.blake2b(f"{schema}\0{topic}".encode(), digest_size=20).hexdigest()


class NotifyPrimitives(Primitives):
    """notify, on a transaction or by itself."""

    async def notify(self, channel: str, payload: bytes | None) -> None:
        text = "" if payload is None else payload.decode()
        if payload is not None and len(payload) > PAYLOAD_LIMIT:
            raise PayloadTooLargeError(PAYLOAD_LIMIT, len(payload))
        await self.run("notify", channel_of(self.schema, channel_topic(channel)), text)


def channels_of(schema: str, topics: Iterable[str]) -> list[str]:
    """The Postgres channels of `topics`."""
    return [channel_of(schema, topic) for topic in topics]
