"""maker: values that nobody can tell from those that their class makes."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from alkstore_core.engine import Claim
from alkstore_core.making import maker
from alkstore_core.values import Job, Message, StreamEvent

KINDS = [Job, StreamEvent, Message, Claim]


def arguments(kind: type[Any]) -> list[object]:
    """One value for each field, all different."""
    return [f"value {number}" for number, _ in enumerate(fields(kind))]


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_makes_is_of_the_kind_and_equal(kind: type[Any]) -> None:
    """The same class, value, hash and text; copies, pickles and replacements are as ever."""
    plain, made = kind(*arguments(kind)), maker(kind)(*arguments(kind))
    assert type(made) is kind
    assert (made, hash(made), repr(made)) == (plain, hash(plain), repr(plain))
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), replace(made)):
        assert (type(other), other) == (kind, plain)
    assert isinstance(made, kind)
    by_name = dict(zip((field.name for field in fields(kind)), arguments(kind), strict=True))
    assert maker(kind)(**by_name) == plain


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_as_frozen_and_as_slotted(kind: type[Any]) -> None:
    """No field can be set or deleted, and none added."""
    made = maker(kind)(*arguments(kind))
    name = fields(kind)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(made, name, 1)
    with pytest.raises(FrozenInstanceError):
        delattr(made, name)
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_arguments_of_the_kind(kind: type[Any]) -> None:
    """One too few, one too many or one unknown is a TypeError that names the kind."""
    values = arguments(kind)
    for wrong, named in ((values[:-1], {}), ([*values, 1], {}), (values, {"unknown": 1})):
        with pytest.raises(TypeError, match="__init__"):
            maker(kind)(*wrong, **named)
