"""Bringing a schema up to date, by many processes at once (X2)."""

import hashlib
from typing import Any

import asyncpg
from alkstore_core.errors import DatabaseError

from alkstore_pg.failures import DRIVER_ERRORS, database_error
from alkstore_pg.schema import VERSION, functions, upgrades
from alkstore_pg.statements import in_schema

_TIMEOUT_S = 120.0


async def prepare(connection: Any, schema: str, *, migrate: bool) -> None:
    """See to it that `schema` is at this library's version.

    Whoever comes first migrates, in one transaction, and the others wait for it; a schema that is up to date is only
    looked at, which needs no right but to use it.

    Raises:
        DatabaseError: it is missing or older and `migrate` is off; it is newer; or it cannot be migrated.
    """
    try:
        version = await _version(connection, schema)
        if version < VERSION:
            if not migrate:
                raise _outdated(schema, version)
            async with connection.transaction(isolation="read_committed"):
                await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", *_lock_key(schema), timeout=_TIMEOUT_S)
                version = await _version(connection, schema)
                if version < VERSION:
                    await _upgrade(connection, schema, version)
    except DRIVER_ERRORS as error:
        raise database_error(error, f"schema {schema!r} cannot be brought up to date") from error
    if version > VERSION:
        raise DatabaseError(
            f"schema {schema!r} is at version {version} and this alkstore-pg knows {VERSION}: upgrade alkstore-pg here"
        )


async def _version(connection: Any, schema: str) -> int:
    """The version of `schema`, 0 where there is none."""
    # From the catalogue's own table: to_regclass() answers from a cache that is not refreshed within a transaction.
    known = await connection.fetchval(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = 'migrations'",
        schema,
        timeout=_TIMEOUT_S,
    )
    if known is None:
        return 0
    sql = in_schema("SELECT coalesce(max(version), 0) FROM {schema}.migrations", schema)
    version: int = await connection.fetchval(sql, timeout=_TIMEOUT_S)
    return version


async def _upgrade(connection: Any, schema: str, version: int) -> None:
    if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
        # Asked first: a role that may not create schemas may still own this one.
        try:
            await connection.execute(in_schema("CREATE SCHEMA {schema}", schema), timeout=_TIMEOUT_S)
        except asyncpg.InsufficientPrivilegeError as error:
            raise DatabaseError(
                f"schema {schema!r} is missing and this role may not create it: let its owner run what "
                "'python -m alkstore_pg.schema' prints, and open with migrate=False"
            ) from error
    for number, sql in upgrades(schema, version):
        await connection.execute(sql, timeout=_TIMEOUT_S)
        await connection.execute(
            in_schema("INSERT INTO {schema}.migrations (version) VALUES ($1)", schema), number, timeout=_TIMEOUT_S
        )
    for sql in functions(schema):
        await connection.execute(sql, timeout=_TIMEOUT_S)


def _outdated(schema: str, version: int) -> DatabaseError:
    state = f"is at version {version}" if version else "is missing, or has no alkstore tables"
    return DatabaseError(
        f"schema {schema!r} {state}, and this alkstore-pg needs version {VERSION}: open with migrate=True, or let its "
        "owner run what 'python -m alkstore_pg.schema' prints"
    )


def _lock_key(schema: str) -> tuple[int, int]:
    digest = hashlib.blake2b(f"alkstore migrations\0{schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], signed=True), int.from_bytes(digest[4:], signed=True)
