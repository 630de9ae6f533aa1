"""The page that takes a newcomer to a first green leg: its files are written out, and its commands run."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "writing-an-engine.md"
TEXT = PAGE.read_text("utf-8")


def files() -> dict[str, str]:
    """The files on the page, by the title of their blocks."""
    blocks = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def commands() -> list[tuple[str, list[str]]]:
    """The commands on the page, each with the lines that it is said to print."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    found: list[tuple[str, list[str]]] = []
    for line in "".join(blocks).splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


@pytest.fixture
def project(tmp_path):
    """The page's project, installed as an installer leaves it: its modules, and what its metadata says."""
    for name, content in files().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")
    described = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    info = tmp_path / "alkstore_toy-0.1.0.dist-info"
    info.mkdir()
    requires = "".join(f"Requires-Dist: {requirement}\n" for requirement in described["dependencies"])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n{requires}"
    )
    entries = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in described["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(entries))
    return tmp_path


def run(project: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "alkstore_contract_suite", *command.split()[1:]],
        cwd=project,
        env={**environment, "PYTHONPATH": str(project), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_leg_is_green(project):
    """The page's engine passes the page's leg, and what the page shows of the output is in it."""
    [(command, shown)] = [(command, shown) for command, shown in commands() if command.endswith("queues/claim_order")]
    result = run(project, command)
    assert result.returncode == 1, result.stdout + result.stderr
    passed, verdict = shown
    assert passed in result.stdout
    stated, _, fault = verdict.partition(": filtered run")
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{stated} (suite ")
    assert fault
    assert re.search(r": filtered run: 1 of \d+ legs$", last)


def test_the_next_leg_says_what_is_missing(project):
    """A leg that needs more fails with the name of what is not written yet, as the page shows."""
    [(command, shown)] = [(command, shown) for command, shown in commands() if "ack" in command]
    result = run(project, command)
    assert result.returncode == 1
    assert shown[0] in result.stdout, result.stdout


def test_the_other_commands_exist(project):
    """Every command on the page that is not shown with its output is one that the command line has."""
    for command, shown in commands():
        if command.startswith("alkstore-contract") and not shown:
            assert run(project, f"alkstore-contract {command.split()[1]} --help").returncode == 0


def test_the_page_pins_what_core_is(project):
    """The page's engine pins core as the leg about pinning wants it."""
    result = run(project, "alkstore-contract run toy versions/engine_pins_core versions/one_contract")
    assert "2 passed" in result.stdout, result.stdout
