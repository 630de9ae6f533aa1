"""What can be done with this repository, each as ``nox -s NAME``; ``nox -s tests`` does all that decides.

Sessions make their own environments. The workspace's members in ``pyproject.toml`` say which distributions and which
engines there are, so a new engine has its column here, and is red without it, as soon as it is a member.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
os.environ.setdefault("UV_SYSTEM_CERTS", "1")  # trust what this machine trusts, as pip does

PROJECT = nox.project.load_toml("pyproject.toml")
DISTRIBUTIONS: list[str] = PROJECT["tool"]["uv"]["workspace"]["members"]
ENGINES = [
    name.removeprefix("alkstore_") for name in DISTRIBUTIONS if name.startswith("alkstore_") and name != "alkstore_core"
]
TESTED = [path.removesuffix("/tests") for path in PROJECT["tool"]["pytest"]["ini_options"]["testpaths"]]
TESTED.remove("docs")  # a session by itself
WORKERS = {"contract_suite": "4", "model": "2", "examples": "3"}
"""How many processes share a part's tests, where none holds anything to a time: more than two where most of them wait,
for a mutant that hangs, or for the claims of the killed to lapse. All other parts have the machine to themselves."""
OLDER_POSTGRES = "15"
SOURCES = [*(f"{name}/src" for name in DISTRIBUTIONS), "examples", "benchmarks", "noxfile.py"]


def other_pythons() -> list[str]:
    """The Pythons that work on this machine beside the one that runs nox."""
    found = []
    for version in ("3.11", "3.12", "3.13"):
        command = shutil.which(f"python{version}")
        if command is None or version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        if subprocess.run([command, "-c", ""], check=False, capture_output=True).returncode == 0:
            found.append(version)
    return found


OTHER_PYTHONS = other_pythons()


def install(session: nox.Session, *groups: str) -> None:
    """Install the distributions, editable, and what the dependency groups name."""
    editable = [argument for name in DISTRIBUTIONS for argument in ("-e", name)]
    session.install(*editable, *nox.project.dependency_groups(PROJECT, *groups))


@nox.session
def demo(session: nox.Session) -> None:
    """The main job on SQLite: examples/webhooks.py, with whatever options follow ``--``."""
    install(session, "examples", *(["postgres"] if "embedded-pg" in session.posargs else []))
    session.run("python", "examples/webhooks.py", *session.posargs)


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """Everything that decides: the sessions below, each of which can be run by itself."""
    units = [f"unit({part})" for part in TESTED]
    installed = ["wheels", *(f"wheels-{version}" for version in OTHER_PYTHONS if version == "3.13")]
    for name in ("lint", "types", "docs", *units, *installed):
        session.notify(name, ())


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format, and who may import whom."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-logo")


@nox.session
def types(session: nox.Session) -> None:
    """Types, by mypy and by pyright."""
    install(session, "types", "examples", "test", "bench")
    session.run("mypy", *SOURCES)
    session.run("pyright")


@nox.session
@nox.parametrize("part", TESTED, ids=TESTED)
def unit(session: nox.Session, part: str) -> None:
    """One part's own tests, a distribution's or the examples'; ``-- -k NAME`` chooses."""
    install(session, "test", "examples")
    shared = ("-n", WORKERS[part], "--dist", "worksteal") if part in WORKERS else ()
    session.run("pytest", *shared, f"{part}/tests", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, held to the code: snippets run, links and legs exist, options are named."""
    install(session, "test", "types", "examples")
    session.run("pytest", "docs/tests", *session.posargs)


@nox.session
@nox.parametrize("engine", ENGINES, ids=ENGINES)
def contract(session: nox.Session, engine: str) -> None:
    """One engine against the whole contract, from this folder; `wheels` holds what a user installs to it."""
    install(session, "test")
    session.run("alkstore-contract", "run", engine, *session.posargs)


@nox.session
def postgres(session: nox.Session) -> None:
    """The Postgres engine against the contract on an older server, without prepared statements, as poolers want."""
    options = {"ALKSTORE_PG_OPTIONS": '{"statement_cache_size": 0}'}
    if Path(f"/usr/lib/postgresql/{OLDER_POSTGRES}/bin/postgres").exists():
        options["ALKSTORE_PG_VERSION"] = OLDER_POSTGRES
    else:
        session.warn(
            f"NOT RUN on Postgres {OLDER_POSTGRES}: this machine has none (install postgresql-{OLDER_POSTGRES})"
        )
    install(session, "test")
    session.run("alkstore-contract", "run", "pg", *session.posargs, env=options)


def wheels(session: nox.Session) -> None:
    """What a user installs: all distributions built, put into a clean environment, all engines tested there."""
    session.install("uv")
    built = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(built, ignore_errors=True)
    session.run("uv", "build", "--quiet", "--all-packages", "--out-dir", str(built))
    found = [f"{wheel}[testing]" if "alkstore_pg-" in wheel.name else str(wheel) for wheel in built.glob("*.whl")]
    session.install(*found, "sqlalchemy[asyncio]>=2.0")  # whose transactions are joined
    session.chdir(session.create_tmp())
    for engine in ENGINES:
        if engine != "pg" or session.python is None:  # on one Python: three quarters of the time are the server's
            session.run("alkstore-contract", "run", engine)


nox.session(wheels)
for version in OTHER_PYTHONS:
    nox.session(name=f"wheels-{version}", python=version)(wheels)


def benchmark(session: nox.Session, *command: str) -> None:
    """Run ``python -m benchmarks``; peers are installed into environments of their own, and kept in .nox."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *command)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks that matter most, in a few minutes; ``-- NAME`` chooses among all."""
    benchmark(session, "run", *session.posargs)


@nox.session(name="bench-full")
def bench_full(session: nox.Session) -> None:
    """All benchmarks, and docs/performance.md made from them; ``-- NAME`` chooses, ``-- --fresh`` begins anew."""
    benchmark(session, "run", "--full", *session.posargs)
    session.run("python", "-m", "benchmarks", "report")


@nox.session(name="bench-check")
def bench_check(session: nox.Session) -> None:
    """Whether alkstore is as near to the floors of its databases as it was; in ratios, never in absolute times."""
    benchmark(session, "check")


@nox.session
def profile(session: nox.Session) -> None:
    """Where the time of each operation goes: facade, thread, SQL, commit; ``-- NAME`` chooses."""
    benchmark(session, "profile", *session.posargs)
