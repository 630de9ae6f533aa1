"""``pytest --pyargs alkstore_contract_suite.legs``, in a folder with no configuration, as an engine author runs it."""

import os
import subprocess
import sys

import pytest


def run_pytest(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--pyargs", "alkstore_contract_suite.legs", "-q", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_an_engine_is_named(tmp_path):
    """With an engine the legs run, without any configuration, and the verdict is printed and decides the exit."""
    result = run_pytest(tmp_path, "--engine", "mem", "-k", "listen_starts_from_now")
    assert "1 passed" in result.stdout, result.stdout
    assert "mem: NOT conformant with contract 1.1" in result.stdout
    assert "filtered run: 1 of " in result.stdout
    assert result.returncode == pytest.ExitCode.TESTS_FAILED


def test_no_engine_is_an_error(tmp_path):
    """Without an engine nothing runs, and the message says which there are."""
    result = run_pytest(tmp_path)
    assert result.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "legs need an engine: give --engine NAME (installed: mem" in result.stdout + result.stderr


def test_an_unknown_engine_is_an_error(tmp_path):
    """An engine that is not installed is wrong usage."""
    result = run_pytest(tmp_path, "--engine", "nope")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no harness is registered as 'nope'" in result.stderr


def test_other_tests_are_left_alone(tmp_path):
    """Where the suite is installed and not asked for, pytest runs as ever."""
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == pytest.ExitCode.OK
    assert "alkstore contract" not in result.stdout
