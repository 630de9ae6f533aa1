"""The listening connection: one per store, from the first subscription on, and again whenever it is lost (N2, N5).

It asks the server for a sign of life every second, by a NOTIFY to itself: a link that was cut silently shows no other
sign, and a pooler that moved the session away would lose notifications without one. After each reconnection every
subscription is woken, once LISTEN is acknowledged: what was committed before is seen by the read that follows, what is
committed after wakes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.waiting import Backoff
from alkstore_core.wakes import Subscription, WakeHub

from alkstore_pg.clock import ServerClock
from alkstore_pg.failures import DRIVER_ERRORS, database_error
from alkstore_pg.notify import channel_of

BEAT_S = 1.0
"""How often the connection is asked for a sign of life."""
_SILENCE_S = 2.0
"""How long it may take to answer."""
_LONGEST_PAUSE_S = 0.4
_WATCH_TIMEOUT_S = 15.0
_HANG_UP_TIMEOUT_S = 2.0

_log = logging.getLogger("alkstore.pg")


class Listener:
    """Keeps one connection listening to what the hub's subscriptions want.

    Args:
        hub: whom to wake.
        connect: a new connection for listening.
        hang_up: ends one.
        schema: the namespace of the channels.
        identity: the payload of this store's own wakes, which it has delivered here already.
        sql: the statements.
        clock: told the server's time with each beat.
        silent: called when the server went silent, so that other connections are suspect too.
    """

    def __init__(
        self,
        hub: WakeHub,
        connect: Callable[[], Awaitable[Any]],
        hang_up: Callable[[Any], Awaitable[None]],
        schema: str,
        identity: str,
        sql: Mapping[str, str],
        clock: ServerClock,
        silent: Callable[[], None],
    ) -> None:
        self.reconnections = 0
        """How often the connection was lost and had again."""
        self._hub = hub
        self._connect = connect
        self._hang_up = hang_up
        self._schema = schema
        self._identity = identity
        self._sql = sql
        self._clock = clock
        self._silent = silent
        self._beat_channel = channel_of(schema, f"b:{identity}")
        self._connection: Any = None
        self._listening: dict[str, str] = {}
        self._registering = asyncio.Lock()
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._heard = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "listening" if self._ready.is_set() else "not connected"
        return f"<Listener {state}, {len(self._listening)} channels, {self.reconnections} reconnections>"

    async def watch(self, topic: str) -> Subscription:
        """A subscription that hears every commit from now on that wakes `topic`.

        Raises:
            DatabaseError: the server could not be made to listen; nothing of the attempt is left.
        """
        if self._closed:
            raise ClosedError("this store is closed: open another one")
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        subscription = self._hub.subscribe(topic)
        try:
            async with asyncio.timeout(_WATCH_TIMEOUT_S):
                await self._registered(topic)
        except TimeoutError as error:
            subscription.close()
            raise database_error(error, f"cannot listen to {topic!r}") from error
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def _registered(self, topic: str) -> None:
        channel = channel_of(self._schema, topic)
        while not self._closed:
            await self._ready.wait()
            async with self._registering:
                connection = self._connection
                if connection is None or not self._ready.is_set():
                    continue
                if channel in self._listening:
                    return
                try:
                    await self._listen(connection, channel, topic)
                except DRIVER_ERRORS:
                    self._lost.set()
                    self._ready.clear()
                    continue
                if self._ready.is_set():
                    return
        raise ClosedError("the store was closed meanwhile: open another one")

    async def _listen(self, connection: Any, channel: str, topic: str) -> None:
        async with asyncio.timeout(_SILENCE_S):
            await connection.add_listener(channel, self._notified)
        self._listening[channel] = topic

    def _notified(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        if channel == self._beat_channel:
            self._heard.set()
        elif payload != self._identity and (topic := self._listening.get(channel)) is not None:
            self._hub.wake((topic,))

    async def _run(self) -> None:
        """Connect, listen, wake, watch over it; for ever."""
        backoff = Backoff(0.02, _LONGEST_PAUSE_S)
        before = False
        while True:
            connection = None
            try:
                connection = await self._connect()
                await self._begin(connection)
                if before:
                    self.reconnections += 1
                    _log.info("listening again, after %d reconnections", self.reconnections)
                    self._hub.wake_everybody()
                before = True
                backoff.reset()
                await self._guard(connection)
            except (*DRIVER_ERRORS, DatabaseError) as error:
                _log.warning("the listening connection was lost, and is made again: %s", error or type(error).__name__)
            finally:
                self._ready.clear()
                self._connection = None
                if connection is not None:
                    await self._end(connection)
            await asyncio.sleep(backoff.next())

    async def _begin(self, connection: Any) -> None:
        """Listen to whatever is wanted now. Until it is acknowledged, nobody is told that it listens."""
        self._lost.clear()
        connection.add_termination_listener(self._terminated)
        self._listening.clear()
        async with self._registering:
            async with asyncio.timeout(_SILENCE_S):
                await connection.add_listener(self._beat_channel, self._notified)
            for topic in self._hub.topics():
                await self._listen(connection, channel_of(self._schema, topic), topic)
            await self._beat(connection)
            self._connection = connection
            self._ready.set()

    def _terminated(self, _connection: Any) -> None:
        self._lost.set()

    async def _guard(self, connection: Any) -> None:
        """Return or raise once the connection is no good any more."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._lost.wait()
            if self._lost.is_set():
                raise ConnectionResetError("the server closed it")
            async with self._registering:
                await self._forget_unwanted(connection)
                await self._beat(connection)

    async def _forget_unwanted(self, connection: Any) -> None:
        wanted = self._hub.topics()
        for channel, topic in tuple(self._listening.items()):
            if topic not in wanted:
                del self._listening[channel]
                async with asyncio.timeout(_SILENCE_S):
                    await connection.remove_listener(channel, self._notified)

    async def _beat(self, connection: Any) -> None:
        self._heard.clear()
        try:
            async with asyncio.timeout(_SILENCE_S):
                records = await connection.fetch(self._sql["beat"], self._beat_channel, "")
                self._clock.told(records[0][0])
                await self._heard.wait()
        except TimeoutError:
            self._silent()
            raise TimeoutError("the server went silent, or a pooler took its notifications") from None

    async def _end(self, connection: Any) -> None:
        with suppress(*DRIVER_ERRORS):
            async with asyncio.timeout(_HANG_UP_TIMEOUT_S):
                await self._hang_up(connection)

    async def close(self) -> None:
        """End the connection and its task. Idempotent."""
        self._closed = True
        self._ready.set()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    def forget(self) -> None:
        """End it without waiting, from any thread."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            with suppress(*DRIVER_ERRORS, RuntimeError):
                connection.terminate()


class Waker:
    """Announces topics to other processes after the commits that woke them, many at once."""

    def __init__(self, send: Callable[[list[str]], Awaitable[None]], start: Callable[[Any], object]) -> None:
        self._send = send
        self._start = start
        self._topics: set[str] = set()
        self._sending = False

    def wake(self, topics: Iterable[str]) -> None:
        """Announce `topics` soon: at once if nothing is under way, else with all that gathers meanwhile."""
        self._topics.update(topics)
        if not self._sending:
            self._sending = True
            self._start(self._run())

    async def _run(self) -> None:
        try:
            while self._topics:
                topics = list(self._topics)
                self._topics.clear()
                try:
                    await self._send(topics)
                except (DatabaseError, ClosedError) as error:
                    # A hint only: whoever missed it hears of its own lost connection, or looks again by itself.
                    _log.debug("%d topics could not be announced: %s", len(topics), error)
                await asyncio.sleep(_GATHER_S)
        finally:
            self._sending = False


_GATHER_S = 0.002
"""The shortest time between two announcements."""
