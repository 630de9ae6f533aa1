"""The README says what is so."""

import re
from pathlib import Path

import pytest
from alkstore_contract_suite.cli import main
from alkstore_contract_suite.needs import NEEDS
from alkstore_contract_suite.report import EngineStamp, LegResult, Outcome, Report

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_it_lists_the_hooks_and_what_excuses_from_them():
    """The table of hooks has every need, with the trait that excuses from it."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\| (?:a )?`(\w+)` \|$", README, re.MULTILINE)
    assert dict(rows) == {name: need.excused_without for name, need in NEEDS.items()}


def test_it_lists_the_commands():
    """The table of commands has every command that there is."""
    assert set(re.findall(r"^\| `alkstore-contract (\w+)", README, re.MULTILINE)) == set(main.commands)


@pytest.mark.parametrize("conformant", [True, False])
def test_it_shows_verdicts_as_they_are(conformant):
    """The verdicts that are shown are those of such reports."""
    engine = EngineStamp(
        name="mem",
        distribution="alkstore-mem",
        version="1.1.0",
        contract="1.1",
        backend="dicts",
        durable=False,
        multi_process=False,
        server=False,
        natives=(),
    )
    apart = LegResult(id="a/b", rules=("Q1",), since="1.0", outcome=Outcome.NOT_APPLICABLE)
    passed = LegResult(id="a/c", rules=("Q1",), since="1.0", outcome=Outcome.PASSED)
    report = Report(
        suite="1.1.0",
        contract="1.1",
        engine=engine,
        python="3.11",
        platform="Linux",
        started_at="",
        aborted=None,
        exemptions=(),
        legs=(apart if conformant else passed, passed, passed),
        faults=() if conformant else ("1 failed: queues/claim_order",),
        digest="sha256:9c31f0d2a7b4" if conformant else "sha256:51e0c2aa90fd",
    )
    assert report.verdict in README.splitlines()
