"""The environment of each peer: a venv of its own, so that nobody's dependencies decide about anybody else's."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.catalogue import SUBJECTS
from benchmarks.outcome import said

_INSTALL_S = 300


class NotInstalledError(Exception):
    """A peer cannot be installed here; the message says why."""


def pythons() -> Iterator[str]:
    """The Pythons of this machine that work, this one first: a peer may need a newer one."""
    yield sys.executable
    found = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    kept = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))]
    for command in (*found, *kept):
        if command and _run(command, "-c", "").returncode == 0:
            yield command


def python_of(subject: str, folder: Path) -> str:
    """The Python with what `subject` requires, installed below `folder` if it is not there yet.

    Raises:
        NotInstalledError: with the last thing that the installer said.
    """
    requires = SUBJECTS[subject].requires
    if not requires:
        return sys.executable
    place = folder / subject
    python = place / "bin" / "python"
    if (place / "installed").exists():
        return str(python)
    failure = "no Python works"
    for base in pythons():
        shutil.rmtree(place, ignore_errors=True)
        made = _run("uv", "venv", "--quiet", "--python", base, str(place))
        if made.returncode == 0:
            made = _run("uv", "pip", "install", "--quiet", "--python", str(python), *requires)
        if made.returncode == 0:
            (place / "installed").touch()
            return str(python)
        failure = made.stderr
    raise NotInstalledError(said(failure))


def versions_of(python: str, subject: str) -> str:
    """Which version of the peer is in there, and on which Python."""
    name = SUBJECTS[subject].requires[0].partition(">")[0].partition("[")[0]
    code = f"import importlib.metadata as m, sys; print(m.version({name!r}), 'on Python', sys.version.split()[0])"
    return _run(python, "-c", code).stdout.strip()


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
