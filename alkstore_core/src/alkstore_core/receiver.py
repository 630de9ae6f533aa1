"""What `listen` and `subscribe` give have in common: iterating, entering, and ending."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from alkstore_core.home import Home
from alkstore_core.wakes import Subscription

T = TypeVar("T")


class Receiver(ABC, Generic[T]):
    """Receives from one subscription until it is closed.

    Iterate over it, or call `recv`; close it, or enter it, or let its store close it.
    """

    def __init__(self, home: Home, subscription: Subscription) -> None:
        self._home = home
        self._subscription = subscription

    @property
    def _state(self) -> str:
        return "closed" if self._subscription.closed else "open"

    @abstractmethod
    async def recv(self) -> T | None:
        """The next, waiting for it; None once closed, for ever after (N4)."""

    async def close(self) -> None:
        """Stop receiving. Idempotent."""
        self._home.check()
        self._subscription.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        received = await self.recv()
        if received is None:
            raise StopAsyncIteration
        return received

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        # Dropped unclosed: the hub must not keep its place for ever.
        subscription = getattr(self, "_subscription", None)
        if subscription is not None and not subscription.closed:
            subscription.abandon()
