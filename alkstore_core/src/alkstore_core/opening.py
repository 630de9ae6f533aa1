"""What `open`, `listen`, `subscribe` and `begin_tx` return: to await, or to enter."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T", covariant=True)


class Opening(Awaitable[T], AbstractAsyncContextManager[T, None], Generic[T]):
    """One thing about to be opened.

    ``thing = await opening`` gives it to you, to be closed by you; ``async with opening as thing`` closes it at the
    end. Each opening opens once.
    """

    __slots__ = ("_close", "_open", "_opened")

    def __init__(self, open: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]) -> None:
        self._open: Callable[[], Awaitable[T]] | None = open
        self._close = close
        self._opened: T | None = None

    async def _once(self) -> T:
        if self._open is None:
            raise RuntimeError("this was opened already: call the method again for another one")
        opener, self._open = self._open, None
        return await opener()

    def __await__(self) -> Generator[Any, None, T]:
        return self._once().__await__()

    async def __aenter__(self) -> T:
        self._opened = opened = await self._once()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._close(opened)
