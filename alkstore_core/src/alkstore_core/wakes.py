"""Wakes inside one store: who waits for which topic, and how it is told (N3, N4, N6).

An engine owns one `WakeHub` and feeds it; core's receivers hold `Subscription`s. Everything here runs on the
store's event loop, so an engine's thread goes through ``loop.call_soon_threadsafe(hub.wake, topics)``.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from alkstore_core.home import Home

LISTENER_RECONNECTED = "__alkstore_listener_reconnected__"
"""The channel of the wake that says: wakes may have been missed, read again (N5)."""

SCHEDULES_TOPIC = "x:schedules"
"""Woken when a schedule was registered or dropped."""


def channel_topic(name: str) -> str:
    """The topic of a notify channel."""
    return "c:" + name


def queue_topic(name: str) -> str:
    """The topic of a queue: a job of it was enqueued, given back, or made ready sooner."""
    return "q:" + name


def mailbox_topic(name: str) -> str:
    """The topic of a mailbox: more of its mail can be handed out than before."""
    return "m:" + name


def stream_topic(name: str) -> str:
    """The topic of a stream: events of it were committed."""
    return "s:" + name


class Subscription:
    """One waiter's place on one topic. Wakes that are not taken coalesce, so it costs the same for ever (N6)."""

    __slots__ = ("_changed", "_hub", "_pending", "_reconnected", "closed", "topic")

    def __init__(self, hub: "WakeHub", topic: str) -> None:
        self.topic = topic
        self.closed = False
        self._hub = hub
        self._pending = False
        self._reconnected = False
        self._changed: asyncio.Event | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "woken" if self._pending or self._reconnected else "idle"
        return f"<Subscription {self.topic!r} {state}>"

    def take(self) -> str | None:
        """What came since the last take: the topic, `LISTENER_RECONNECTED`, or None."""
        if self._reconnected:
            self._reconnected = False
            return LISTENER_RECONNECTED
        if self._pending:
            self._pending = False
            return self.topic
        return None

    async def wait(self) -> str | None:
        """Wait for the next wake and take it; None once closed, for ever after. Cancelled, it loses nothing (N4)."""
        while not self.closed:
            if (woken := self.take()) is not None:
                return woken
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
        return None

    def close(self) -> None:
        """Stop receiving. Idempotent."""
        self._hub.drop(self)
        self.end()

    def abandon(self) -> None:
        """`close`, for a receiver that is being collected: from any thread, never raises."""
        self._hub.abandon(self)

    def wake(self, *, reconnected: bool = False) -> None:
        """Called by the hub: something came."""
        if reconnected:
            self._reconnected = True
        else:
            self._pending = True
        self._tell()

    def end(self) -> None:
        """Called by the hub: nothing comes any more."""
        self.closed = True
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class WakeHub:
    """The subscriptions of one store, by topic. Made on the event loop that it belongs to."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, set[Subscription]] = {}
        self.home = Home()
        """The event loop and the process that it belongs to (T15)."""
        self.closed = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} subscriptions on {len(self._subscriptions)} topics"
        return f"<WakeHub {state}>"

    def __len__(self) -> int:
        return sum(map(len, self._subscriptions.values()))

    def __contains__(self, topic: str) -> bool:
        """Whether somebody listens to `topic` now. From any thread."""
        return topic in self._subscriptions

    def topics(self) -> frozenset[str]:
        """The topics that somebody listens to now."""
        return frozenset(self._subscriptions)

    def subscribe(self, topic: str) -> Subscription:
        """A new subscription, which hears every wake from now on. On a closed hub it is closed already."""
        subscription = Subscription(self, topic)
        if self.closed:
            subscription.end()
        else:
            self._subscriptions.setdefault(topic, set()).add(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription; one already forgotten is no error."""
        listeners = self._subscriptions.get(subscription.topic)
        if listeners is not None:
            listeners.discard(subscription)
            if not listeners:
                del self._subscriptions[subscription.topic]

    def abandon(self, subscription: Subscription) -> None:
        """`drop`, from whatever thread the garbage collector runs on."""
        if self.home.is_forked:
            return  # the loop's self-pipe is the parent's
        with suppress(RuntimeError):  # the loop is closed, and nobody wakes anybody any more
            self.home.loop.call_soon_threadsafe(self.drop, subscription)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake everybody who listens to one of `topics`."""
        for topic in topics:
            for subscription in self._subscriptions.get(topic, ()):
                subscription.wake()

    def wake_everybody(self) -> None:
        """Tell every subscription that wakes may have been missed (N5)."""
        for listeners in self._subscriptions.values():
            for subscription in listeners:
                subscription.wake(reconnected=True)

    def close(self) -> None:
        """End every subscription, and every later one at once. Idempotent."""
        self.closed = True
        ending = [subscription for listeners in self._subscriptions.values() for subscription in listeners]
        self._subscriptions.clear()
        for subscription in ending:
            subscription.end()
