"""How a store reaches its server: with a DSN and asyncpg's options, or over a caller's own pool."""

from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
from alkstore_core.errors import DatabaseError

from alkstore_pg.connections import Pool, connected

_CONNECT_TIMEOUT_S = 10.0
_LISTENER_CONNECT_TIMEOUT_S = 2.5

_POOL_OPTIONS = frozenset(
    {"init_size", "max_queries", "max_inactive_connection_lifetime", "setup", "init", "reset", "connect"}
)
"""Options of asyncpg's pool that a single connection does not have."""
_ISOLATION = "default_transaction_isolation"


class Dialling(Protocol):
    """How one store gets its connections."""

    @property
    def where(self) -> str:
        """The server, for messages; without a password."""
        ...

    @property
    def owns_pool(self) -> bool:
        """Whether the pool is closed with the store."""
        ...

    @property
    def listens_at_once(self) -> bool:
        """Whether the listening connection is made before anybody listens."""
        ...

    async def pool(self) -> Pool:
        """The pool, connected."""
        ...

    async def connect_listener(self) -> Any:
        """A connection for listening."""
        ...

    async def hang_up_listener(self, connection: Any) -> None:
        """End one."""
        ...


class ByDsn:
    """Connects by itself.

    Args:
        dsn: of the server, or of a pooler in front of it.
        listen_dsn: of the server itself, where `dsn` is a pooler's.
        min_size, max_size: of the pool.
        options: asyncpg's own, for the pool and its connections.
    """

    owns_pool = True
    listens_at_once = True

    def __init__(self, dsn: str, listen_dsn: str | None, min_size: int, max_size: int, options: dict[str, Any]) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._sizes = {"min_size": min_size, "max_size": max_size}
        self._options = {"timeout": _CONNECT_TIMEOUT_S, **options}
        if listen_dsn is None:
            # The engine's statements are written for READ COMMITTED, whatever the server's default is. Given as the
            # session starts, it outlives a reset. A pooler refuses such settings; then each statement states it.
            settings = dict(options.get("server_settings") or {})
            settings.setdefault(_ISOLATION, "read committed")
            self._options["server_settings"] = settings

    @property
    def where(self) -> str:
        return _without_password(self._dsn)

    async def pool(self) -> Pool:
        return await connected(lambda: _created(self._dsn, self._sizes, self._options), f"to {self.where}")

    async def connect_listener(self) -> Any:
        options = {name: value for name, value in self._options.items() if name not in _POOL_OPTIONS}
        options["timeout"] = min(options["timeout"] or _CONNECT_TIMEOUT_S, _LISTENER_CONNECT_TIMEOUT_S)
        return await asyncpg.connect(self._listen_dsn or self._dsn, **options)

    async def hang_up_listener(self, connection: Any) -> None:
        try:
            await connection.close(timeout=1.0)
        finally:
            connection.terminate()


async def _created(dsn: str, sizes: dict[str, int], options: dict[str, Any]) -> Pool:
    pool = asyncpg.create_pool(dsn, **sizes, **options)
    try:
        await pool
    except BaseException:
        pool.terminate()
        raise
    return pool


class ByPool:
    """Uses a caller's pool; one of its connections listens, unless there is a DSN for that."""

    owns_pool = False

    def __init__(self, pool: Pool, listen_dsn: str | None) -> None:
        self._pool = pool
        self._listen_dsn = listen_dsn

    @property
    def listens_at_once(self) -> bool:
        return self._listen_dsn is not None  # else it takes a place in the caller's pool, which is not to be wasted

    @property
    def where(self) -> str:
        return "a pool of the caller's"

    async def pool(self) -> Pool:
        if self._pool.is_closing():
            raise DatabaseError("this pool is closed: give an open one")
        await connected(self._initialised, "with the given pool")
        return self._pool

    async def _initialised(self) -> None:
        await self._pool

    async def connect_listener(self) -> Any:
        if self._listen_dsn is not None:
            options: dict[str, Any] = {"timeout": _LISTENER_CONNECT_TIMEOUT_S}
            return await asyncpg.connect(self._listen_dsn, **options)
        return await self._pool.acquire(timeout=_CONNECT_TIMEOUT_S)

    async def hang_up_listener(self, connection: Any) -> None:
        if self._listen_dsn is not None:
            await connection.close(timeout=1.0)
            return
        connection.terminate()
        await self._pool.release(connection)


def _without_password(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "postgresql://…"
    return f"{parts.scheme}://{host}{parts.path}"
