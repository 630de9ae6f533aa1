"""The legs: described in the code, frozen in legs.lock."""

import re
import sys
from pathlib import Path

import pytest
from alkstore_contract_suite import legs
from alkstore_contract_suite.catalogue import (
    DuplicateLegError,
    LockedLeg,
    UnknownLegError,
    leg_path,
    locked_legs,
    written_legs,
)
from alkstore_contract_suite.cli import main
from alkstore_contract_suite.leg import Leg, leg, leg_id
from alkstore_contract_suite.rules import RULES
from click.testing import CliRunner


def test_the_lock_is_what_is_written():
    """No leg was added, renamed or removed without freezing it: ``alkstore-contract legs --update``."""
    assert list(locked_legs().values()) == [LockedLeg(one.id, one.since, one.rules) for one in written_legs().values()]


def test_rules_exist():
    """No leg claims a rule that the contract does not have."""
    assert {rule for one in locked_legs().values() for rule in one.rules} <= set(RULES)


def test_ids_say_where_the_leg_is():
    """Each id is a mechanism, in one word, and the function's name, in lower case."""
    assert [id for id in locked_legs() if not re.fullmatch(r"[a-z]+/[a-z0-9_]+", id)] == []


@pytest.mark.parametrize("module", ["test_queues", "test_queues_claiming", "legs.test_queues_by_id"])
def test_the_first_word_of_a_file_is_the_mechanism(module):
    """A leg has the same id in every file of its mechanism."""
    assert leg_id(module, "test_claim_order") == "queues/claim_order"


def test_each_id_leads_to_its_leg():
    """The path made from an id names a file that has the function."""
    for id in locked_legs():
        path, _, function = leg_path(id).partition("::")
        assert f"async def {function}(" in Path(path).read_text("utf-8")


def test_a_leg_is_found_in_whichever_file_has_it(paper):
    """A leg that moved to another file of its mechanism is found there."""
    (paper / "test_paper.py").rename(paper / "test_paper_folded.py")
    assert leg_path("paper/claims") == f"{paper / 'test_paper_folded.py'}::test_claims"


def test_a_leg_that_is_gone_is_not_found(paper):
    """A leg of the lock that no file of its mechanism has is unknown, whatever else another mechanism has."""
    (paper / "test_paper.py").rename(paper / "test_papers.py")
    with pytest.raises(UnknownLegError, match=r"'paper/claims' is in legs\.lock and not in the code"):
        leg_path("paper/claims")


def test_one_id_in_two_files_is_not_found(paper):
    """Legs of one id in two files are an error where one is asked for: neither is taken for the other."""
    (paper / "test_paper_again.py").write_text((paper / "test_paper.py").read_text())
    with pytest.raises(DuplicateLegError, match=r"^paper/claims is .*: test_paper\.py, test_paper_again\.py$"):
        leg_path("paper/claims")


@pytest.fixture
def again(monkeypatch, tmp_path):
    """A second file of the real suite that has a leg of an id that is taken."""
    source = "from alkstore_contract_suite.leg import leg\n\n\n@leg(rules='Q3', since='1.0')\n"
    (tmp_path / "test_queues_again.py").write_text(f"{source}async def test_claim_order():\n    'In order.'\n")
    monkeypatch.setattr(legs, "__path__", [*legs.__path__, str(tmp_path)])
    yield
    sys.modules.pop(f"{legs.__name__}.test_queues_again", None)


@pytest.mark.usefixtures("again")
def test_one_id_in_two_files_is_not_listed():
    """Legs of one id in two files are an error where all are listed or frozen."""
    with pytest.raises(DuplicateLegError, match=r"^queues/claim_order is .*\btest_queues_again\.py\b"):
        written_legs()
    for arguments in (["legs"], ["legs", "--update"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1
        assert result.output.startswith("queues/claim_order is the id of legs in several files: ")


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
