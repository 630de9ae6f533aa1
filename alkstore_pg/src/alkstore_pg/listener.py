"""The listening connection: one per store, from the first subscription on, and again whenever it is lost (N2, N5).

It asks the server for a sign of life again and again: a link that was cut silently shows no other sign. After each
reconnection every subscription is woken, once LISTEN is acknowledged: what was committed before is seen by the read
that follows, what is committed after wakes.

A sign of life is the answer of the process that listens, which costs the server nothing else; or, where a pooler stands
between and may have moved the session away, and whenever somebody waits until he is listened for, a NOTIFY to itself,
which must come back. With that the listener answers the stores whose wakes it heard, now and then: they announce sooner
what somebody waits for.

A pooler that gives each transaction another session takes a LISTEN and loses what comes of it. The sign of life may
come back all the same, where the pooler has one idle session. So where another process than the one that the connection
named answers, a notification sent over another connection must come too: else whoever asks to listen is told that
nobody can here, and whoever does already is woken now and then, to look for himself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.waiting import Backoff
from alkstore_core.wakes import Subscription, WakeHub, channel_topic

from alkstore_pg.clock import ServerClock
from alkstore_pg.failures import DRIVER_ERRORS, database_error
from alkstore_pg.notify import channel_of
from alkstore_pg.patience import Expiring, Patience

BEAT_S, _SILENCE_S = 1.0, 2.0
"""How often a NOTIFY must come back, where a pooler stands between, and how long it may take. Both together are how
long a silent cut may stay unnoticed."""
SIGN_S, _QUICK_SILENCE_S = 2.0, 0.95
"""The same for the answer of the process that listens: it waits for no lock and no disk."""
_LONGEST_PAUSE_S = 0.4
_DEAF_PAUSE_S = 5.0
"""How long to wait before trying again where a pooler takes the notifications."""

_ANSWER = "heard"
"""What a listener tells the store that it hears."""
_CHANNELS = channel_topic("")
"""How the topics of notify begin: their payloads are the caller's, and say nothing of who sent them."""

