"""The tables of docs/scale.md: what one Postgres primary sustained, how that grew, and the simulation."""

import re
from pathlib import Path

from benchmarks.catalogue import ALKSTORE, ROWS
from benchmarks.figures import Spread, rounds
from benchmarks.outcome import Results
from benchmarks.report import number, shown, table
from benchmarks.sharding import simulation

_PRIMARY = ALKSTORE["postgres"]
_SUSTAINED = ("enqueue-1", "enqueue-64", "enqueue-many", "enqueue-tx", "drain", "publish-64", "replay")
_GROWING = ("enqueue", "claim 32", "ack 31", "size of the table")
_BUSY = "latency-half-load-processes"


def one_primary(results: Results) -> str:
    """What one primary sustained in that run."""
    rows = [
        [ROWS[name].title, shown(spread, "rate")]
        for name in _SUSTAINED
        if (spread := Spread.of(rounds(results, name, _PRIMARY, "rate")))
    ]
    if offered := rounds(results, _BUSY, _PRIMARY, "offered"):
        both = Spread.of([2 * half for half in offered])
        rows.append(["enqueued and handled side by side, two processes", shown(both, "rate")])
        rows += [
            [f"{ROWS[_BUSY].title}", shown(Spread.of(rounds(results, _BUSY, _PRIMARY, figure)), figure)]
            for figure in ("p50_ms", "p99_ms")
        ]
    return table(["what", "sustained (least to greatest round)"], rows)


def growth(results: Results) -> str:
    """How the cost of operations followed the rows waiting."""
    points = [p for p in results.growth if (p["engine"], p["axis"]) == (_PRIMARY, "live")]
    sizes = sorted({point["at"] for point in points})
    rows = []
    for operation in _GROWING:
        by_size = {p["at"]: p for p in points if p["operation"] == operation}
        if by_size:
            cells = [by_size[size] for size in sizes]
            rows.append(
                [operation, *(number(c["ms"]) + " ms" if "ms" in c else number(c["mb"]) + " MB" for c in cells)]
            )
    return table(["with so many jobs waiting", *(f"{size:,}" for size in sizes)], rows)


def filled(text: str, results: Results) -> str:
    """The page `text` with its tables made anew."""
    made = {
        "measured: one primary": one_primary(results),
        "measured: growth": growth(results),
        "simulated": simulation(),
    }

    def between(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{made[match[1]]}<!-- end -->"

    return re.sub(r"<!-- (measured: [\w ]+|simulated) -->\n.*?<!-- end -->", between, text, flags=re.DOTALL)


def write(results: Results, docs: Path) -> None:
    """Make the tables of scale.md in the folder `docs` anew."""
    page = docs / "scale.md"
    if page.exists():
        page.write_text(filled(page.read_text("utf-8"), results), "utf-8")
