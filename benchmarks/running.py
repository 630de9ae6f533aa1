"""Runs workloads: each measurement in a process of its own, all subjects in turns, round by round."""

import asyncio
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.catalogue import ALKSTORE, SUBJECTS, subjects_of
from benchmarks.databases import Databases
from benchmarks.environments import NotInstalledError, python_of, versions_of
from benchmarks.latency import Scale
from benchmarks.outcome import Outcome, Record, Results, said
from benchmarks.subject import Place

ROOT = Path(__file__).parents[1]
QUICK = Scale(seconds=0.4, jobs=8_000, samples=40, repeats=3)
FULL = Scale(seconds=0.8, jobs=40_000, samples=100, repeats=3)
ROUNDS = 3
_HANGING_S = 120
_GROWING_S = 900
_ONCE = {"replay"}
"""Workloads that repeat within their process, since filling takes longer than measuring."""

console = Console(stderr=True)


class Runner:
    """Measures, and keeps what comes of it."""

    def __init__(self, databases: Databases, results: Results, scale: Scale, environments: Path) -> None:
        self._databases = databases
        self._results = results
        self._scale = scale
        self._environments = environments
        self._pythons: dict[str, str] = {}
        self._missing: dict[str, str] = {}

    async def prepare(self, subjects: Sequence[str]) -> None:
        """Install the peers, and say what is measured on what."""
        versions = {}
        for name in subjects:
            try:
                self._pythons[name] = python = await asyncio.to_thread(python_of, name, self._environments)
            except NotInstalledError as error:
                self._missing[name] = str(error)
                console.print(f"[yellow]{name} is not measured: {error}")
            else:
                if SUBJECTS[name].requires:
                    versions[name] = versions_of(python, name)
        known = self._results.about.get("versions", {})
        self._results.tell(
            {
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
                "load": round(os.getloadavg()[0], 1),
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
                "postgres": await self._databases.settings(),
                "day": time.strftime("%Y-%m-%d"),
                "scale": asdict(self._scale),
                "versions": {**known, **versions},
                "missing": {**self._results.about.get("missing", {}), **self._missing},
            }
        )

    async def run(self, workloads: Sequence[str], subjects: Collection[str], rounds: int = ROUNDS) -> None:
        """Each workload, by those of its subjects in turns, in every round that is not there yet."""
        for number in range(rounds):
            for workload in workloads:
                if any((record.workload, record.round) == (workload, number) for record in self._results.records):
                    continue
                if workload in _ONCE and number:
                    continue
                chosen = [name for name in subjects_of(workload) if name in subjects]
                turn = number % len(chosen)  # nobody is always the first after a pause
                records = [
                    Record(workload, name, number, await self._outcome(name, workload, number))
                    for name in (*chosen[turn:], *chosen[:turn])
                ]
                self._results.add(records)
                console.print(f"round {number + 1}: {workload}  " + "  ".join(map(_shown, records)))

    async def grow(self, axes: Sequence[str], most: Mapping[str, int]) -> None:
        """How operations grow along each of `axes`, on each engine with up to so many rows, where it is not known."""
        for axis in axes:
            for engine in ALKSTORE.values():
                if any((point["engine"], point["axis"]) == (engine, axis) for point in self._results.growth):
                    continue
                rows = most[engine] if axis == "live" else min(most[engine], 1_000_000)
                async with self._databases.place(database=engine == ALKSTORE["postgres"]) as place:
                    command = ("-m", "benchmarks.growth", engine, axis, str(place.folder), place.dsn, str(rows))
                    out, err = await _output(sys.executable, command, place, _GROWING_S)
                self._results.add_growth(json.loads(line) for line in out.splitlines())
                console.print(f"growth: {axis} on {engine}  {said(err.rpartition(chr(10))[2])}")

    async def look_inside(self, engines: Sequence[str]) -> None:
        """Where the time of each operation goes on each of `engines`, where it is not known."""
        for engine in engines:
            if any(layer["engine"] == engine for layer in self._results.layers):
                continue
            async with self._databases.place(database=engine == ALKSTORE["postgres"]) as place:
                command = ("-m", "benchmarks.profiling", engine, str(place.folder), place.dsn, str(self._scale.seconds))
                out, err = await _output(sys.executable, command, place, _HANGING_S)
            self._results.add_layers(json.loads(line) for line in out.splitlines())
            console.print(f"profile: {engine}  {said(err.rpartition(chr(10))[2])}")

    async def _outcome(self, name: str, workload: str, number: int) -> Outcome:
        if name in self._missing:
            return Outcome(failure=f"not installed: {self._missing[name]}")
        if number:  # what it did not offer in the first round it will not offer now
            for earlier in self._results.of(workload, name):
                if earlier.not_offered:
                    return earlier
        async with self._databases.place(database=SUBJECTS[name].family == "postgres") as place:
            return await measure(self._pythons[name], name, workload, place, self._scale)


async def measure(python: str, name: str, workload: str, place: Place, scale: Scale) -> Outcome:
    """The outcome of one measurement, in a process of its own."""
    arguments = ("-m", "benchmarks.measure", name, workload, str(place.folder), place.dsn, json.dumps(asdict(scale)))
    out, err = await _output(python, arguments, place, _HANGING_S)
    try:
        outcome: dict[str, Any] = json.loads(out.strip().rpartition("\n")[2])
        return Outcome(**outcome)
    except (ValueError, TypeError):
        return Outcome(failure=said(err.rpartition("\n")[2]) or "it said nothing")


async def _output(python: str, arguments: Sequence[str], place: Place, seconds: float) -> tuple[str, str]:
    """What a child wrote to stdout and to stderr; it is ended when time is up."""
    child = await asyncio.create_subprocess_exec(
        python,
        *arguments,
        cwd=place.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return "", f"no result within {seconds} s"
    return out.decode(errors="replace"), err.decode(errors="replace").strip()


def _shown(record: Record) -> str:
    outcome = record.outcome
    if outcome.figures:
        value = next(iter(outcome.figures[0].values()))
        return f"{record.subject} {value:,.0f}" if value >= 100 else f"{record.subject} {value:.2f}"
    return f"[red]{record.subject} failed: {outcome.failure[:80]}[/red]" if outcome.failure else ""
