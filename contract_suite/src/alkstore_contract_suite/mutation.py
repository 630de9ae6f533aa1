"""How the suite is tested itself: wrong engines, each wrong in one thing, and the legs that must catch it.

A mutant is a function that makes an engine wrong with a `pytest.MonkeyPatch`::

    @mutant(kills=["queues/claim_order"])
    def claims_the_newest_first(patch: pytest.MonkeyPatch) -> None:
        ...
        patch.setattr(MemSession, "claim_jobs", wrong)
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from alkstore_contract_suite.engines import find_engine
from alkstore_contract_suite.report import LegResult, Outcome
from alkstore_contract_suite.running import LEG_TIMEOUT_S, run_legs

HANG_S = 1.0
"""How long a leg gets on a mutant on which it hangs."""

_ACCIDENTS = {"AttributeError", "HarnessError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError"}
"""What ends a leg where the mutant itself is broken, and not the contract."""

Patcher = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong engine.

    Attributes:
        kills: the legs that must fail on it.
        engine: the engine that it spoils.
        hangs: whether its legs fail by waiting for ever, which is then shown within `HANG_S`.
        in_children: whether it spoils the engine in child processes, and not in the parent.
    """

    make: Patcher
    kills: tuple[str, ...]
    engine: str
    hangs: bool
    in_children: bool

    @property
    def name(self) -> str:
        """The name of its function, which says what is wrong."""
        return self.make.__name__


MUTANTS: list[Mutant] = []
"""All that were declared in modules imported so far."""


def mutant(
    *, kills: Sequence[str], engine: str = "mem", hangs: bool = False, in_children: bool = False
) -> Callable[[Patcher], Patcher]:
    """Declare a wrong engine, see `Mutant`."""

    def declare(make: Patcher) -> Patcher:
        MUTANTS.append(Mutant(make, tuple(kills), engine, hangs, in_children))
        return make

    return declare


def survivors(wrong: Mutant) -> dict[str, str]:
    """Run the legs that must catch `wrong`; those that do not, each with why that does not count."""
    setup = f"{Path(inspect.getfile(wrong.make)).resolve()}:{wrong.name}" if wrong.in_children else None
    with pytest.MonkeyPatch.context() as patch:
        if not wrong.in_children:
            wrong.make(patch)
        timeout_s = HANG_S if wrong.hangs else LEG_TIMEOUT_S
        report = run_legs(
            find_engine(wrong.engine), only=wrong.kills, quiet=True, leg_timeout_s=timeout_s, child_setup=setup
        )
    results = {result.id: result for result in report.legs}
    verdicts = {id: _doubt(results[id], hangs=wrong.hangs) for id in wrong.kills}
    return {id: doubt for id, doubt in verdicts.items() if doubt is not None}


def _doubt(result: LegResult, *, hangs: bool) -> str | None:
    """Why `result` does not show that the leg caught the mutant; None if it does."""
    if result.outcome is not Outcome.FAILED:
        reasons = [variant.reason for variant in result.variants if variant.reason]
        return f"{result.outcome} {reasons}" if reasons else str(result.outcome)
    for variant in result.variants:
        if variant.failure in _ACCIDENTS:
            return f"ended by accident: {variant.failure}: {variant.reason}"
        if variant.failure == "TimeoutError" and not hangs:
            return f"it hung, and the mutant does not say that its legs hang: {variant.reason}"
    return None
