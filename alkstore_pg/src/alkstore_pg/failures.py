"""What the driver's errors mean for a user (E1, E3)."""

import asyncpg
from alkstore_core.errors import DatabaseError

DRIVER_ERRORS: tuple[type[BaseException], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # TimeoutError too
    EOFError,
)
"""Everything that asyncpg and the network below it raise."""

_POOLER = "a pooler sits between: open with statement_cache_size=0, and with listen_dsn= for the server itself"
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncpg.InvalidCatalogNameError,
        "create the database first, or check its name in the DSN",
    ),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "check the user and the password in the DSN, and the server's pg_hba.conf",
    ),
    (asyncpg.TooManyConnectionsError, "lower max_size, or raise the server's max_connections"),
    (asyncpg.UndefinedTableError, "this is not the store's schema, or it was dropped: open the store again"),
    (asyncpg.UndefinedFunctionError, "this is not the store's schema, or an older one: open with migrate=True"),
    (asyncpg.InvalidSchemaNameError, "this is not the store's schema, or it was dropped: open the store again"),
    (
        asyncpg.InsufficientPrivilegeError,
        "grant the role what the documentation lists, or run the DDL as the schema's owner",
    ),
    (asyncpg.InFailedSQLTransactionError, "an earlier statement of this transaction failed, so roll it back"),
    (
        asyncpg.DuplicatePreparedStatementError,
        _POOLER,
    ),
    (
        asyncpg.InvalidSQLStatementNameError,
        _POOLER,
    ),
    (asyncpg.InterfaceError, "the connection is used by another task, or was closed: use one from one task at a time"),
    (TimeoutError, "the server did not answer in time: check the network and the server's load"),
    (OSError, "the server cannot be reached: check that it runs and that the DSN names its host and port"),
)


def database_error(error: BaseException, doing: str = "") -> DatabaseError:
    """The error to raise from `error`, which came up while `doing` something."""
    text = str(error) or type(error).__name__
    what = f"{doing}: {text}" if doing else text
    if "unsupported startup parameter" in text:
        return DatabaseError(f"{what}: {_POOLER}")
    for kind, advice in _ADVICE:
        if isinstance(error, kind):
            return DatabaseError(f"{what}: {advice}")
    return DatabaseError(what)


def is_loss(error: BaseException) -> bool:
    """Whether the connection was lost with `error`, so that what it had begun may yet have been committed."""
    if isinstance(error, asyncpg.PostgresError):
        # Class 08 is a lost connection; 57P01 to 57P03 end one, and may come after a commit that waits for a standby.
        code = getattr(error, "sqlstate", None) or ""
        return code.startswith("08") or code in ("57P01", "57P02", "57P03")
    if isinstance(error, asyncpg.InterfaceError):
        return "connection is closed" in str(error) or "closed in the middle" in str(error)
    return isinstance(error, asyncpg.InternalClientError | OSError | EOFError)
