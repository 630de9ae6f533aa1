"""What came of one measurement, and the file that keeps all of them."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_MOST_SAID = 240


def said(text: str) -> str:
    """What a program said, in one line, without paths and addresses that are nobody's business elsewhere."""
    text = re.sub(r"\w+://\S+|(?:/[\w.@+~-]+){2,}/?", "…", " ".join(text.split()))
    return text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + "…"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process said.

    Attributes:
        figures: what was measured, once for each repetition; empty if nothing was.
        settings: how the subject was set up.
        not_offered: why the subject does not do this.
        failure: why it could not be measured.
    """

    figures: list[dict[str, float]] = field(default_factory=list)
    settings: str = ""
    not_offered: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One outcome, of one subject under one workload in one round."""

    workload: str
    subject: str
    round: int
    outcome: Outcome


@dataclass(slots=True)
class Results:
    """The outcomes of one run: one line of JSON for what is known of the machine, and one for each record.

    Attributes:
        path: where they are kept, so that a run that was interrupted goes on where it was.
        about: the machine, the versions, and the subjects that could not be installed.
        growth: points of growth, as `benchmarks.growth` says them.
        layers: where the time goes, as `benchmarks.profiling` says it.
    """

    path: Path
    about: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """What the file at `path` has; nothing if it is not there."""
        results = cls(path)
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            entry = json.loads(line)
            if "about" in entry:
                results.about.update(entry["about"])
            elif "growth" in entry:
                results.growth.append(entry["growth"])
            elif "layer" in entry:
                results.layers.append(entry["layer"])
            else:
                results.records.append(Record(**{**entry, "outcome": Outcome(**entry["outcome"])}))
        return results

    def tell(self, about: dict[str, Any]) -> None:
        """Keep something about the run."""
        self.about.update(about)
        self._append([{"about": about}])

    def add(self, records: Iterable[Record]) -> None:
        """Keep records."""
        added = list(records)
        self.records += added
        self._append(asdict(record) for record in added)

    def add_growth(self, points: Iterable[dict[str, Any]]) -> None:
        """Keep points of growth."""
        added = list(points)
        self.growth += added
        self._append({"growth": point} for point in added)

    def add_layers(self, layers: Iterable[dict[str, Any]]) -> None:
        """Keep where the time goes."""
        added = list(layers)
        self.layers += added
        self._append({"layer": layer} for layer in added)

    def _append(self, entries: Iterable[dict[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def of(self, workload: str, subject: str) -> Iterator[Outcome]:
        """The outcomes of one subject under one workload, in the order of the rounds."""
        found = [record for record in self.records if (record.workload, record.subject) == (workload, subject)]
        for record in sorted(found, key=lambda record: record.round):
            yield record.outcome