_LOSSES: tuple[type[BaseException], ...] = (DatabaseError, *DRIVER_ERRORS)

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
        notify_elsewhere: notifies a channel over another connection.
        lives: told which life the server is in, each time that the connection is made.
        answered: called when another store's listener says that it hears this store's wakes.
        patience_s: how long a subscription waits until the server listens.
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
        notify_elsewhere: Callable[[str], Awaitable[object]],
        lives: Callable[[str], None],
        answered: Callable[[], None],
        patience_s: float,
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
        self._notify_elsewhere = notify_elsewhere
        self._patience = Patience(_SILENCE_S)
        self._patience_of_signs = Patience(_QUICK_SILENCE_S)
        self._patience_of_watchers = Patience(patience_s)
        self._lives = lives
        self._answered = answered
        self._unanswered: set[str] = set()
        self._known: set[str] = set()
        self._beat_channel = _beat_channel(schema, identity)
        self._connection: Any = None
        self._listening: dict[str, str] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._lost = False
        self._direct = False
        self._deaf: DatabaseError | None = None
        self._stirred = asyncio.Event()
        self._heard: asyncio.Future[None] | None = None
        self._bell: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = (
            "closed"
            if self._closed
            else "deaf"
            if self._deaf
            else "not connected"
            if self._connection is None
            else "connected"
        )
        return f"<Listener {state}, {len(self._listening)} channels, {self.reconnections} reconnections>"

    @property
    def is_connected(self) -> bool:
        """Whether it listens, as far as it knows."""
        return self._connection is not None

    async def watch(self, topic: str) -> Subscription:
        """A subscription that hears every commit from now on that wakes `topic`.

        Raises:
            DatabaseError: the server could not be made to listen in time, or a pooler takes its notifications; nothing
                of the attempt is left.
            ClosedError: the store is closed.
        """
        if self._closed:
            raise _closed()
        if self._deaf is not None:
            raise DatabaseError(*self._deaf.args)
        self.start()
        subscription = self._hub.subscribe(topic)
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(acknowledged)
        self._stirred.set()
        try:
            with self._patience_of_watchers(Expiring(acknowledged)):
                await acknowledged
        except TimeoutError as error:
            subscription.close()
            raise database_error(error, f"cannot listen to {topic!r}") from error
        except BaseException:
            subscription.close()
            raise
        subscription.take()  # what woke until here was committed before (N2)
        return subscription

    def start(self) -> None:
        """Connect, if it has not yet begun to."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def _notified(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        if channel == self._beat_channel:
            if payload == _ANSWER:
                self._answered()
            elif self._heard is not None:
                _settle(self._heard)
        elif payload != self._identity and (topic := self._listening.get(channel)) is not None:
            self._hub.wake((topic,))
            if payload and payload not in self._known and not topic.startswith(_CHANNELS):
                self._known.add(payload)
                self._unanswered.add(payload)
                self._stirred.set()

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
                    _log.info("listening again; the connection was lost %d times by now", self.reconnections)
                    self._hub.wake_everybody()
                before, self._deaf = True, None
                backoff = Backoff(0.02, _LONGEST_PAUSE_S)
                await self._guard(connection)
            except _DeafError as error:
                self._is_deaf(error)
                backoff = Backoff(_DEAF_PAUSE_S, _DEAF_PAUSE_S)
            except _LOSSES as error:
                _log.warning("the listening connection was lost, and is made again: %s", error or type(error).__name__)
            finally:
                self._connection = None
                self._listening.clear()
                if connection is not None:
                    await self._end(connection)
            await asyncio.sleep(backoff.next())

    async def _begin(self, connection: Any) -> None:
        """Listen to whatever is wanted now. Until it is acknowledged, nobody is told that it listens."""
        self._lost = False
        connection.add_termination_listener(self._terminated)
        with self._patience(connection):
            await connection.add_listener(self._beat_channel, self._notified)
            self._lives((await connection.fetch(self._sql["life"]))[0][0])
        self._direct = await self._beat(connection) == connection.get_server_pid()
        if not self._direct:
            await self._hear_from_elsewhere()
        await self._attune(connection)
        self._connection = connection

    async def _hear_from_elsewhere(self) -> None:
        heard = self._heard = asyncio.get_running_loop().create_future()
        await self._notify_elsewhere(self._beat_channel)
        try:
            with self._patience(Expiring(heard)):
                await heard
        except TimeoutError:
            raise _DeafError(_POOLED) from None

    def _is_deaf(self, error: "_DeafError") -> None:
        """Tell everybody: those who want to listen that they cannot, those who do to look for themselves."""
        _log.warning("%s", error)
        self._deaf = error
        for future in self._waiting:
            _settle(future, DatabaseError(*error.args))
        self._waiting.clear()
        self._hub.wake_everybody()

    async def _attune(self, connection: Any) -> None:
        """Listen to what is wanted, and tell those who wait for it.

        By the time the beat is heard, every notification committed before it has been heard too: what a subscription
        then has not heard, was committed after it was asked for, or is of no concern to it.
        """
        waiting = tuple(self._waiting)
        await self._forget_unwanted(connection)
        await self._listen(connection)
        await self._beat(connection)
        for future in waiting:
            _settle(future)
        self._waiting = [future for future in self._waiting if not future.done()]

    def _terminated(self, _connection: Any) -> None:
        self._lost = True
        self._stirred.set()

    async def _guard(self, connection: Any) -> None:
        """Follow what is wanted, and see that the connection lives; raise once it does not."""
        if self._bell is None:
            self._ring()
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            if self._lost:
                raise ConnectionResetError("the server closed it")
            if self._direct and not self._waiting and not self._unanswered and self._is_attuned():
                await self._ask(connection, self._patience_of_signs, "sign_of_life")
                self._patience_of_signs.rest()
            else:
                await self._attune(connection)
                self._patience.rest()

    def _ring(self) -> None:
        """A sign of life is due."""
        # An idle process pays for each time that it is woken. With one listener it takes 0.4 of the CPU that it took
        # with a NOTIFY each second and a timer that ran out in vain between.
        self._bell = asyncio.get_running_loop().call_later(SIGN_S if self._direct else BEAT_S, self._ring)
        self._known.clear()
        self._stirred.set()

    def _is_attuned(self) -> bool:
        return self._hub.topics() == set(self._listening.values())

    async def _listen(self, connection: Any) -> None:
        for topic in self._hub.topics():
            channel = channel_of(self._schema, topic)
            if channel not in self._listening:
                with self._patience(connection):
                    await connection.add_listener(channel, self._notified)
                self._listening[channel] = topic

    async def _forget_unwanted(self, connection: Any) -> None:
        wanted = self._hub.topics()
        for channel, topic in tuple(self._listening.items()):
            if topic not in wanted:
                del self._listening[channel]
                with self._patience(connection):
                    await connection.remove_listener(channel, self._notified)

    async def _beat(self, connection: Any) -> int:
        """Ask for a sign of life, and wait for the NOTIFY that comes with it; the process that answers."""
        heard = self._heard = asyncio.get_running_loop().create_future()
        answered = [_beat_channel(self._schema, identity) for identity in self._unanswered]
        self._unanswered.clear()
        served_by = await self._ask(connection, self._patience, "beat", self._beat_channel, answered, _ANSWER)
        try:
            with self._patience(Expiring(heard)):
                await heard
        except TimeoutError:
            if served_by != connection.get_server_pid():
                raise _DeafError(_POOLED) from None
            raise self._silence() from None
        return served_by

    async def _ask(self, connection: Any, patience: Patience, name: str, *arguments: Any) -> int:
        """Run a statement that gives the server's clock, and who serves it; the latter."""
        try:
            with patience(connection):
                record = (await connection.fetch(self._sql[name], *arguments))[0]
        except TimeoutError:
            raise self._silence() from None
        self._clock.told(record["now"])
        served_by: int = record["served_by"]
        return served_by

    def _silence(self) -> TimeoutError:
        self._silent()
        return TimeoutError("the server went silent")

    async def _end(self, connection: Any) -> None:
        with suppress(*DRIVER_ERRORS):
            await self._hang_up(connection)

    async def close(self) -> None:
        """End the connection and its task. Idempotent."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        self._patience.close()
        self._patience_of_signs.close()
        self._patience_of_watchers.close()
        if self._bell is not None:
            self._bell.cancel()
        for future in self._waiting:
            _settle(future, _closed())
        self._waiting.clear()

    def forget(self) -> None:
        """End it without waiting."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()


def _beat_channel(schema: str, identity: str) -> str:
    """The channel of a store's own listener."""
    return channel_of(schema, f"b:{identity}")


class _DeafError(DatabaseError):
    """Something between here and the server takes the notifications."""


_POOLED = (
    "nobody can listen here: the connection leads to a pooler that does not keep a session, and loses notifications: "
    "open the store with listen_dsn=, the DSN of the server itself"
)


def _settle(future: "asyncio.Future[None]", error: DatabaseError | ClosedError | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # perhaps nobody waits for it any more


def _closed() -> ClosedError:
    return ClosedError("the store was closed meanwhile: open another one")
