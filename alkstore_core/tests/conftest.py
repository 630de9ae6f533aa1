"""What the tests of core share: a guard against hangs, a clock that they move, stores in memory, and faults."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from alkstore_core.errors import DatabaseError
from alkstore_core.store import Store
from alkstore_core.testing import ManualClock, running_tasks
from alkstore_mem import MemStore

GUARD_S = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs fails, and says where; none comes near the limit otherwise."""
    for item in items:
        test = getattr(item, "obj", None)
        if inspect.iscoroutinefunction(test):
            item.obj = _guarded(test)  # type: ignore[attr-defined]


def _guarded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(GUARD_S):
            await test(*args, **kwargs)

    return run


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only the test moves."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemStore]:
    """A store in memory that goes by `clock`, whose end leaves no task behind."""
    async with MemStore.open(clock=clock) as opened:
        yield opened
    assert running_tasks() == {asyncio.current_task()}


class Faults:
    """Stands in front of a store's real session: notes every call, and lets it fail, or wait, before it happens.

    Attributes:
        calls: the primitives called, with their arguments, in order.
        down: whether the database is away: every call then raises `DatabaseError`.
        stalled: the primitives that wait until `flowing` is set, as if the network swallowed them; "*" is all.
    """

    def __init__(self, store: Store) -> None:
        self._real = store.session()
        self._watch = store.engine.watch
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.down = False
        self.stalled: set[str] = set()
        self.flowing = asyncio.Event()
        self.seen: dict[str, asyncio.Event] = {}
        self.after: dict[str, Callable[[], None]] = {}
        store._session = self  # type: ignore[assignment]
        store.engine.watch = self._watched  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        real = getattr(self._real, name)

        async def call(*args: Any) -> Any:
            await self._meet(name, args)
            result = await real(*args)
            if name in self.after:
                self.after[name]()
            return result

        return call

    async def _watched(self, topic: str) -> Any:
        await self._meet("watch", (topic,))
        return await self._watch(topic)

    async def _meet(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls.append((name, args))
        self.seen.setdefault(name, asyncio.Event()).set()
        if self.stalled & {name, "*"}:
            await self.flowing.wait()
        if self.down:
            raise DatabaseError("the database is away") from ConnectionError("no route")

    async def reached(self, name: str) -> None:
        """Wait for the next call of a primitive."""
        event = self.seen[name] = asyncio.Event()
        await event.wait()

    def names(self) -> list[str]:
        """The primitives called, in order."""
        return [name for name, _ in self.calls]


@pytest.fixture
async def faults(store: MemStore) -> Faults:
    """Faults of `store`."""
    return Faults(store)
