"""The stored schema: its version, and how a file comes to the one that this package knows (X2)."""

import re
import sqlite3
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from alkstore_core.errors import DatabaseError

_OBJECT = re.compile(r"^CREATE (VIEW|TRIGGER) (\w+)", re.MULTILINE)
_FILE = re.compile(r"(\d{4})_\w+\.sql")


class Migration(NamedTuple):
    """One numbered step: the statements that lead to schema version `version`."""

    version: int
    sql: str

    def statements(self) -> list[str]:
        """All that it does, its version written down at the end."""
        versioned = (
            f"INSERT INTO alkstore_meta (key, value) VALUES ('schema_version', {self.version}) "  # noqa: S608 - a number
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        return [*split(self.sql), versioned]


class StandingObject(NamedTuple):
    """A view or a trigger that stands in every file: what it is, its name, and the statement that makes it."""

    kind: str
    name: str
    sql: str


def standing_objects() -> tuple[StandingObject, ...]:
    """The views and triggers of `sql/outstanding.sql`, in the order in which they can be made."""
    statements = split(files("alkstore_sqlite").joinpath("sql", "outstanding.sql").read_text("utf-8"))
    found = ((_OBJECT.search(statement), statement) for statement in statements)
    return tuple(
        StandingObject(match[1], match[2], statement[match.start() :].removesuffix(";"))
        for match, statement in found
        if match is not None
    )


def is_standing(cursor: sqlite3.Cursor) -> bool:
    """Whether every view and trigger is there, and as this package has it."""
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')")
    stored = dict(cursor.fetchall())
    return all(stored.get(one.name) == one.sql for one in standing_objects())


def restoring() -> list[str]:
    """The statements that make every view and trigger anew, whatever is there."""
    objects = standing_objects()
    return [f"DROP {one.kind} IF EXISTS {one.name}" for one in reversed(objects)] + [one.sql for one in objects]


def restore(cursor: sqlite3.Cursor) -> None:
    """Put back what `is_standing` misses (M17), in a transaction of its own."""
    cursor.execute("BEGIN IMMEDIATE")
    try:
        if not is_standing(cursor):
            for statement in restoring():
                cursor.execute(statement)
        cursor.execute("COMMIT")
    except BaseException:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise


def known_migrations() -> tuple[Migration, ...]:
    """The migrations of this package, in order: the numbered files of `sql/`."""
    found = sorted(
        (Migration(int(match[1]), file.read_text("utf-8")))
        for file in files("alkstore_sqlite").joinpath("sql").iterdir()
        if (match := _FILE.fullmatch(file.name))
    )
    return tuple(found)


def schema_version(cursor: sqlite3.Cursor) -> int:
    """The version of the file's schema, 0 where alkstore has no tables yet."""
    cursor.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alkstore_meta'")
    if cursor.fetchone() is None:
        return 0
    cursor.execute("SELECT value FROM alkstore_meta WHERE key = 'schema_version'")
    row = cursor.fetchone()
    return 0 if row is None else row[0]


def refuse_newer(version: int, path: str, migrations: Sequence[Migration]) -> None:
    """Raise DatabaseError if `version` is beyond what `migrations` lead to."""
    newest = migrations[-1].version
    if version > newest:
        raise DatabaseError(
            f"{path} has alkstore schema version {version}, and this alkstore-sqlite knows versions up to {newest}: "
            "upgrade alkstore-sqlite; the file was not touched"
        )


class SchemaCheck:
    """Looks at the beginning of each transaction of one connection whether the schema is newer by now (X2)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ddl_count = -1

    def __call__(self, cursor: sqlite3.Cursor) -> None:
        """Raise DatabaseError if it is."""
        # Any DDL by anybody counts this up: only then is it worth asking whether a newer alkstore migrated.
        ddl_count: int = cursor.execute("PRAGMA schema_version").fetchone()[0]
        if ddl_count != self._ddl_count:
            refuse_newer(schema_version(cursor), self._path, known_migrations())
            self._ddl_count = ddl_count


def migrate(cursor: sqlite3.Cursor, path: str, migrations: Sequence[Migration]) -> None:
    """Bring the schema forward, each version in a transaction of its own.

    The caller holds the gate, so no other store migrates meanwhile. A fault leaves the version reached before.

    Raises:
        DatabaseError: the schema is newer than `migrations`.
        sqlite3.Error: a migration failed; its transaction was rolled back.
    """
    for migration in migrations:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            version = schema_version(cursor)
            refuse_newer(version, path, migrations)
            if version < migration.version:
                for statement in migration.statements():
                    cursor.execute(statement)
            cursor.execute("COMMIT")
        except BaseException:
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def split(script: str) -> list[str]:
    """The statements of a script: ``executescript`` would commit the transaction it runs in."""
    statements: list[str] = []
    pending = ""
    for part in re.split(r"(?<=;)", script):
        pending += part
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
