"""The example of mailboxes, run as a user runs it: as a command, judged by what it prints and how it exits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1]

WRONG = """
import runpy, sys
from alkstore_core.mailboxes import Mailbox
async def settle(self, **whose): return True
Mailbox.settle = settle
sys.argv = sys.argv[1:]
sys.path.insert(0, {examples!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command, **environment):
    """Run it to its end."""
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "240", "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8", **environment},
    )


@pytest.fixture(params=["temporary", "sqlite", "postgres"])
def arguments(request, tmp_path):
    if request.param == "temporary":
        return []
    url = request.getfixturevalue("dsn") if request.param == "postgres" else f"sqlite:///{tmp_path}/app.db"
    return ["--store", url]


def test_each_task_is_done_once(arguments):
    """A stopped worker is replaced and refused, a heartbeat suppressed, mail rerouted, and each task done once."""
    result = run(str(EXAMPLES / "orchestration.py"), *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == "5 tasks, each done once"
    told = [line.split("│")[2:4] for line in result.stdout.splitlines() if line.startswith("│")]
    story = " | ".join(f"{who.strip()} {what.strip()}" for who, what in told)
    expected = (
        r"ann attaches to '[^']+:left' as generation 1 .*"
        r"ann is handed tasks 1, 2, 3 as …(?P<anns>\w+), and sends a heartbeat .*"
        r"coordinator stops ann with SIGSTOP, batch in hand .*"
        r"bob attaches to '[^']+:left' as generation 2 .*"
        r"bob is handed tasks 1, 2, 3 as …(?P<bobs>\w+), and sends a heartbeat .*"
        r"bob acknowledges the batch, then reports its results and suppresses its heartbeat, in one commit .*"
        r"coordinator is handed the results 1 by bob, 2 by bob, 3 by bob as …\w+; the heartbeat in hand .*"
        r"coordinator lets ann go on with SIGCONT .*"
        r"ann is refused, and ends: mailbox .* is not its consumer any more.*"
        r"coordinator settles the worker of 'left', and reroutes 2 tasks to 'right' .*"
        r"bob is refused, and ends: mailbox .* is settled.*"
        r"cid is handed tasks 4, 5 as …\w+.*"
        r"coordinator is handed the results 4 by cid, 5 by cid"
    )
    found = re.search(expected, story)
    assert found, result.stdout
    assert found["anns"] != found["bobs"]


def test_another_story_is_told_as_such(tmp_path):
    """The control: with a settling that settles nobody, the run says what went otherwise, and fails."""
    script = tmp_path / "wrong.py"
    script.write_text(WRONG.format(examples=str(EXAMPLES)))
    result = run(str(script), str(EXAMPLES / "orchestration.py"))
    assert result.returncode == 1
    assert "It went otherwise: bob says" in result.stdout, result.stdout + result.stderr
