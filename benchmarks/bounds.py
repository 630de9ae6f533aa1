"""The regression guard: ratios to floors must stay within committed bounds. Never absolute times."""

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.catalogue import ALKSTORE, ROWS, Family
from benchmarks.figures import more_is_better, ratio
from benchmarks.outcome import Results

COMMITTED = Path(__file__).with_name("bounds.json")


@dataclass(frozen=True, slots=True)
class Bound:
    """How slow alkstore may be: at least `limit` times its floor's rate, at most so many times its floor's latency."""

    workload: str
    family: Family
    limit: float

    @property
    def figure(self) -> str:
        """What is compared: the workload's first figure."""
        return ROWS[self.workload].figures[0]

    @property
    def floor(self) -> str:
        """With whom."""
        return ROWS[self.workload].floors[self.family]


@dataclass(frozen=True, slots=True)
class Check:
    """A bound, and the ratio that was measured; None if it was not."""

    bound: Bound
    ratio: float | None

    @property
    def held(self) -> bool:
        """Whether the bound holds. What was not measured does not hold."""
        if self.ratio is None:
            return False
        if more_is_better(self.bound.figure):
            return self.ratio >= self.bound.limit
        return self.ratio <= self.bound.limit


def committed(path: Path = COMMITTED) -> list[Bound]:
    """The bounds of the file: by workload, by family."""
    bounds: dict[str, dict[Family, float]] = json.loads(path.read_text("utf-8"))
    return [Bound(name, family, limit) for name, families in bounds.items() for family, limit in families.items()]


def checks(results: Results, bounds: list[Bound]) -> list[Check]:
    """Each bound with what was measured: the median of the rounds' ratios."""
    found = []
    for bound in bounds:
        reached = ratio(results, bound.workload, ALKSTORE[bound.family], bound.floor, bound.figure)
        found.append(Check(bound, None if reached is None else reached.median))
    return found
