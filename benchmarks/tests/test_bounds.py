"""The regression guard lets through what is near its floor, and nothing else."""

import json

import pytest
from benchmarks.__main__ import main
from benchmarks.bounds import Bound, Check, checks, committed
from benchmarks.catalogue import ALKSTORE, ROWS
from benchmarks.outcome import Outcome, Record, Results
from click.testing import CliRunner


def results_of(path, bound, *, alkstore, floor):
    """One round of alkstore and of its floor."""
    results = Results(path / "check.jsonl")
    for subject, value in ((ALKSTORE[bound.family], alkstore), (bound.floor, floor)):
        results.add([Record(bound.workload, subject, 0, Outcome([{bound.figure: value}]))])
    return results


@pytest.mark.parametrize("bound", committed(), ids=lambda bound: f"{bound.workload}-{bound.family}")
def test_each_bound_holds_at_its_limit_and_fails_beyond(tmp_path, bound):
    """A rate that is a little too low, or a latency that is a little too long, fails its bound."""
    rate = bound.figure == "rate"
    at_limit = results_of(tmp_path, bound, alkstore=bound.limit * 1000, floor=1000.0)
    too_slow = results_of(tmp_path / "slow", bound, alkstore=bound.limit * (990 if rate else 1010), floor=1000.0)
    assert [check.held for check in checks(at_limit, [bound])] == [True]
    assert [check.held for check in checks(too_slow, [bound])] == [False]


def test_a_slower_machine_fails_no_bound(tmp_path):
    """Only ratios count: a tenth of both rates is the same."""
    bound = Bound("enqueue-1", "sqlite", 0.5)
    assert checks(results_of(tmp_path, bound, alkstore=60.0, floor=100.0), [bound]) == [Check(bound, 0.6)]
    assert checks(results_of(tmp_path / "slow", bound, alkstore=6.0, floor=10.0), [bound]) == [Check(bound, 0.6)]


def test_what_was_not_measured_does_not_hold(tmp_path):
    """A guard that measures nothing would let everything through."""
    bound = Bound("enqueue-1", "sqlite", 0.5)
    results = Results(tmp_path / "check.jsonl")
    results.add([Record("enqueue-1", "alkstore-sqlite", 0, Outcome(failure="it broke"))])
    assert [check.held for check in checks(results, [bound])] == [False]


def test_the_bounds_are_of_workloads_with_a_floor():
    """Each names a workload, and a family in which that has a floor, once."""
    bounds = committed()
    assert len({(bound.workload, bound.family) for bound in bounds}) == len(bounds) > 10
    assert [bound for bound in bounds if bound.family not in ROWS[bound.workload].floors] == []


@pytest.mark.parametrize(("limit", "code"), [(1e-6, 0), (1e6, 1)])
def test_the_command_measures_and_fails_where_it_is_too_slow(tmp_path, limit, code):
    """Really measured: a bound that everybody meets lets it pass, one that nobody can meet fails it."""
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps({"lock": {"sqlite": limit}}))
    command = ["check", "--bounds", str(bounds), "--results", str(tmp_path / "check.jsonl")]
    assert CliRunner().invoke(main, command).exit_code == code
