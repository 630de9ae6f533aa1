"""``python -m benchmarks``: measure, report, check, profile. `nox` calls it; see README.md here."""

import asyncio
import sys
from pathlib import Path

import click
from rich.table import Table

from benchmarks import scale
from benchmarks.bounds import COMMITTED, checks, committed
from benchmarks.catalogue import ALKSTORE, FAMILIES, ROWS, SUBJECTS, Family
from benchmarks.databases import served
from benchmarks.figures import Spread, best_peer, measured_rows, ratio, rounds, standing
from benchmarks.growth import AXES
from benchmarks.outcome import Results
from benchmarks.report import shown, write
from benchmarks.running import FULL, QUICK, ROOT, Runner, console

_RESULTS = Path(__file__).with_name("results")
_MOST = {
    False: {"alkstore-mem": 10_000, "alkstore-sqlite": 10_000, "alkstore-pg": 10_000},
    True: {"alkstore-mem": 1_000_000, "alkstore-sqlite": 1_000_000, "alkstore-pg": 10_000_000},
}
"""How many rows growth goes up to, in a quick and in a full run."""
_QUICK_AXES = ("live", "subscribers")


@click.group()
def main() -> None:
    """Measure alkstore beside its floors and its peers."""


@main.command()
@click.argument("names", nargs=-1)
@click.option("--full", is_flag=True, help="Everything, as the page shows it; a run that was interrupted goes on.")
@click.option("--fresh", is_flag=True, help="Forget what an earlier full run measured.")
@click.option("--most", type=int, default=10_000_000, help="How many rows growth goes up to at most.")
@click.option("--results", type=click.Path(path_type=Path), help="Where the figures are kept.")
@click.option("--environments", type=click.Path(path_type=Path), default=ROOT / ".nox" / "peers", show_default=True)
def run(names: tuple[str, ...], full: bool, fresh: bool, most: int, results: Path | None, environments: Path) -> None:
    """Measure the workloads and the axes of growth (growth-live, ...) that have one of NAMES in their name, or all."""
    path = results or _RESULTS / ("full.jsonl" if full else "quick.jsonl")
    if fresh or not full:
        path.unlink(missing_ok=True)
    inside = full and _chosen("profile", names)
    axes = [axis for axis in (AXES if full or names else _QUICK_AXES) if _chosen(f"growth-{axis}", names)]
    workloads = [name for name in ROWS if _chosen(name, names) and (full or names or ROWS[name].quick)]
    if not axes and not workloads and not inside:
        raise click.UsageError(f"nothing has {' or '.join(names)} in its name")
    kept = Results.read(path)

    async def measure() -> None:
        runner = Runner(databases, kept, FULL if full else QUICK, environments)
        await runner.prepare(list(SUBJECTS) if workloads else [])
        await runner.run(workloads, SUBJECTS)
        await runner.grow(axes, {engine: min(most, rows) for engine, rows in _MOST[full].items()})
        await runner.look_inside(list(ALKSTORE.values()) if inside else [])

    with served() as databases:
        asyncio.run(measure())
    show(kept)
    console.print(f"every figure is in {path}")


def _chosen(name: str, names: tuple[str, ...]) -> bool:
    return not names or any(wanted in name for wanted in names)


def show(results: Results) -> None:
    """The tables, on the terminal."""
    for family in FAMILIES:
        found = Table("workload", "alkstore", "of the floor", "of the best peer", title=family)
        for workload in measured_rows(results, family):
            found.add_row(*_line(results, workload, family))
        console.print(found)


def _line(results: Results, workload: str, family: Family) -> list[str]:
    row, mine = ROWS[workload], ALKSTORE[family]
    figure = row.figures[0]
    floor, peer = row.floors.get(family), best_peer(results, workload, family, figure)
    of_floor = ratio(results, workload, mine, floor, figure) if floor else None
    of_peer = ratio(results, workload, mine, peer, figure) if peer else None
    return [
        row.title,
        "; ".join(shown(Spread.of(rounds(results, workload, mine, name)), name) for name in row.figures),
        f"{of_floor.median:.2f} of {floor}" if of_floor else "",
        f"{of_peer.median:.2f} of {peer}: {standing(of_peer.median, figure)}" if of_peer else "",
    ]


@main.command()
@click.option("--results", type=click.Path(path_type=Path), default=_RESULTS / "full.jsonl", show_default=True)
@click.option("--docs", type=click.Path(path_type=Path), default=ROOT / "docs", show_default=True)
def report(results: Path, docs: Path) -> None:
    """Write docs/performance.md and its plots, and the tables of docs/scale.md, from a full run's figures."""
    kept = Results.read(results)
    write(kept, docs)
    scale.write(kept, docs)


@main.command()
@click.argument("names", nargs=-1)
def profile(names: tuple[str, ...]) -> None:
    """Show where the time of one call goes, on the engines that have one of NAMES in their name, or on all."""
    kept = Results(_RESULTS / "profile.jsonl")
    kept.path.unlink(missing_ok=True)
    with served() as databases:
        runner = Runner(databases, kept, FULL, ROOT / ".nox" / "peers")
        asyncio.run(runner.look_inside([engine for engine in ALKSTORE.values() if _chosen(engine, names)]))
    found = Table("operation", "engine", "layer", "µs", title="one call by one caller")
    for layer in sorted(kept.layers, key=lambda layer: (layer["operation"], layer["engine"])):
        found.add_row(layer["operation"], layer["engine"], layer["layer"], f"{layer['us']:.1f}")
    console.print(found)


@main.command()
@click.option("--bounds", "path", type=click.Path(path_type=Path), default=COMMITTED, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=_RESULTS / "check.jsonl", show_default=True)
def check(path: Path, results: Path) -> None:
    """Measure alkstore and its floors, and fail where a ratio is out of the committed bounds."""
    bounds = committed(path)
    kept = Results(results)
    kept.path.unlink(missing_ok=True)
    subjects = {name for bound in bounds for name in (ALKSTORE[bound.family], bound.floor)}

    async def measure() -> None:
        runner = Runner(databases, kept, QUICK, ROOT / ".nox" / "peers")
        await runner.prepare(sorted(subjects))
        await runner.run(list(dict.fromkeys(bound.workload for bound in bounds)), subjects)

    with served() as databases:
        asyncio.run(measure())
    found = Table("workload", "family", "of the floor", "bound", "")
    made = checks(kept, bounds)
    for checked in made:
        reached = "not measured" if checked.ratio is None else f"{checked.ratio:.2f}"
        verdict = "held" if checked.held else "[red]out of bounds"
        found.add_row(checked.bound.workload, checked.bound.family, reached, str(checked.bound.limit), verdict)
    console.print(found)
    sys.exit(0 if all(checked.held for checked in made) else 1)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
