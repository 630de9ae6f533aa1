"""One leg: a property of the contract, as a test with a stable id (the conventions are in `legs`)."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from alkstore_contract_suite.needs import NEEDS

F = TypeVar("F", bound=Callable[..., Any])

_RULE = re.compile(r"[A-Z][0-9]+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Leg:
    """What is known about a leg without running it.

    Attributes:
        id: ``queues/claim_order`` for ``test_claim_order`` in ``legs/test_queues_claiming.py``; never changed once
            released.
        rules: the contract's rule ids that it proves.
        since: the contract version (major.minor) that it arrived in.
        needs: the hooks beyond a plain harness, see `needs.NEEDS`.
        title: the first line of its docstring: the property as a sentence.
    """

    id: str
    rules: tuple[str, ...]
    since: str
    needs: tuple[str, ...]
    title: str


def leg_id(module: str, function: str) -> str:
    """The id of the leg `function` in `module`: the mechanism, which is the first word of the file's name, and its own.

    So a mechanism may have several files, and a leg that moves from one to another keeps its id.
    """
    mechanism = module.rpartition(".")[2].removeprefix("test_").partition("_")[0]
    return f"{mechanism}/{function.removeprefix('test_')}"


def leg(*, rules: str, since: str, needs: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Make a coroutine function a leg.

    Args:
        rules: the ids of the rules it proves, separated by spaces: ``"Q3 Q4"``.
        since: the contract version it arrives in: ``"1.0"``.
        needs: the hooks it uses that an engine may lack, each a key of `needs.NEEDS`.

    Raises:
        TypeError: it is not a coroutine function.
        ValueError: a rule, a version or a need is malformed or unknown, or it has no docstring.
    """
    ids = tuple(rules.split())
    if not ids or not all(_RULE.fullmatch(rule) for rule in ids):
        raise ValueError(f"rules {rules!r} are not rule ids such as 'Q3 Q4'")
    if not _VERSION.fullmatch(since):
        raise ValueError(f"since {since!r} is not a contract version such as '1.0'")
    if unknown := set(needs) - set(NEEDS):
        raise ValueError(f"unknown needs {sorted(unknown)}: choose from {sorted(NEEDS)}")

    def mark(function: F) -> F:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} is not an 'async def': every leg is")
        if not function.__doc__:
            raise ValueError(f"{function.__qualname__} has no docstring: say the property in one sentence")
        title = inspect.getdoc(function) or ""
        described = Leg(leg_id(function.__module__, function.__name__), ids, since, needs, title.splitlines()[0])
        marked: F = pytest.mark.asyncio(loop_scope="function")(pytest.mark.leg(described)(function))
        return marked

    return mark
