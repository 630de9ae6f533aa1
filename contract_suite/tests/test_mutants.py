"""Each leg fails on at least one deliberately wrong engine."""

import gc
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
from alkstore_contract_suite.catalogue import locked_legs
from alkstore_contract_suite.engines import find_engine
from alkstore_contract_suite.ledger import LEG_TIMEOUT_S
from alkstore_contract_suite.mutation import MUTANTS, Mutant
from alkstore_contract_suite.report import LegResult, Outcome
from alkstore_contract_suite.running import run_legs

HANG_S, HANG_WITH_CHILDREN_S = 0.5, 5.0
"""How long a leg gets on a mutant on which it hangs; longer where child processes have to start first."""

ACCIDENTS = ("AttributeError", "HarnessError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError")
"""What ends a leg where the mutant itself is broken, and not the contract."""

for file in sorted(Path(__file__).with_name("mutants").glob("*.py")):
    spec = importlib.util.spec_from_file_location(f"mutants_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


@pytest.fixture(autouse=True)
def _little_garbage():
    """Each run ends with several collections, which need not look at what was there before it, nor ever again."""
    gc.freeze()


def survivors(wrong: Mutant) -> dict[str, str]:
    """Run the legs that must catch `wrong`; those that do not, each with why that does not count."""
    setup = f"{Path(inspect.getfile(wrong.make)).resolve()}:{wrong.make.__name__}" if wrong.in_children else None
    with pytest.MonkeyPatch.context() as patch:
        if not wrong.in_children:
            wrong.make(patch)
        hang_s = HANG_WITH_CHILDREN_S if wrong.in_children else HANG_S
        timeout_s = hang_s if wrong.hangs else LEG_TIMEOUT_S
        engine = find_engine(wrong.engine)
        report = run_legs(engine, only=wrong.kills, quiet=True, leg_timeout_s=timeout_s, child_setup=setup)
    doubts = {result.id: doubt_about(result, hangs=wrong.hangs) for result in report.legs if result.id in wrong.kills}
    return {id: doubt for id, doubt in doubts.items() if doubt is not None}


def doubt_about(result: LegResult, *, hangs: bool) -> str | None:
    """Why `result` does not show that the leg caught the mutant; None if it does."""
    if result.outcome is not Outcome.FAILED:
        return f"{result.outcome} {[variant.reason for variant in result.variants if variant.reason]}"
    for variant in result.variants:
        in_child = variant.failure == "ChildError" and any(name in variant.reason for name in ACCIDENTS)
        if variant.failure in ACCIDENTS or in_child:
            return f"ended by accident: {variant.failure}: {variant.reason}"
        if variant.failure == "TimeoutError" and not hangs:
            return f"it hung, and the mutant does not say that its legs hang: {variant.reason}"
    return None


@pytest.mark.parametrize("wrong", MUTANTS, ids=lambda wrong: wrong.name)
def test_its_legs_catch_it(wrong: Mutant):
    """Each leg that names a wrong engine fails on it, by what it asserts and not by an accident."""
    found = survivors(wrong)
    assert not found, "\n".join(f"{id} does not catch {wrong.name}: {doubt}" for id, doubt in found.items())


def test_every_leg_catches_a_wrong_engine():
    """No leg is so weak that none of the wrong engines fails it."""
    assert sorted(set(locked_legs()) - {id for wrong in MUTANTS for id in wrong.kills}) == []


def test_mutants_name_legs_that_exist():
    """A mutant for a leg that is gone is gone too."""
    assert sorted({id for wrong in MUTANTS for id in wrong.kills} - set(locked_legs())) == []


def test_mutants_have_names_of_their_own():
    """Each wrong engine says in its name what is wrong with it."""
    names = [wrong.name for wrong in MUTANTS]
    assert sorted(names) == sorted(set(names))
