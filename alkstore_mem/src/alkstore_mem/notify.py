"""notify (contract section 5)."""

from alkstore_core.wakes import channel_topic

from alkstore_mem.session import MemSession


class NotifySession(MemSession):
    """The notify primitive."""

    async def notify(self, channel: str, payload: bytes | None) -> None:  # noqa: ARG002 - wakes carry none (N3)
        with await self.writing() as changes:
            changes.wake(channel_topic(channel))
