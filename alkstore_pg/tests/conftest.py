"""Real servers for the engine's own tests: Postgres 18 and 15, or the one that ``ALKSTORE_PG_DSN`` names."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from alkstore_pg.databases import Databases
from alkstore_pg.servers import LocalServer, binaries
from pg_servers import ABSENT, NEWEST, VERSIONS, Machine


def pytest_report_header() -> str:
    """Say which servers there are."""
    return f"Postgres: {', '.join(VERSIONS)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this run did not see, since it passes all the same."""
    for what, why in ABSENT.items():
        terminalreporter.write_line(f"NOT RUN {what}: {why}", yellow=True, bold=True)


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    servers = Machine()
    try:
        yield servers
    finally:
        servers.remove()


@pytest.fixture(params=VERSIONS)
def databases(request: pytest.FixtureRequest, machine: Machine) -> Databases:
    """The databases of each server in turn."""
    return machine.databases(request.param)


@pytest.fixture
async def dsn(databases: Databases) -> AsyncIterator[str]:
    """The DSN of an empty database of the test's own."""
    own = await databases.take()
    yield own
    await databases.give_back(own)


@pytest.fixture
async def dsn18(machine: Machine) -> AsyncIterator[str]:
    """The same on Postgres 18 only, for what is long and depends on no version."""
    databases = machine.databases(VERSIONS[0])
    own = await databases.take()
    yield own
    await databases.give_back(own)


@pytest.fixture
def own_server() -> Iterator[LocalServer]:
    """A server of the test's own, to stop and to kill; durable as a server must be, and no sooner."""
    server = LocalServer(binaries(NEWEST), ("max_connections=100", "wal_writer_delay=10s"))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
async def plain(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A bare connection to the test's database, which uses no code of the engine."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
