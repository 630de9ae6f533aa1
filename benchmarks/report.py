"""The page: everything on it comes from one run's results, by ``python -m benchmarks report``."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.catalogue import ALKSTORE, ASYNC_PEERS, FAMILIES, ONE_CALLER, ROWS, SUBJECTS, Family, Target
from benchmarks.figures import (
    Spread,
    best_peer,
    growth_factor,
    growth_kind,
    measured_rows,
    operation_plot,
    ratio,
    rounds,
    standing,
    verdict,
)
from benchmarks.outcome import Results

_TITLES: dict[Family, str] = {"sqlite": "SQLite", "postgres": "Postgres", "mem": "Memory"}
_UNITS = {
    "rate": "/s",
    "offered": "/s",
    "p50_ms": " ms",
    "p99_ms": " ms",
    "cpu_percent": " % of a core",
    "rss_mb": " MB",
}
_SHORT = {"p50_ms": "p50", "p99_ms": "p99", "offered": "offered", "cpu_percent": "CPU", "rss_mb": "memory", "rate": ""}
_GROWTH_UNITS = {"ms": " ms", "rate": "/s", "mb": " MB", "rows": ""}
_WHY = {
    "publish until all have it": "each subscriber is woken and given the event; what they read, they share",
    "publish": "with live subscribers in the same process, their reads compete with the next publish",
    "size of the table": "it holds the rows",
    "size after churn": "dead rows keep their room until vacuum, which gives it to new ones",
    "dead tuples before vacuum": "each finished job leaves two",
    "drain by so many workers": "more workers share each commit",
}
"""Why an operation's cost may grow, where it does."""

_HEAD = """\
# Performance

<!-- Generated from one run's results by `python -m benchmarks report`: do not edit. -->

alkstore beside the floor of each database (the bare driver doing the same durable work) and beside what users would
pick instead. Every number on this page is from one run on one machine: it says how things compare, not what yours will
do. [How it is measured, and how to run it again](../benchmarks/README.md).

"""
_GROWTH = """\
## Growth

One call's median as the table fills, with all else equal: jobs that are live, delayed or dead, delayed jobs of so many
priorities, queues, workers, subscribers. Flat is less than twofold from the fewest to the most, logarithmic at most
once more for each tenfold.
Taking and releasing a lock touches none of these rows: what it does along an axis is the machine's own noise, mostly
the disk's.

"""


_LAYERS = """\
## Where the time goes

Microseconds of one call by one caller, with nothing else going on. The facade is core's checks and encoding; the engine
is what it does outside its database, on SQLite the hop to the writer thread and back; the rest is the database's own. A
transaction is shown by its steps. `nox -s profile` measures it on your machine.

"""


def page(results: Results) -> str:
    """The page, from what the results hold."""
    parts = [_HEAD, _about(results)]
    for family in FAMILIES:
        parts.append(f"## {_TITLES[family]}\n\n")
        if family != "mem":
            parts += [_summary(results, family), "\n", _plot(results, family)]
        parts += [_all(results, family), "\n"]
    if results.growth:
        parts += [_GROWTH, _growth(results), "\n"]
    if results.layers:
        parts += [_LAYERS, layers_table(results), "\n"]
    parts += ["## How each was set up\n\n", _settings(results), "\n## Not measured\n\n", _missing(results)]
    return "".join(parts)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |\n" for line in lines)


