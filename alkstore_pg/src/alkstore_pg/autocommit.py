"""The session whose every call commits by itself."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from alkstore_core.errors import AlkstoreError, CommitUnknownError
from alkstore_core.waiting import Backoff
from alkstore_core.wakes import stream_topic

from alkstore_pg.locks import LockPrimitives
from alkstore_pg.mailboxes import MailboxPrimitives
from alkstore_pg.notify import NotifyPrimitives
from alkstore_pg.primitives import Orphaned
from alkstore_pg.queues import QueuePrimitives
from alkstore_pg.scheduler import SchedulerPrimitives
from alkstore_pg.sharing import Dispatcher, Records, Row, Shared
from alkstore_pg.streams import StreamPrimitives
from alkstore_pg.tasks import Tasks, linger

_GIVE_BACK_TRIES = 8
_FIRST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.25
"""How long a follower whose stream waits for an older publisher is not looked after, at first and at most."""

_log = logging.getLogger("alkstore.pg")


class AutocommitSession(
    QueuePrimitives, StreamPrimitives, NotifyPrimitives, LockPrimitives, SchedulerPrimitives, MailboxPrimitives
):
    """Runs everything through the dispatcher."""

    def __init__(
        self,
        schema: str,
        dispatcher: Dispatcher,
        tasks: Tasks,
        now: Callable[[], int | None],
        woken: Callable[[Iterable[str]], None],
        wake_here: Callable[[Iterable[str]], None],
    ) -> None:
        self.schema = schema
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._now = now
        self._woken = woken
        self._wake_here = wake_here
        self._held: dict[str, Backoff] = {}
        self._looking: dict[str, asyncio.TimerHandle] = {}

    async def share(
        self, shared: Shared, rows: Sequence[Row], *, topics: Iterable[str] = (), orphaned: Orphaned | None = None
    ) -> list[Any]:
        del orphaned  # nothing that is shared needs it
        return await self._dispatcher.share(shared, rows, tuple(topics))

    async def run(
        self,
        name: str,
        *arguments: Any,
        writes: bool = True,
        topics: Iterable[str] = (),
        orphaned: Orphaned | None = None,
    ) -> Records:
        async def cancelled(running: "asyncio.Task[Records]") -> None:
            if orphaned is not None:
                await linger(self._tasks.start(self._look_after(running, orphaned)))
            elif writes:
                await linger(running)

        try:
            return await self._dispatcher.run(name, arguments, writes=writes, topics=topics, cancelled=cancelled)
        except CommitUnknownError:
            if orphaned is not None:
                self._tasks.start(self._try_until_done(orphaned, []))
            raise

    def wake(self, topics: Iterable[str]) -> None:
        self._woken(topics)

    def now_given(self) -> int | None:
        return self._now()

    # what nobody waits for any more

    async def _look_after(self, running: "asyncio.Task[Records]", orphaned: Orphaned) -> None:
        await asyncio.wait((running,))
        if running.cancelled():
            return
        error = running.exception()
        if error is None:
            if running.result():
                await self._try_until_done(orphaned, running.result())
        elif isinstance(error, CommitUnknownError):
            await self._try_until_done(orphaned, [])

    async def _try_until_done(self, orphaned: Orphaned, records: Records) -> None:
        backoff = Backoff()
        for _ in range(_GIVE_BACK_TRIES):
            try:
                await orphaned(records)
            except AlkstoreError as error:
                _log.warning("what a cancelled caller had taken could not be given back yet: %s", error)
                await asyncio.sleep(backoff.next())
            else:
                return

    # followers of a stream that waits for an older publisher (S8)

    def held_back(self, stream: str) -> None:
        if stream in self._looking:
            return
        backoff = self._held.setdefault(stream, Backoff(_FIRST_LOOK_S, _LONGEST_LOOK_S))
        self._looking[stream] = asyncio.get_running_loop().call_later(backoff.next(), self._look_again, stream)

    def not_held_back(self, stream: str) -> None:
        self._held.pop(stream, None)

    def _look_again(self, stream: str) -> None:
        del self._looking[stream]
        self._wake_here((stream_topic(stream),))

    def stop(self) -> None:
        """Look after no stream any more."""
        for timer in self._looking.values():
            timer.cancel()
        self._looking.clear()
