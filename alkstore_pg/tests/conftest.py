"""Real servers for the engine's own tests: Postgres 18 and 15, or the one that ``ALKSTORE_PG_DSN`` names."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from alkstore_pg.servers import DSN_VARIABLE, LocalServer, NoServerError, binaries

VERSIONS = ("18", "15")


class Machine:
    """The servers of this run, started when first asked for."""

    def __init__(self) -> None:
        self._servers: dict[str, LocalServer] = {}

    def server(self, version: str) -> LocalServer:
        if version not in self._servers:
            try:
                server = LocalServer(binaries(int(version)), ("fsync=off", "max_connections=300"))
            except NoServerError as error:
                pytest.skip(f"NOT RUN on Postgres {version}: {error}")
            self._servers[version] = server
            server.start()
        return self._servers[version]

    def remove(self) -> None:
        for server in self._servers.values():
            server.remove()


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    servers = Machine()
    try:
        yield servers
    finally:
        servers.remove()


@pytest.fixture(params=["given"] if os.environ.get(DSN_VARIABLE) else VERSIONS)
def server_dsn(request: pytest.FixtureRequest, machine: Machine) -> str:
    """The DSN of a server's maintenance database."""
    if request.param == "given":
        return os.environ[DSN_VARIABLE]
    return machine.server(request.param).dsn


@pytest.fixture
async def dsn(server_dsn: str) -> AsyncIterator[str]:
    """The DSN of an empty database of the test's own."""
    async for own in _database(server_dsn):
        yield own


@pytest.fixture
async def dsn18(machine: Machine) -> AsyncIterator[str]:
    """The same on Postgres 18 only, for what is long and depends on no version."""
    async for own in _database(os.environ.get(DSN_VARIABLE) or machine.server("18").dsn):
        yield own


async def _database(server_dsn: str) -> AsyncIterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    administration = await asyncpg.connect(server_dsn)
    try:
        await administration.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(urlsplit(server_dsn)._replace(path=f"/{name}"))
        await administration.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administration.close()


@pytest.fixture
def own_server() -> Iterator[LocalServer]:
    """A server of the test's own, to stop and to kill; durable as a server is by default."""
    try:
        server = LocalServer(binaries(18), ("max_connections=100",))
    except NoServerError as error:
        pytest.skip(f"NOT RUN: {error}")
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