def number(value: float) -> str:
    """A figure with three significant digits or so."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def shown(spread: Spread | None, figure: str) -> str:
    """A median with its unit, and the least and the greatest."""
    if spread is None:
        return ""
    between = f"{number(spread.least)}–{number(spread.greatest)}"  # noqa: RUF001 - an en dash is what ranges have
    return f"{_SHORT[figure]} {number(spread.median)}{_UNITS[figure]} ({between})".strip()


def _about(results: Results) -> str:
    about, scale = results.about, results.about.get("scale", {})
    server = about.get("postgres", {})
    counted = max((record.round for record in results.records), default=0) + 1
    return (
        f"- {about.get('day')}: {about.get('machine')}, Python {about.get('python')}, SQLite {about.get('sqlite')}, "
        f"Postgres {server.get('server_version')} over its Unix socket. The machine's load average was "
        f"{about.get('load')} when the run began; what others do on it shows in the spread.\n"
        "- Durable alike: SQLite in WAL mode with synchronous=FULL; Postgres with "
        + ", ".join(f"{name} {value}" for name, value in server.items() if name != "server_version")
        + ". Whoever offers less is marked with an asterisk and counts for no comparison.\n"
        f"- {counted} rounds, all subjects in turns within each, every measurement in a process of its own on empty "
        "storage after a checkpoint. Shown are medians, with the least and the greatest. Ratios are taken round by "
        "round.\n"
        f"- A rate is taken over {scale.get('seconds')} s, a latency over up to {scale.get('samples')} messages.\n\n"
    )


def _plot(results: Results, family: Family) -> str:
    if not any(ROWS[name].figures[0] == "rate" for name in measured_rows(results, family)):
        return ""
    return f"![Rates on {_TITLES[family]}](performance/rates-{family}.svg)\n\n"


def _times(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f}"


def _summary(results: Results, family: Family) -> str:
    rows = []
    mine = ALKSTORE[family]
    for workload in measured_rows(results, family):
        row = ROWS[workload]
        figure, floor = row.figures[0], row.floors.get(family, "")
        targets = [target for target in row.targets if target.family == family]
        rows.append(
            [
                row.title,
                "; ".join(
                    shown(spread, name)
                    for name in row.figures
                    if (spread := Spread.of(rounds(results, workload, mine, name)))
                ),
                _times(ratio(results, workload, mine, floor, figure)) if floor else "",
                _versus_peers(results, workload, family),
                "; ".join(_aim(target) for target in targets),
                "; ".join(_became(results, workload, target) for target in targets),
            ]
        )
    return table(["workload", "alkstore", "of the floor", "of the best peer", "target", "became"], rows)


def _versus_peers(results: Results, workload: str, family: Family) -> str:
    """How alkstore stands beside the best peer; for one caller also beside the best that leaves its event loop free."""
    figure = ROWS[workload].figures[0]
    best = best_peer(results, workload, family, figure)
    if best is None:
        return ""
    shown = _versus(results, workload, family, best)
    if workload not in ONE_CALLER or best in ASYNC_PEERS:
        return shown
    free = best_peer(results, workload, family, figure, ASYNC_PEERS)
    beside = f"; {_versus(results, workload, family, free)}" if free else ""
    return f"{shown}, but it blocks its caller's event loop{beside}"


def _versus(results: Results, workload: str, family: Family, peer: str) -> str:
    figure = ROWS[workload].figures[0]
    times = ratio(results, workload, ALKSTORE[family], peer, figure)
    return f"{times.median:.2f} of {peer}: {standing(times.median, figure)}" if times else f"{peer} only"


def _aim(target: Target) -> str:
    bound = "≥" if target.figure == "rate" else "≤"
    what = f"{_SHORT[target.figure]} {bound} {target.limit:,g}".strip()
    return f"{what} of {target.of}" if target.of else f"{what}{_UNITS[target.figure]}"


def _became(results: Results, workload: str, target: Target) -> str:
    became = verdict(results, workload, target)
    if became is None:
        return "not measured"
    return f"{'met' if became.met else '**not met**'}: {number(became.value)}"


def _all(results: Results, family: Family) -> str:
    rows = []
    for workload in measured_rows(results, family):
        row = ROWS[workload]
        for name, entry in SUBJECTS.items():
            if entry.family != family:
                continue
            spreads = [(figure, Spread.of(rounds(results, workload, name, figure))) for figure in row.figures]
            if not any(spread for _, spread in spreads):
                continue
            floor = row.floors.get(family, "")
            rows.append(
                [
                    row.title,
                    f"**{name}**" if entry.role == "alkstore" else name + ("" if entry.durable else " *"),
                    "; ".join(shown(spread, figure) for figure, spread in spreads if spread),
                    _times(ratio(results, workload, name, floor, row.figures[0])) if floor and name != floor else "",
                ]
            )
    titles = {"mem": ["workload", "who", "median (least–greatest)"]}  # noqa: RUF001 - likewise
    heading = titles.get(family, ["workload", "who", "median (least–greatest)", "of the floor"])  # noqa: RUF001
    return table(heading, [cells[: len(heading)] for cells in rows])


def _growth(results: Results) -> str:
    by_operation: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for point in results.growth:
        by_operation[point["operation"]].append(point)
    heading = ["along", "engine", "how many", "from, to", "growth"]
    return "\n".join(
        f"### {operation}\n\n{table(heading, list(_growth_rows(operation, points)))}\n"
        f"![{operation}](performance/{operation_plot(operation)})\n"
        for operation, points in by_operation.items()
    )


def _growth_rows(operation: str, points: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    unit = next(key for key in _GROWTH_UNITS if key in points[0])
    lines: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for point in points:
        lines[point["axis"], point["engine"]].append((point["at"], point[unit]))
    for (axis, engine), line in lines.items():
        (fewest, first), (most, last) = min(line), max(line)
        kind, between = growth_kind(line), f"{number(first)} to {number(last)}{_GROWTH_UNITS[unit]}"
        if kind != "flat":
            kind += f", {growth_factor(line):.1f} times"
        if kind.startswith("grows") and operation in _WHY:
            kind += f": {_WHY[operation]}"
        yield [axis, engine, f"{fewest:,} to {most:,}", between, kind]


def layers_table(results: Results) -> str:
    """Each operation with its layers, in microseconds."""
    lines: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for layer in results.layers:
        lines[layer["operation"], layer["engine"]].append((layer["layer"], layer["us"]))
    rows = [
        [operation, engine, number(sum(us for _, us in found)), "; ".join(f"{name} {number(us)}" for name, us in found)]
        for (operation, engine), found in sorted(lines.items())
    ]
    return table(["operation", "engine", "whole", "of which"], rows)


def _settings(results: Results) -> str:
    versions: dict[str, Any] = results.about.get("versions", {})
    rows = []
    for name in SUBJECTS:
        found = {r.outcome.settings for r in results.records if r.subject == name and r.outcome.settings}
        if found:
            rows.append([name, str(versions.get(name, "")), "; ".join(sorted(found))])
    return table(["who", "version", "settings"], rows)


def _missing(results: Results) -> str:
    rows = [[name, "all of it", reason] for name, reason in results.about.get("missing", {}).items()]
    rows += [[name, title, reason] for name, title, reason in _gaps(results)]
    return table(["who", "what", "why"], rows)


def _gaps(results: Results) -> Iterator[tuple[str, str, str]]:
    """Who failed at what, and who offers what not: once each."""
    gone = results.about.get("missing", {})
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in results.records:
        outcome = record.outcome
        if record.subject in gone or outcome.figures:
            continue
        why = f"not offered: {outcome.not_offered}" if outcome.not_offered else f"failed: {outcome.failure}"
        if ROWS[record.workload].title not in reasons[record.subject, why]:
            reasons[record.subject, why].append(ROWS[record.workload].title)
    for (subject, why), titles in reasons.items():
        yield subject, "; ".join(titles), why


def write(results: Results, docs: Path) -> None:
    """Write the page and its plots into the folder `docs`."""
    from benchmarks.plots import draw  # only here is matplotlib needed

    docs.mkdir(parents=True, exist_ok=True)
    (docs / "performance.md").write_text(page(results), "utf-8")
    for old in (docs / "performance").glob("*.svg"):
        old.unlink()
    draw(results, docs / "performance")
