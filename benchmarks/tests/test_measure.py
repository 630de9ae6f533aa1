"""One measurement, in a process of its own: its figures, or why there are none."""

import sys
from pathlib import Path

import pytest
from benchmarks import subjects
from benchmarks.catalogue import SUBJECTS
from benchmarks.latency import Scale
from benchmarks.outcome import Outcome
from benchmarks.running import measure
from benchmarks.subject import Place
from benchmarks.workload import WORKLOADS

TINY = Scale(seconds=0.1, jobs=64, samples=2, repeats=1)


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_alkstore_does_every_workload(workload, tmp_path):
    """And each gives figures."""
    outcome = await measure(sys.executable, "alkstore-sqlite", workload, Place(tmp_path, ""), TINY)
    assert outcome.failure == ""
    assert all(value > 0 for key, value in outcome.figures[0].items() if key != "cpu_percent")


async def test_who_has_its_data_in_one_process_is_not_asked_for_two(tmp_path):
    """It says why, and nothing is measured."""
    outcome = await measure(sys.executable, "alkstore-mem", "latency-idle-processes", Place(tmp_path, ""), TINY)
    assert outcome == Outcome(not_offered="its data is in one process")


async def test_what_a_subject_does_not_offer_is_said(tmp_path):
    """It is no failure, and no figure."""
    outcome = await measure(sys.executable, "sqlite3", "notify", Place(tmp_path, ""), TINY)
    assert outcome == Outcome(not_offered="no notify")


async def test_a_failure_is_told_and_not_raised(tmp_path):
    """A peer that breaks ends no run."""
    (tmp_path / "app.db").write_text("this is no database, and too long to be an empty one" * 100)
    outcome = await measure(sys.executable, "alkstore-sqlite", "enqueue-1", Place(tmp_path, ""), TINY)
    assert outcome.failure.startswith("DatabaseError: …: file is not a database")


async def test_a_process_that_says_nothing_is_a_failure(tmp_path):
    """It died: the last line that it wrote is why."""
    outcome = await measure(sys.executable, "nobody", "enqueue-1", Place(tmp_path, ""), TINY)
    assert outcome.failure == "KeyError: 'nobody'"


@pytest.mark.parametrize("entry", SUBJECTS.values(), ids=SUBJECTS)
def test_every_subject_is_written_down(entry):
    """Its class is in its module, whether what that imports is installed here or not."""
    module, _, kind = entry.code.partition(":")
    assert f"class {kind}(" in Path(subjects.__path__[0], f"{module}.py").read_text("utf-8")
