"""Empty databases for tests. Nothing here is used by a store.

Making a database and dropping it costs hundreds of files each time, which is more than most tests do in it. So one that
a test has given back is emptied, and the next test gets it.
"""

import secrets
from urllib.parse import urlsplit, urlunsplit

import asyncpg

_END_CONNECTIONS = "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
_ARE_THERE = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)"
_EMPTY = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN
        SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$
"""


class Databases:
    """The databases of one server that tests use, one after another.

    Args:
        server_dsn: the server's maintenance database, as a role that may create databases.
    """

    def __init__(self, server_dsn: str) -> None:
        self._server_dsn = server_dsn
        self._prefix = f"alkstore_test_{secrets.token_hex(6)}"
        self._free: list[str] = []
        self._all: list[str] = []

    async def take(self) -> str:
        """The DSN of an empty database that is yours until you give it back."""
        if self._free:
            return self._free.pop()
        name = f"{self._prefix}_{len(self._all)}"
        await self.administer(f"CREATE DATABASE {name}")
        self._all.append(name)
        return urlunsplit(urlsplit(self._server_dsn)._replace(path=f"/{name}"))

    async def give_back(self, dsn: str) -> None:
        """End every connection to it, drop all that is in it, and forget its settings."""
        name = name_of(dsn)
        await self.end_connections(dsn)
        await self.administer(f"ALTER DATABASE {name} RESET ALL")
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(_EMPTY)
        finally:
            await connection.close()
        self._free.append(dsn)

    async def end_connections(self, dsn: str) -> None:
        """End every connection to it, without telling whose they are, and return once they have gone."""
        connection = await asyncpg.connect(self._server_dsn)
        try:
            backends = [record["pid"] for record in await connection.fetch(_END_CONNECTIONS, name_of(dsn))]
            while await connection.fetchval(_ARE_THERE, backends):
                pass
        finally:
            await connection.close()

    async def administer(self, *statements: str) -> None:
        """Execute `statements` in the server's maintenance database."""
        connection = await asyncpg.connect(self._server_dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def server_version(self) -> str:
        """The server's version, as it writes it."""
        connection = await asyncpg.connect(self._server_dsn)
        try:
            return str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()

    async def drop_all(self) -> None:
        """Leave none of them behind."""
        await self.administer(*(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in self._all))
        self._free.clear()
        self._all.clear()


def name_of(dsn: str) -> str:
    """The name of the database that `dsn` leads to."""
    return urlsplit(dsn).path.removeprefix("/")
