"""Measures a store beside the floors of its database, in turns, and prints medians and ratios.

The machine is shared and noisy: what counts are the ratios of one run.
"""

import asyncio
import json
import statistics
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import floors
import workloads
from rich.console import Console
from rich.progress import track
from rich.table import Table

Measure = Callable[[Path], float]
console = Console()


def of_store(workload: Callable[[str], Coroutine[Any, Any, float]]) -> Measure:
    """Run a workload on a SQLite store in a new folder."""
    return lambda folder: asyncio.run(workload(f"sqlite:///{folder}/app.db"))


def of_floor(floor: Callable[[Path], float]) -> Measure:
    """Run a floor on a database in a new folder."""
    return lambda folder: floor(folder / "floor.db")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a workload, and the floor that it is compared with."""

    name: str
    store: Measure
    floor: Measure | None
    against: str


ROWS = (
    Row("enqueue, 1 caller", of_store(workloads.enqueue_1), of_floor(floors.insert_1), "autocommit inserts"),
    Row(
        "enqueue, 64 callers",
        of_store(workloads.enqueue_64),
        of_floor(partial(floors.group_commit, callers=64)),
        "bare group commit, 64 callers",
    ),
    Row("enqueue_many, 1,000 each", of_store(workloads.enqueue_many), of_floor(floors.insert_many), "executemany"),
    Row("claim + ack, 32 each", of_store(workloads.claim_ack_32), of_floor(floors.claim_ack_32), "update + delete"),
    Row(
        "claim + ack, 32 each, 8 callers",
        of_store(partial(workloads.claim_ack_32, callers=8)),
        of_floor(floors.claim_ack_32),
        "update + delete, 1 caller",
    ),
    Row("worker, no-op handler", of_store(workloads.drain), of_floor(floors.claim_ack_32), "update + delete, 32 each"),
    Row("transaction, row + job", of_store(workloads.transaction), of_floor(floors.transaction), "two inserts"),
    Row(
        "publish, 64 callers",
        of_store(workloads.publish_64),
        of_floor(partial(floors.group_commit, callers=64)),
        "bare group commit, 64 callers",
    ),
    Row("replay of a stream", of_store(workloads.replay), None, ""),
)


def measured(measure: Measure) -> float:
    """One measurement in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="alkstore-bench-") as folder:
        return measure(Path(folder))


def shown(values: list[float]) -> str:
    """Median, with the least and the greatest."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=3, show_default=True, help="How often each is measured; the median counts.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write every figure to this file.")
def main(names: tuple[str, ...], rounds: int, json_file: Path | None) -> None:
    """Measure the workloads whose name has one of NAMES in it; all of them without NAMES."""
    rows = [row for row in ROWS if not names or any(name in row.name for name in names)]
    with_latency = not names or any(name in "latency idle" for name in names)
    if not rows and not with_latency:
        raise click.UsageError(f"no workload has {' or '.join(names)} in its name")
    figures: dict[str, dict[str, list[float]]] = {}
    for row in track(rows, description="measuring", console=console):
        found = figures.setdefault(row.name, {"store": [], "floor": []})
        for _ in range(rounds):  # in turns, so that both meet the same machine
            found["store"].append(measured(row.store))
            if row.floor is not None:
                found["floor"].append(measured(row.floor))
    table = Table("workload", "per second", "floor", "ratio", "floor is", title="SQLite, synchronous=FULL")
    for row in rows:
        store, floor = figures[row.name]["store"], figures[row.name]["floor"]
        ratio = f"{statistics.median(a / b for a, b in zip(store, floor, strict=True)):.2f}" if floor else ""
        table.add_row(row.name, shown(store), shown(floor) if floor else "", ratio, row.against)
    console.print(table)
    single, many = (figures.get(f"enqueue, {callers}", {}).get("store") for callers in ("1 caller", "64 callers"))
    if single and many:
        console.print(f"64 callers enqueue {statistics.median(many) / statistics.median(single):.1f} times what 1 does")
    if with_latency:
        figures |= measure_waiting()
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1))


def measure_waiting() -> dict[str, dict[str, list[float]]]:
    """How soon an idle worker starts, and what waiting costs."""
    figures: dict[str, dict[str, list[float]]] = {}
    table = Table("idle worker starts a job", "p50 ms", "p99 ms")
    for where, here in (("in the same process", True), ("in another process", False)):
        with tempfile.TemporaryDirectory(prefix="alkstore-bench-") as folder:
            latencies = asyncio.run(workloads.start_latency(f"sqlite:///{folder}/app.db", here=here))
        cuts = statistics.quantiles(latencies, n=100)
        figures[f"start latency {where}"] = {"store": latencies}
        table.add_row(where, f"{cuts[49]:.2f}", f"{cuts[98]:.2f}")
    console.print(table)
    table = Table("idle store", "% of a core")
    for listeners in (0, 1, 100):
        with tempfile.TemporaryDirectory(prefix="alkstore-bench-") as folder:
            cost = asyncio.run(workloads.idle_cost(f"sqlite:///{folder}/app.db", listeners))
        figures[f"idle, {listeners} listeners"] = {"store": [cost]}
        table.add_row(f"{listeners} listeners", f"{cost:.2f}")
    console.print(table)
    return figures


if __name__ == "__main__":
    main()
