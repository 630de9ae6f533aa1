"""Arguments that nobody should give, next to some that anybody may, by what they are given for."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alkstore_core.numbers import INT64_MAX, INT64_MIN
from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Value:
    """One argument: made anew for each call, since some can be used only once."""

    label: str
    make: Callable[[], Any]

    def __repr__(self) -> str:
        return f"<{self.label}>"


class Named(enum.StrEnum):
    """A str that reads otherwise in an f-string."""

    NAME = "named"


class Numbered(enum.IntEnum):
    """An int that is more."""

    SEVEN = 7


class Reserved(str):
    """A str that lies about how it starts."""

    __slots__ = ()

    def startswith(self, *_: Any) -> bool:
        return False


class Unshowable:
    """Nothing can be said about it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Model(BaseModel):
    """What pydantic users give."""

    value: Any = None


@dataclass
class Record:
    """What others give."""

    value: Any = None


def nested(depth: int) -> Any:
    """Lists in one another."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> Any:
    """A list in itself."""
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_record() -> Any:
    """A dataclass in itself."""
    value = Record()
    value.value = [value]
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be given: the usual, and the hostile."""

    usual: tuple[Value, ...]
    hostile: tuple[Value, ...]


def values(made: dict[str, Any]) -> tuple[Value, ...]:
    """The named values; a function is called for its value."""
    return tuple(Value(label, make if callable(make) else lambda make=make: make) for label, make in made.items())


def kind(usual: dict[str, Any], *hostile: dict[str, Any]) -> Kind:
    """A kind of argument."""
    return Kind(values(usual), tuple(value for made in hostile for value in values(made)))


def in_a_list(first: Any, made: dict[str, Any]) -> dict[str, Any]:
    """Each of the values, second in a list."""
    return {
        f"list with {label}": lambda make=make: [first, make() if callable(make) else make]
        for label, make in made.items()
    }


NOT_TEXT = {
    "None": lambda: None,
    "five": 5,
    "bytes": b"n",
    "list": list,
    "unshowable": Unshowable,
    "a class": lambda: str,
}
UNSTORABLE = {
    "empty": "",
    "blank": " \t\n",
    "no-break space": "\xa0",
    "NUL": "a\0b",
    "lone surrogate": "\ud800",
    "surrogates the wrong way round": "\udc00\ud800",
}
ODD = {
    "long": "n" * 10_000,
    "SQL": "'; DROP TABLE alkstore_jobs; --",
    "formats": "%s %(a)s {0} ? $1 :a",
    "zero-width space": "\u200b",
    "byte order mark": "\ufeff",
    "beyond the basic plane": "\U0001f600",
    "with a line break": "a\nb",
    "an enum's member": lambda: Named.NAME,
}
RESERVED = {
    "reserved": "__alkstore_x",
    "only the prefix": "__alkstore_",
    "reserved, and says it is not": lambda: Reserved("__alkstore_x"),
}
LIMITS = {str(number): number for number in (INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2, INT64_MAX - 1, INT64_MAX)}
NOT_INT64 = {
    "below int64": INT64_MIN - 1,
    "above int64": INT64_MAX + 1,
    "of 5000 digits": lambda: 10**5000,
    "True": True,
    "1.0": 1.0,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "text": "1",
    "bytes": b"1",
    "Decimal": lambda: decimal.Decimal(1),
    "an enum's member": lambda: Numbered.SEVEN,
    "unshowable": Unshowable,
    "list": list,
}

NAMES = kind({"name": "n"}, NOT_TEXT, UNSTORABLE, ODD, RESERVED)
FREE_NAMES = kind({"name": "w"}, NOT_TEXT, UNSTORABLE, ODD, RESERVED)
KEYS = kind({"none": lambda: None, "key": "k"}, NOT_TEXT, UNSTORABLE, ODD)
ERRORS = kind({"text": "e"}, NOT_TEXT, UNSTORABLE, ODD, {"exception": RuntimeError})
NUMBERS = kind({"1": 1}, LIMITS, {"None": lambda: None}, NOT_INT64)
OPTIONALS = kind({"none": lambda: None}, LIMITS, NOT_INT64)
SPECS = kind(
    {"spec": "@every 10s"},
    NOT_TEXT,
    UNSTORABLE,
    {
        "zero": "@every 0s",
        "negative": "@every -1s",
        "a fraction": "@every 1.5s",
        "too much": "@every 9223372036854775808s",
        "too much once multiplied": "@every 9223372036854775807d",
        "5000 digits": "@every " + "9" * 5000 + "s",
        "a space before": " @every 1s",
        "a line break after": "@every 1s\n",
        "capital": "@every 1S",
        "another script's digit": "@every \uff11s",
        "cron": "* * * * *",
        "an enum's member": lambda: Named.NAME,
    },
)
HOSTILE_PAYLOADS = {
    "NaN": float("nan"),
    "infinity": float("-inf"),
    "lone surrogate": "\ud800",
    "lone surrogate in a key": lambda: {"\udfff": 1},
    "as deep as may be": lambda: nested(127),
    "too deep": lambda: nested(128),
    "far too deep": lambda: nested(100_000),
    "cyclic": cyclic,
    "a cyclic dataclass": cyclic_record,
    "key of another kind": lambda: {1: 2},
    "greatest": 2**64 - 1,
    "too great": 2**64,
    "too small": -(2**63) - 1,
    "of 5000 digits": lambda: 10**5000,
    "bytes": b"x",
    "set": lambda: {1},
    "datetime": lambda: dt.datetime(2024, 1, 1),
    "Decimal": lambda: decimal.Decimal("1.5"),
    "UUID": lambda: uuid.UUID(int=1),
    "object": object,
    "unshowable": Unshowable,
    "a class": lambda: int,
    "a function": lambda: len,
    "generator": lambda: (number for number in (1, 2)),
    "exception": lambda: ValueError("x"),
    "enum's member": lambda: Named.NAME,
    "model": lambda: Model(value=[1]),
    "model of the unencodable": lambda: Model(value=float("nan")),
    "dataclass": lambda: Record({"a": 1}),
    "dataclass of the unencodable": lambda: Record({1: 2}),
    "a dataclass itself": lambda: Record,
    "field": lambda: dataclasses.fields(Record)[0],
    "long": "x" * 100_000,
    "NUL": "\0",
}
PAYLOADS = kind({"number": 1, "dict": lambda: {"a": [True]}}, {"None": lambda: None}, HOSTILE_PAYLOADS)
PAYLOAD_LISTS = kind(
    {"two": lambda: [1, 2], "none": list, "generator": lambda: iter([1, 2])},
    in_a_list(1, HOSTILE_PAYLOADS),
    {"text": "ab", "no iterable": 5, "None itself": lambda: None, "dict itself": lambda: {"a": 1}},
)
KEY_LISTS = kind(
    {"none": lambda: None, "two": lambda: ["k", None], "one": lambda: ["k"]},
    in_a_list("k", UNSTORABLE),
    {"of other kinds": lambda: [1, b""], "text": "kl", "no list": 5},
)
ID_LISTS = kind(
    {"none": list, "first": lambda: [1], "twice": lambda: [2, 2], "generator": lambda: iter([1])},
    in_a_list(1, NOT_INT64),
    {"text itself": "1", "no iterable": 5, "None itself": lambda: None},
)
THINGS = kind({"None": lambda: None}, HOSTILE_PAYLOADS)
