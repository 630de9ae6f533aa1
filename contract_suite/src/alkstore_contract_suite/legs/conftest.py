"""The fixtures of legs."""

import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from alkstore_core import Store
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.engines import EngineUnderTest, installed
from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.ledger import FAILED, RUN


def pytest_pycollect_makemodule(parent: pytest.Collector) -> None:
    """Refuse to collect legs without an engine."""
    if RUN not in parent.config.stash:
        names = ", ".join(installed()) or "none"
        pytest.exit(
            f"legs need an engine: give --engine NAME (installed: {names}), or use alkstore-contract run NAME",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a leg with ``native_kind`` once for each kind of connection that the engine's ``enlist`` takes."""
    if "native_kind" in metafunc.fixturenames:
        metafunc.parametrize("native_kind", metafunc.config.stash[RUN].engine.harness.natives)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """The engine that is tested: its name, distribution and version."""
    return request.config.stash[RUN].engine


@pytest_asyncio.fixture(loop_scope="function")
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """The engine's harness, with an empty place of this leg's own."""
    run = request.config.stash[RUN]
    with tempfile.TemporaryDirectory(prefix="alkstore-leg-") as directory:
        harness = run.engine.harness(Path(directory))
        async with asyncio.timeout(run.leg_timeout_s):
            await harness.start()
        yield harness
        async with asyncio.timeout(run.leg_timeout_s):
            await harness.stop()
    gc.collect()  # whatever warns that it was left open does it now, and not during another leg


@pytest_asyncio.fixture(loop_scope="function")
async def store(harness: Harness, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store, open and empty."""
    async for opened in _opened(harness, request):
        yield opened


@pytest_asyncio.fixture(loop_scope="function")
async def second_store(harness: Harness, store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Store]:  # noqa: ARG001 - opened first
    """Another store on the data of ``store``, in the same process."""
    async for opened in _opened(harness, request):
        yield opened


async def _opened(harness: Harness, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    seconds = request.config.stash[RUN].leg_timeout_s
    async with asyncio.timeout(seconds):
        opened = await harness.open()
    yield opened
    async with asyncio.timeout(seconds):
        await opened.close()


@pytest.fixture
def clock(harness: Harness) -> ManualClock:
    """The clock of every store of this leg; move it with ``await harness.advance(seconds)``."""
    return harness.clock


@pytest.fixture
def witness(harness: Harness) -> Witness:
    """Reads what is committed without any of the engine's code."""
    return harness.witness


@pytest_asyncio.fixture(loop_scope="function")
async def children(harness: Harness, request: pytest.FixtureRequest) -> AsyncIterator[Children]:
    """Starts child processes on this leg's data; kills those that are left, and shows where they stood if it failed."""
    children = Children(harness, request.config.stash[RUN].child_setup)
    yield children
    if FAILED in request.node.stash:
        request.node.add_report_section("teardown", "children", await children.abort_all())
    await children.kill_all()
