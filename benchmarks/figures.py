"""The arithmetic: medians and spreads of rounds, ratios to a floor and to the best peer, targets met or not."""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from benchmarks.catalogue import ALKSTORE, ROWS, SUBJECTS, Family, Target
from benchmarks.outcome import Results

_LEVEL = 0.1
"""Within so much of each other two figures are called level: rounds of one subject differ by more."""


def more_is_better(figure: str) -> bool:
    """Whether a greater figure is the better one: so for rates, and not for what is waited, burned or held."""
    return figure in ("rate", "offered")


@dataclass(frozen=True, slots=True)
class Spread:
    """What the rounds gave: their median, the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """The spread of `values`, or None where there are none."""
        return cls(statistics.median(values), min(values), max(values)) if values else None


def rounds(results: Results, workload: str, subject: str, figure: str) -> list[float]:
    """That figure in each round in which it was measured."""
    return [
        figures[figure] for outcome in results.of(workload, subject) for figures in outcome.figures if figure in figures
    ]


def ratio(results: Results, workload: str, subject: str, other: str, figure: str) -> Spread | None:
    """How many times `other` that `subject` is, round by round: both met the same machine then."""
    pairs = zip(rounds(results, workload, subject, figure), rounds(results, workload, other, figure), strict=False)
    return Spread.of([mine / theirs for mine, theirs in pairs if theirs])


def best_peer(
    results: Results, workload: str, family: Family, figure: str, among: Collection[str] = SUBJECTS
) -> str | None:
    """The peer of that family with the best median, among those whose writes are as durable."""
    medians = {
        name: statistics.median(found)
        for name, entry in SUBJECTS.items()
        if name in among and entry.family == family and entry.role == "peer" and entry.durable
        if (found := rounds(results, workload, name, figure))
    }
    choose = max if more_is_better(figure) else min
    return choose(medians, key=medians.__getitem__) if medians else None


def standing(times: float, figure: str) -> str:
    """Whether being so many times another is to be ahead, level or behind."""
    if abs(times - 1) <= _LEVEL:
        return "level"
    return "ahead" if (times > 1) is more_is_better(figure) else "behind"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one target: the value reached, and whether it is enough."""

    value: float
    met: bool


def verdict(results: Results, workload: str, target: Target) -> Verdict | None:
    """What became of `target`; None where it was not measured."""
    mine = ALKSTORE[target.family]
    if target.of:
        reached = ratio(results, workload, mine, target.of, target.figure)
    else:
        reached = Spread.of(rounds(results, workload, mine, target.figure))
    if reached is None:
        return None
    enough = reached.median >= target.limit if more_is_better(target.figure) else reached.median <= target.limit
    return Verdict(reached.median, enough)


def growth_factor(points: Sequence[tuple[float, float]]) -> float:
    """How many times the first value the last one is, of (how many, value) points in any order."""
    ordered = sorted(points)
    return ordered[-1][1] / ordered[0][1] if ordered and ordered[0][1] else 1.0


def growth_kind(points: Sequence[tuple[float, float]]) -> str:
    """``flat``, ``logarithmic`` or ``grows``: how the value follows the number.

    Flat is less than twofold from the fewest to the most; logarithmic at most once more for each time the number grows
    tenfold.
    """
    ordered = sorted(points)
    factor = growth_factor(ordered)
    if factor < 2:
        return "flat"
    return "logarithmic" if factor <= 1 + math.log10(ordered[-1][0] / ordered[0][0]) else "grows"


def measured_rows(results: Results, family: Family) -> list[str]:
    """The workloads under which alkstore on that database was measured."""
    return [name for name, row in ROWS.items() if rounds(results, name, ALKSTORE[family], row.figures[0])]


def operation_plot(operation: str) -> str:
    """The file name of an operation's plot."""
    return "growth-" + "-".join("".join(c if c.isalnum() else " " for c in operation).split()) + ".svg"
