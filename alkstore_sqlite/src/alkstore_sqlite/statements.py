"""The named SQL statements of `sql/`, read once.

A file holds statements of one mechanism, each after a line ``-- name: …`` and a line that says what it is for.
"""

import re
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")


class Statements:
    """The statements of one file, as attributes."""

    def __init__(self, mechanism: str) -> None:
        text = files("alkstore_sqlite").joinpath("sql", f"{mechanism}.sql").read_text("utf-8")
        parts = _NAME.split(text)[1:]
        # Comments go: the driver tells what a statement is by its first word.
        self.all = MappingProxyType(
            {name: " ".join(_COMMENT.sub("", body).split()) for name, body in zip(parts[::2], parts[1::2], strict=True)}
        )
        vars(self).update(self.all)  # found without `__getattr__`, which costs 0.4 us each time

    def __getattr__(self, name: str) -> str:
        try:
            return self.all[name]
        except KeyError:
            raise AttributeError(f"no SQL statement is named {name!r}") from None
