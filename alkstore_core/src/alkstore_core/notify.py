"""notify and listen: hints that something changed (contract section 5)."""

from typing import TYPE_CHECKING

from alkstore_core.engine import Session
from alkstore_core.errors import ClosedError
from alkstore_core.home import Home
from alkstore_core.names import shared_name
from alkstore_core.payload import encode_payload
from alkstore_core.receiver import Receiver
from alkstore_core.values import Wake
from alkstore_core.wakes import LISTENER_RECONNECTED, Subscription, channel_topic

if TYPE_CHECKING:
    from alkstore_core.store import Store


async def notify(session: Session, channel: str, payload: object) -> None:
    """Check, encode and send one notify on `session`."""
    name = shared_name("channel", channel)
    await session.notify(name, None if payload is None else encode_payload(payload))


async def open_receiver(store: "Store", channel: str) -> "WakeReceiver":
    """A receiver that hears every notify committed from now on."""
    return WakeReceiver(store.home, channel, await store.engine.watch(channel_topic(channel)))


class WakeReceiver(Receiver[Wake]):
    """Hears the notifies of one channel (N2 to N6). Made by `Store.listen`.

    Iterate over it, or call `recv`; close it, or enter it, or let its store close it.
    """

    def __init__(self, home: Home, channel: str, subscription: Subscription) -> None:
        super().__init__(home, subscription)
        self._channel = channel

    def __repr__(self) -> str:
        return f"<WakeReceiver {self._channel!r} {self._state}>"

    async def recv(self) -> Wake | None:
        """The next wake, waiting for it; None once closed, for ever after (N4).

        Wakes that were not received in time are coalesced into one. Its channel is the one listened to, or
        `LISTENER_RECONNECTED` where wakes may have been missed (N5). Cancelled or timed out, it loses nothing.
        """
        self._home.check()
        woken = await self._subscription.wait()
        return None if woken is None else self._wake(woken)

    async def try_recv(self) -> Wake | None:
        """A wake if one is there, else None (N4).

        Raises:
            ClosedError: the receiver is closed.
        """
        self._home.check()
        if self._subscription.closed:
            raise ClosedError(f"this receiver of {self._channel!r} is closed: listen again for another one")
        woken = self._subscription.take()
        return None if woken is None else self._wake(woken)

    def _wake(self, woken: str) -> Wake:
        return Wake(LISTENER_RECONNECTED if woken is LISTENER_RECONNECTED else self._channel)
