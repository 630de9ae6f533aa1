"""Each leg fails on at least one deliberately wrong engine."""

import importlib.util
import sys
from pathlib import Path

import pytest
from alkstore_contract_suite.catalogue import locked_legs
from alkstore_contract_suite.mutation import MUTANTS, Mutant, survivors

for file in sorted(Path(__file__).with_name("mutants").glob("*.py")):
    spec = importlib.util.spec_from_file_location(f"mutants_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


@pytest.mark.parametrize("wrong", MUTANTS, ids=lambda wrong: wrong.name)
def test_its_legs_catch_it(wrong: Mutant):
    """Each leg that names a wrong engine fails on it, by what it asserts and not by an accident."""
    assert survivors(wrong) == {}


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
