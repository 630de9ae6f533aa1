"""The SQL of `sql/`, read once, with the schema's name put in. Nothing else assembles SQL.

A file holds statements of one mechanism, each after a line ``-- name: …`` and a line that says what it is for.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_SCHEMA = "{schema}"


def quoted(identifier: str) -> str:
    """`identifier` as SQL writes it."""
    return '"' + identifier.replace('"', '""') + '"'


def in_schema(sql: str, schema: str) -> str:
    """`sql` with the quoted name of `schema` wherever it says ``{schema}``."""
    # Inside a string literal (nextval('{schema}.…')) a quote in the name would end the literal.
    return sql.replace(f"'{_SCHEMA}.", "'" + quoted(schema).replace("'", "''") + ".").replace(_SCHEMA, quoted(schema))


@lru_cache(maxsize=64)
def statements(schema: str) -> Mapping[str, str]:
    """Every named statement, by name, for the tables of `schema`."""
    found: dict[str, str] = {}
    for file in sorted(files("alkstore_pg").joinpath("sql").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            parts = _NAME.split(file.read_text("utf-8"))[1:]
            for name, body in zip(parts[::2], parts[1::2], strict=True):
                text = " ".join(_COMMENT.sub("", body).split()).removesuffix(";")
                found[name] = in_schema(text, schema)
    return MappingProxyType(found)


def scripts(folder: str, schema: str) -> list[tuple[str, str]]:
    """The (name, SQL) of every script in a folder of `sql/`, in the order of their names."""
    entries = sorted(files("alkstore_pg").joinpath("sql", folder).iterdir(), key=lambda entry: entry.name)
    return [(entry.name, in_schema(entry.read_text("utf-8"), schema)) for entry in entries]
