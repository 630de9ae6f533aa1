"""The legs: described in the code, frozen in legs.lock."""

import re
from pathlib import Path

import pytest
from alkstore_contract_suite.catalogue import LockedLeg, leg_path, locked_legs, written_legs
from alkstore_contract_suite.leg import Leg, leg
from alkstore_contract_suite.rules import RULES


def test_the_lock_is_what_is_written():
    """No leg was added, renamed or removed without freezing it: ``alkstore-contract legs --update``."""
    assert list(locked_legs().values()) == [LockedLeg(one.id, one.since, one.rules) for one in written_legs().values()]


def test_rules_exist():
    """No leg claims a rule that the contract does not have."""
    assert {rule for one in locked_legs().values() for rule in one.rules} <= set(RULES)


def test_ids_say_where_the_leg_is():
    """Each id is the file's and the function's name, in lower case."""
    assert [id for id in locked_legs() if not re.fullmatch(r"[a-z_]+/[a-z0-9_]+", id)] == []


def test_each_id_leads_to_its_leg():
    """The path made from an id names a file that has the function."""
    for id in locked_legs():
        path, _, function = leg_path(id).partition("::")
        assert f"async def {function}(" in Path(path).read_text("utf-8")


def test_a_leg_describes_itself():
    """What the decorator is told is found again, with the id made from the module and the function."""

    @leg(rules="Q1 Q2", since="1.0", needs=("child",))
    async def test_thing():
        """A thing holds.

        And here is why.
        """

    described = next(mark.args[0] for mark in test_thing.pytestmark if mark.name == "leg")
    assert described == Leg("catalogue/thing", ("Q1", "Q2"), "1.0", ("child",), "A thing holds.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": "", "since": "1.0"}, "rules '' are not rule ids"),
        ({"rules": "Q3, Q4", "since": "1.0"}, "rules 'Q3, Q4' are not rule ids"),
        ({"rules": "Q3", "since": "1"}, "since '1' is not a contract version"),
        ({"rules": "Q3", "since": "1.0", "needs": ("wings",)}, "unknown needs"),
    ],
    ids=["none", "commas", "version", "need"],
)
def test_a_wrong_description_is_refused(options, message):
    """A leg with a malformed rule, version or need is an error where it is written."""
    with pytest.raises(ValueError, match=re.escape(message)):
        leg(**options)


def test_a_leg_needs_a_sentence():
    """A leg without a docstring says no property."""

    async def test_thing():
        pass

    with pytest.raises(ValueError, match="has no docstring"):
        leg(rules="Q1", since="1.0")(test_thing)


def test_a_leg_is_asynchronous():
    """A plain function is no leg."""

    def test_thing():
        """A thing holds."""

    with pytest.raises(TypeError, match="is not an 'async def'"):
        leg(rules="Q1", since="1.0")(test_thing)


def test_every_rule_is_proved():
    """Each rule of the contract is proved by at least one leg."""
    proved = {rule for one in locked_legs().values() for rule in one.rules}
    assert sorted(set(RULES) - proved) == []
