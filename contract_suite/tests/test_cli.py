"""The command line: what it prints, what it writes, and how it exits."""

import json
import re
import subprocess
import sys

import pytest
from alkstore_contract_suite import catalogue
from alkstore_contract_suite.cli import main
from alkstore_contract_suite.report import Report
from click.testing import CliRunner, Result

pytestmark = pytest.mark.usefixtures("paper")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_run_says_the_verdict(tmp_path):
    """A run prints what the engine lacks and the verdict, writes both reports, and exits with 0."""
    result = invoke("run", "mem", "--json", tmp_path / "r.json", "--markdown", tmp_path / "r.md")
    assert result.exit_code == 0, result.output
    report = Report.model_validate_json((tmp_path / "r.json").read_bytes())
    lines = result.output.splitlines()
    assert "without child (1 legs not applicable): the data lives in one process" in lines
    assert lines[-1] == report.verdict
    assert report.engine.name == "mem"
    assert report.engine.distribution == "alkstore-mem"
    assert report.digest == report.computed_digest()
    assert (tmp_path / "r.md").read_text().startswith(f"# mem and the alkstore contract 1.1\n\n{report.verdict}\n")


MISCOUNTED = """
from alkstore_contract_suite.cli import main
from alkstore_contract_suite.harness import JobCounts
from alkstore_mem.harness import MemWitness


async def jobs(self, queue):
    return JobCounts(dead=77)


MemWitness.jobs = jobs
main()
"""


def test_a_report_tells_what_was_compared(tmp_path):
    """The reason of a leg that fails in a function that several files of legs use has the values, as any other has."""
    file = tmp_path / "r.json"
    command = [sys.executable, "-c", MISCOUNTED, "run", "mem", "transactions/no_ghosts", "--json", file]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    report = Report.model_validate_json(file.read_bytes())
    reasons = [variant.reason for result in report.legs for variant in result.variants]
    assert len(reasons) == 7
    assert [
        reason for reason in reasons if not re.match(r"AssertionError: assert JobCounts\(.* == JobCounts", reason)
    ] == []


@pytest.mark.parametrize("arguments", [["paper/claims"], ["-k", "claims"]], ids=["id", "keyword"])
def test_a_filtered_run_exits_with_1(arguments):
    """A run of some legs says so, and exits with 1 although all of them passed."""
    result = invoke("run", "mem", *arguments)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].endswith("filtered run: 1 of 3 legs")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'NAME'"),
        (["run", "nope"], "no harness is registered as 'nope' (installed: mem, "),
        (["run", "mem", "paper/folds"], "there is no leg 'paper/folds'"),
        (["matrix"], "Missing argument 'REPORT.json...'"),
        (["matrix", "nothing.json"], "'nothing.json' does not exist"),
        (["verify", "nothing.json"], "'nothing.json' does not exist"),
        (["fly"], "No such command 'fly'"),
    ],
    ids=["no engine", "unknown engine", "unknown leg", "no report", "matrix", "verify", "unknown command"],
)
def test_wrong_usage_exits_with_2(arguments, message):
    """Wrong usage is told from an engine that is not conformant."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_verify_accepts_what_run_wrote(tmp_path):
    """A report that run wrote verifies, with the verdict as the last line; altered by one byte it does not."""
    file = tmp_path / "r.json"
    invoke("run", "mem", "--json", file)
    result = invoke("verify", file)
    assert (result.exit_code, result.output.strip()) == (0, Report.model_validate_json(file.read_bytes()).verdict)
    file.write_text(file.read_text().replace('"1.1.0"', '"1.1.1"', 1))
    assert invoke("verify", file).exit_code == 1


def test_a_file_that_is_no_report(tmp_path):
    """Something else than a report is wrong usage, not a failed verification."""
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"conformant": True}))
    assert invoke("verify", file).exit_code == 2


def test_matrix_shows_reports_side_by_side(tmp_path):
    """The matrix has a column for each report, a row for each rule and a row for each leg."""
    invoke("run", "mem", "--json", tmp_path / "whole.json")
    invoke("run", "mem", "-k", "claims", "--json", tmp_path / "part.json")
    result = invoke("matrix", tmp_path / "whole.json", tmp_path / "part.json")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "| rule | mem 1.1.0 | mem 1.1.0 |" in lines
    assert "| Q1 enqueue options | yes | not run |" in lines
    assert "| T3 all at the commit, nothing after a rollback | n/a | not run |" in lines
    assert "| X2 stored schemas are versioned | no leg | no leg |" in lines
    assert "| `paper/claims` | yes | yes |" in lines
    assert "| `paper/kills` | n/a | not run |" in lines


def test_legs_lists_what_is_written(monkeypatch):
    """The list names each leg with its rules and property, and exits with 0 while legs.lock agrees."""
    monkeypatch.undo()  # the real suite
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["legs"])
    assert result.exit_code == 0, result.output
    assert "queues/claim_order" in result.output


def test_update_never_drops_an_id(tmp_path, monkeypatch):
    """Updating refuses while a locked leg is missing in the code; only naming the leg lets it go."""
    monkeypatch.undo()
    lock = tmp_path / "legs.lock"
    lock.write_text(catalogue.LOCK.read_text() + "zoo/gone 1.0 Q1\n")
    monkeypatch.setattr(catalogue, "LOCK", lock)
    refused = invoke("legs", "--update")
    assert refused.exit_code == 1
    assert "zoo/gone" in refused.output
    assert invoke("legs").exit_code == 1
    assert invoke("legs", "--update", "--remove", "zoo/gone").exit_code == 0
    assert "zoo/gone" not in lock.read_text()


def test_update_adds_what_is_new(tmp_path, monkeypatch):
    """Updating adds the legs that the lock does not know, and writes the same file again from the same legs."""
    monkeypatch.undo()
    whole = catalogue.LOCK.read_text()
    lock = tmp_path / "legs.lock"
    lock.write_text("")
    monkeypatch.setattr(catalogue, "LOCK", lock)
    assert invoke("legs").exit_code == 1
    assert invoke("legs", "--update").exit_code == 0
    assert lock.read_text() == whole
