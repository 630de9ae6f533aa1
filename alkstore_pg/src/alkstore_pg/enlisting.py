"""Whose transactions can be joined (T10): asyncpg's connections, and SQLAlchemy's sessions on them."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
from alkstore_core.cancellation import see_through
from alkstore_core.errors import DatabaseError, shown
from asyncpg.pool import PoolConnectionProxy

_WANTED = (
    "enlist takes an asyncpg connection, or a SQLAlchemy AsyncSession or AsyncConnection on asyncpg, "
    "with a transaction open on it"
)


def joined(connection: object) -> Callable[[], Awaitable[Any]]:
    """How to get at the asyncpg connection below `connection`, with its transaction begun.

    Raises:
        DatabaseError: it is something else, closed, or has no transaction open; no SQL was sent.
    """
    if isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
        return _driver(connection)
    if (found := _sqlalchemy(connection)) is not None:
        return found
    raise DatabaseError(f"cannot join {type(connection).__name__} {shown(connection)}: {_WANTED}")


def _driver(connection: Any) -> Callable[[], Awaitable[Any]]:
    try:
        open_ = not connection.is_closed() and connection.is_in_transaction()
    except asyncpg.InterfaceError as error:  # it went back to its pool
        raise DatabaseError(f"cannot join a connection that was released: {_WANTED}") from error
    if not open_:
        raise DatabaseError(
            f"no transaction is open on {connection!r}: enlist inside 'async with connection.transaction()'"
        )
    begun = _transaction_of(connection)

    async def itself() -> Any:
        if not connection.is_in_transaction() or _transaction_of(connection) is not begun:
            raise _ended()
        return connection

    return itself


def _transaction_of(connection: Any) -> object:
    """What tells one transaction of a connection from its next, where asyncpg's ``transaction()`` began it."""
    return getattr(getattr(connection, "_con", connection), "_top_xact", None)


def _sqlalchemy(handle: Any) -> Callable[[], Awaitable[Any]] | None:
    module: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if module is None or not isinstance(handle, module.AsyncSession | module.AsyncConnection):
        return None
    is_session = isinstance(handle, module.AsyncSession)
    if not handle.in_transaction():
        raise DatabaseError(f"no transaction is open on {handle!r}: enlist inside 'async with ….begin()'")
    dialect = handle.get_bind().dialect if is_session else handle.dialect
    if dialect.driver != "asyncpg":
        raise DatabaseError(f"cannot join a SQLAlchemy transaction on {dialect.driver}: {_WANTED}")
    below = handle.sync_session if is_session else handle.sync_connection
    begun = below.get_transaction()

    async def driver() -> Any:
        # Asked for its connection after the end, a session would begin another transaction.
        if begun is None or below.get_transaction() is not begun:
            raise _ended()
        connection = await handle.connection() if is_session else handle
        found = (await connection.get_raw_connection()).driver_connection
        if not found.is_in_transaction():
            # SQLAlchemy begins with its first statement, and what was sent past it would commit by itself.
            await connection.exec_driver_sql("SELECT 1")
            if not found.is_in_transaction():
                raise DatabaseError("this SQLAlchemy connection commits each statement: enlist one that does not")
        return found

    return partial(see_through, driver)


def _ended() -> DatabaseError:
    """The error for what is done after the caller's end of the transaction."""
    return DatabaseError("the enlisted transaction has ended: enlist the one that you work in now")
