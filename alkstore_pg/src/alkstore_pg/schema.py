"""The DDL of alkstore's tables: ``python -m alkstore_pg.schema [SCHEMA]`` prints it for a DBA to run.

It is what `open` runs by itself. Run it in one transaction, then open stores with ``migrate=False``.
"""

import argparse
import re
import sys

from alkstore_core.errors import InvalidNameError
from alkstore_core.names import storable_text

from alkstore_pg.statements import quoted, scripts

DEFAULT_SCHEMA = "alkstore"
VERSION = 4
"""The schema version that this library reads and writes (X2)."""

_LONGEST_BYTES = 63
_NUMBER = re.compile(r"([0-9]+)_")


def checked_schema(name: object) -> str:
    """Give back `name` if Postgres can have a schema of that name.

    Raises:
        InvalidNameError: not a str, empty, with a NUL, over 63 bytes, or under Postgres's own prefix ``pg_``.
    """
    if not isinstance(name, str) or not name or name.startswith("pg_"):
        raise InvalidNameError(f"schema {name!r} is not a schema name: give a str that does not start with 'pg_'", name)
    if len(storable_text("schema name", name).encode()) > _LONGEST_BYTES:
        raise InvalidNameError(f"schema name {name!r} is longer than Postgres's 63 bytes: choose a shorter one", name)
    return name


def upgrades(schema: str, version: int) -> list[tuple[int, str]]:
    """The (version, SQL) of each migration after `version`, in order."""
    numbered = [(int(_NUMBER.match(name)[1]), sql) for name, sql in scripts("migrations", schema)]  # type: ignore[index]  # they all match
    return [(number, sql) for number, sql in numbered if number > version]


def functions(schema: str) -> list[str]:
    """The SQL of the functions, which every migration brings up to date."""
    return [sql for _, sql in scripts("functions", schema)]


def ddl(schema: str = DEFAULT_SCHEMA) -> str:
    """Everything that an empty database needs, as one script.

    Raises:
        InvalidNameError: `schema` cannot be a schema's name.
    """
    name = quoted(checked_schema(schema))
    parts = [f"CREATE SCHEMA IF NOT EXISTS {name};\n"]
    for version, sql in upgrades(schema, 0):
        parts += [sql, f"INSERT INTO {name}.migrations (version) VALUES ({version});\n"]  # noqa: S608 - checked names
    return "\n".join([*parts, *functions(schema)])


def main(arguments: list[str] | None = None) -> None:
    """Print the DDL."""
    parser = argparse.ArgumentParser(prog="python -m alkstore_pg.schema", description="Print the DDL of a store.")
    parser.add_argument("schema", nargs="?", default=DEFAULT_SCHEMA, help="the schema's name (default: %(default)s)")
    sys.stdout.write(ddl(parser.parse_args(arguments).schema))


if __name__ == "__main__":
    main()
