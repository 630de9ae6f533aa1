"""What a harness says about itself is checked before anything runs."""

from typing import ClassVar

import pytest
from alkstore_contract_suite.engines import UnknownEngineError, find_engine, installed
from alkstore_contract_suite.harness import HarnessError, check_declarations
from alkstore_mem.harness import MemHarness


def test_engines_are_found_by_name():
    """An installed engine is found under its entry point's name, with its distribution and version."""
    engine = find_engine("mem")
    assert (engine.name, engine.harness, engine.distribution) == ("mem", MemHarness, "alkstore-mem")
    assert engine.version


def test_an_unknown_engine_is_refused():
    """A name that nobody registered is refused, with those that there are."""
    with pytest.raises(UnknownEngineError, match=f"no harness is registered as 'nope' .installed: {installed()[0]}"):
        find_engine("nope")


def test_a_complete_harness_is_accepted():
    """The memory engine's harness declares what it must."""
    check_declarations(MemHarness)


def test_a_declaration_that_is_missing():
    """A harness without a trait is refused, and told which."""

    class Harness(MemHarness.__mro__[1]):
        contract = "1.0"

    with pytest.raises(HarnessError, match="Harness does not declare 'durable'"):
        check_declarations(Harness)


@pytest.mark.parametrize(
    ("unsupported", "message"),
    [({"wings": "no"}, "names 'wings'"), ({"child": " "}, "gives no reason for 'child'")],
    ids=["unknown", "blank"],
)
def test_an_exemption_that_says_nothing(unsupported, message):
    """An exemption names a hook that exists, and a reason."""

    class Harness(MemHarness):
        pass

    Harness.unsupported = unsupported
    with pytest.raises(HarnessError, match=message):
        check_declarations(Harness)


def test_an_undeclared_need_is_told(tmp_path):
    """A leg that uses a hook without naming it in its needs is told so, also where the engine has declared why."""
    with pytest.raises(HarnessError, match="does not name it in its needs"):
        MemHarness(tmp_path).address()


def test_an_undeclared_lack_is_told(tmp_path):
    """A harness that lacks a hook without saying why is told so."""

    class Harness(MemHarness):
        unsupported: ClassVar = {}

    with pytest.raises(HarnessError, match="does not say why in 'unsupported'"):
        Harness(tmp_path).address()
