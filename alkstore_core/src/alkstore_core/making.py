"""Making frozen values by the thousand, as engines do for every page that they read and every batch they claim."""

from collections.abc import Callable
from dataclasses import fields, make_dataclass
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """What makes a `kind`, a frozen and slotted dataclass without defaults, from the same arguments, and sooner.

    A frozen dataclass sets each of its fields by ``object.__setattr__``. Here they are set on one that has the same
    slots and is not frozen, which then becomes the other: 0.26 us instead of 1.2 for a job of 18 fields.
    """
    cls = cast("type[Any]", kind)
    loose: Any = make_dataclass(cls.__name__, [field.name for field in fields(cls)], bases=cls.__bases__, slots=True)

    def make(*values: Any, **named: Any) -> Any:
        made = loose(*values, **named)
        made.__class__ = cls
        return made

    return cast("Callable[P, T]", make)
