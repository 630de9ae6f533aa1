"""A report that was altered, cut or made by another suite proves nothing."""

import json

import pytest
from alkstore_contract_suite import verdict
from alkstore_contract_suite.engines import EngineUnderTest
from alkstore_contract_suite.report import Report
from alkstore_contract_suite.running import run_legs
from alkstore_contract_suite.verdict import check_report
from alkstore_mem.harness import MemHarness

pytestmark = pytest.mark.usefixtures("paper")


def content(**options) -> dict:
    """The report of a run of the paper suite, as JSON values."""
    return run_legs(EngineUnderTest("mem", MemHarness, "alkstore-mem", "1.1.0"), quiet=True, **options).model_dump(
        mode="json"
    )


def loaded(values: dict) -> Report:
    return Report.model_validate_json(json.dumps(values))


def resealed(values: dict) -> Report:
    """A report whose digest was made to fit: the digest is no signature, so the rest must hold by itself."""
    return loaded(values).sealed()


def test_a_whole_report_holds():
    """What a run of all legs on a right engine wrote is found to be in order, after a trip through JSON."""
    values = content()
    assert check_report(loaded(values)) == []
    assert loaded(values).conformant


def test_what_is_not_conformant_stays_so():
    """A whole report of a run that is not conformant says why."""
    assert check_report(loaded(content(keyword="claims"))) == ["filtered run: 1 of 3 legs"]


@pytest.mark.parametrize(
    "alter",
    [
        lambda values: values["engine"].update(version="2.0.0"),
        lambda values: values.update(started_at="2001-01-01T00:00:00+00:00"),
        lambda values: values["legs"][0].update(rules=["Q2"]),
        lambda values: values["legs"][0]["variants"][0].update(duration_s=0.0),
        lambda values: values.update(digest="sha256:" + "0" * 64),
    ],
    ids=["engine", "time", "rules", "duration", "digest"],
)
def test_any_alteration_breaks_the_digest(alter):
    """Whatever is changed in a report, the digest does not fit any more."""
    values = content()
    alter(values)
    assert any("it was altered" in problem for problem in check_report(loaded(values)))


def test_a_leg_that_was_dropped():
    """A report that leaves a leg out is refused, even with a digest that fits."""
    values = content()
    del values["legs"][0]
    assert check_report(resealed(values)) == [
        "it says [], and its legs say ['1 legs are not reported: paper/claims']",
        "1 legs are not reported: paper/claims",
    ]


def test_a_leg_that_stands_twice():
    """A report with a leg in it twice is refused."""
    values = content()
    values["legs"].append(values["legs"][0])
    assert "1 legs are reported twice: paper/claims" in check_report(resealed(values))


def test_faults_that_were_wiped():
    """A report whose faults were taken out is refused."""
    values = content(keyword="claims")
    values["faults"] = []
    assert "it says [], and its legs say ['filtered run: 1 of 3 legs']" in check_report(resealed(values))


def test_an_outcome_that_was_improved():
    """A leg that is said to be better than its variants is refused."""
    values = content(keyword="claims")
    values["legs"][1]["outcome"] = "passed"
    assert "paper/enqueues is said to be passed, and its variants are not_run" in check_report(resealed(values))


def test_an_excuse_that_was_made_up():
    """A hook that is said to be excused although a trait of the engine demands it is refused."""
    values = content()
    values["engine"]["multi_process"] = True
    assert "'child' is said to be excused, and is not" in check_report(resealed(values))


def test_a_leg_with_other_rules():
    """A leg that claims to prove other rules than legs.lock says is refused."""
    values = content()
    values["legs"][0]["rules"] = ["Q1", "Q3"]
    assert "legs are not as in legs.lock: paper/claims" in check_report(resealed(values))


def test_a_report_of_another_suite(monkeypatch):
    """A report of another suite's version is refused, and told which suite to verify it with."""
    values = content()
    monkeypatch.setattr(verdict, "__version__", "1.1.1")
    assert check_report(loaded(values)) == [
        "it was made by suite 1.1.0 for contract 1.1, and this is suite 1.1.1 for contract 1.1: verify it with that one"
    ]
