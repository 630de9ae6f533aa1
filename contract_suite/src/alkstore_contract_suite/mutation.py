"""How the suite is tested itself: wrong engines, each wrong in one thing, and the legs that must catch it.

A mutant is a function that makes an engine wrong::

    @mutant(kills=["queues/claim_order"])
    def claims_the_newest_first(patch: Patch) -> None:
        ...
        patch.setattr(MemSession, "claim_jobs", wrong)

The suite's tests run the named legs on it, and each must fail.
"""

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Patch(Protocol):
    """What a mutant is given; `pytest.MonkeyPatch` is one."""

    def setattr(self, target: object, name: str, value: object) -> None:
        """Replace an attribute, which must exist, until the legs have run."""


Maker = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong engine.

    Attributes:
        kills: the legs that must fail on it.
        engine: the engine that it spoils.
        hangs: whether its legs fail by waiting for ever; otherwise a leg that hangs has not caught it.
        in_children: whether it spoils the engine in child processes, and not in the parent.
    """

    make: Maker
    kills: tuple[str, ...]
    engine: str
    hangs: bool
    in_children: bool

    @property
    def name(self) -> str:
        """The name of its function, which says what is wrong, and where."""
        return self.make.__name__ + (" in children" if self.in_children else "")


MUTANTS: list[Mutant] = []
"""All that were declared in modules imported so far."""


def mutant(
    *, kills: Sequence[str], engine: str = "mem", hangs: bool = False, in_children: bool = False
) -> Callable[[Maker], Maker]:
    """Declare a wrong engine, see `Mutant`."""

    def declare(make: Maker) -> Maker:
        MUTANTS.append(Mutant(make, tuple(kills), engine, hangs, in_children))
        return make

    return declare


def rewrite(patch: Patch, owner: object, name: str, old: str, new: str, **names: object) -> None:
    """Put `new`, which may use `names`, in the place of `old` in the source of the function `name` of `owner`.

    Raises:
        AssertionError: `old` is not there exactly once.
    """
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{source.count(old)} times in {name}: {old}"
    scope = {**function.__globals__, **names} if names else function.__globals__
    rewritten: dict[str, Any] = {}
    exec(compile(source.replace(old, new), inspect.getfile(function), "exec"), scope, rewritten)  # noqa: S102 - our own code
    patch.setattr(owner, name, rewritten[name])
