"""A store in a fresh file for each test, and a look at what it leaves behind."""

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from alkstore_core.testing import ManualClock
from alkstore_sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database goes."""
    return tmp_path / "app.db"


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `store`."""
    return ManualClock()


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    """An open store."""
    async with SqliteStore.open(path, clock=clock) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Every test ends with the threads that it began with (T12)."""
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if thread.name.startswith("alkstore")} - before
    assert not left, left
