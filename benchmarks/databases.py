"""A fresh place for each measurement: an empty folder, and an empty database of a Postgres of this run's own."""

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from alkstore_pg.servers import any_server

from benchmarks.subject import Place

_SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers")


class Databases:
    """Makes places, on one server and below one folder."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder

    async def settings(self) -> dict[str, str]:
        """What decides how durable the server is, and how fast."""
        connection: Any = await asyncpg.connect(self._dsn)
        try:
            return {name: await connection.fetchval(f"SHOW {name}") for name in _SHOWN}
        finally:
            await connection.close()

    @asynccontextmanager
    async def place(self, *, database: bool = True) -> AsyncIterator[Place]:
        """An empty place, which is gone afterwards; the server, if it is needed, has just written its checkpoint."""
        name = f"bench_{secrets.token_hex(4)}"
        folder = self._folder / name
        folder.mkdir()
        if not database:
            yield Place(folder, "")
            shutil.rmtree(folder, ignore_errors=True)
            return
        connection: Any = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
            await connection.execute("CHECKPOINT")
            yield Place(folder, urlunsplit(urlsplit(self._dsn)._replace(path=f"/{name}")))
        finally:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            await connection.close()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def served() -> Iterator[Databases]:
    """A Postgres with its default settings, over its Unix socket where it is ours, and a folder on the same disk."""
    with any_server() as (dsn, server), tempfile.TemporaryDirectory(prefix="alkstore-bench-") as folder:
        yield Databases(server.socket_dsn if server else dsn, Path(folder))
