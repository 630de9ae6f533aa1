"""`PgStore`: a store in a Postgres database."""

from typing import Any, Self, cast

import asyncpg
from alkstore_core import Opening, Store
from alkstore_core.clock import Clock
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import at_least

from alkstore_pg.dialling import ByDsn, ByPool, Dialling
from alkstore_pg.engine import PgEngine
from alkstore_pg.schema import DEFAULT_SCHEMA, checked_schema


class PgStore(Store):
    """A store in a Postgres database: any number of processes on any number of machines use it at once.

    Durable as the server is (``synchronous_commit`` and ``fsync`` are its own settings). Times are the server's.
    """

    @classmethod
    def open(
        cls,
        dsn_or_pool: "str | asyncpg.Pool",
        *,
        schema: str = DEFAULT_SCHEMA,
        listen_dsn: str | None = None,
        min_size: int = 1,
        max_size: int = 10,
        migrate: bool = True,
        operation_timeout: float = 30.0,
        clock: Clock | None = None,
        **options: Any,
    ) -> Opening[Self]:
        """A store in the database that `dsn_or_pool` names: to await, or to enter.

        Args:
            dsn_or_pool: ``postgresql://user:password@host/database``, several hosts too; or an asyncpg pool of yours,
                whose connections the store borrows, and which you close after the store. One of them listens for wakes
                unless there is a `listen_dsn`.
            schema: where alkstore's tables are; stores with different schemas do not see each other.
            listen_dsn: the server itself, where `dsn_or_pool` goes through a pooler such as PgBouncer in transaction
                mode, which cannot LISTEN. Then also ``statement_cache_size=0``, unless the pooler knows prepared
                statements.
            min_size: how many connections are kept open.
            max_size: how many are had at most, besides one for listening. Each open transaction has one.
            migrate: bring the tables up to date, which needs the right to create them when they are not. Off, they must
                be: ``python -m alkstore_pg.schema`` prints what their owner runs.
            operation_timeout: how long an operation waits for a free connection, and then for the server's answer, in
                seconds.
            clock: a clock in place of the server's, for tests.
            options: asyncpg's own, for ``create_pool`` and its connections: ``ssl``, ``server_settings``, ….

        Raises:
            DatabaseError: the server cannot be reached, or the schema cannot be used; the cause says which.
            InvalidNameError: `schema` cannot be a schema's name.
            TypeError, ValueError: a size or an option is wrong.
        """
        checked_schema(schema)
        at_least(0, "min_size", min_size)
        at_least(max(1, min_size), "max_size", max_size)
        if not operation_timeout > 0:
            raise ValueError(f"operation_timeout must be more than 0 seconds, and is {operation_timeout!r}")
        dialling: Dialling
        if isinstance(dsn_or_pool, str):
            dialling = ByDsn(dsn_or_pool, listen_dsn, min_size, max_size, options)
        elif isinstance(dsn_or_pool, asyncpg.Pool):
            if options:
                raise TypeError(f"a pool has its own options: leave out {sorted(options)}, or give a DSN")
            dialling = ByPool(dsn_or_pool, listen_dsn)
        else:
            raise DatabaseError(f"give a DSN or an asyncpg pool, not {type(dsn_or_pool).__name__}: {dsn_or_pool!r}")
        return cls.opening(
            PgEngine(dialling, schema, migrate=migrate, operation_timeout=operation_timeout, clock=clock)
        )

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Opening[Store]:
        """What `alkstore_core.open_store` calls for ``postgresql://`` and ``postgres://`` URLs."""
        return cast("Opening[Store]", cls.open(url, **options))
