"""The plots of the page, as SVG."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.catalogue import ALKSTORE, FAMILIES, ROWS, SUBJECTS, Family
from benchmarks.figures import Spread, measured_rows, operation_plot, rounds
from benchmarks.growth import AXES
from benchmarks.outcome import Results

mpl.use("svg")
from matplotlib import pyplot as plt

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "alkstore",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
}
_COLOURS = {"alkstore": "#d1495b", "floor": "#9aa5b1", "peer": "#30638e"}
_ENGINE_COLOURS = {ALKSTORE["sqlite"]: "#d1495b", ALKSTORE["postgres"]: "#30638e", ALKSTORE["mem"]: "#edae49"}


def draw(results: Results, folder: Path) -> None:
    """Write all plots into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        for family in FAMILIES:
            if family != "mem":
                _rates(results, family, folder / f"rates-{family}.svg")
        by_operation: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for point in results.growth:
            by_operation[point["operation"]].append(point)
        for operation, points in by_operation.items():
            _growth(operation, points, folder / operation_plot(operation))


def _rates(results: Results, family: Family, path: Path) -> None:
    shown = [name for name in measured_rows(results, family) if ROWS[name].figures[0] == "rate"]
    members = [name for name, entry in SUBJECTS.items() if entry.family == family]
    if not shown:
        return
    figure, panels = plt.subplots(len(shown), 1, figsize=(7, 1.35 * len(shown)), squeeze=False)
    for panel, workload in zip(panels[:, 0], shown, strict=True):
        found = {name: Spread.of(rounds(results, workload, name, "rate")) for name in members}
        bars = {name: spread for name, spread in found.items() if spread}
        ordered = sorted(bars, key=lambda name: bars[name].median)
        for place, name in enumerate(ordered):
            spread, entry = bars[name], SUBJECTS[name]
            error = [[spread.median - spread.least], [spread.greatest - spread.median]]
            panel.barh(place, spread.median, color=_COLOURS[entry.role], alpha=1 if entry.durable else 0.4, xerr=error)
        panel.set_yticks(range(len(ordered)), ordered, fontsize=7)
        panel.set_title(f"{ROWS[workload].title}, a second", loc="left", fontsize=9)
    figure.tight_layout()
    _save(figure, path)


def _growth(operation: str, points: Sequence[dict[str, Any]], path: Path) -> None:
    axes = list(dict.fromkeys(point["axis"] for point in points))
    unit = next(key for key in ("ms", "rate", "mb", "rows") if key in points[0])
    figure, panels = plt.subplots(1, len(axes), figsize=(3 * len(axes) + 1, 2.8), squeeze=False, sharey=True)
    for panel, axis in zip(panels[0], axes, strict=True):
        for engine, colour in _ENGINE_COLOURS.items():
            line = sorted((p["at"], p[unit]) for p in points if (p["engine"], p["axis"]) == (engine, axis))
            if line:
                panel.plot(*zip(*line, strict=True), marker="o", markersize=3, color=colour, label=engine)
        panel.set_xscale("log")
        panel.set_yscale("symlog" if unit in ("mb", "rows") else "log")
        panel.set_xlabel(AXES[axis])
    panels[0][0].set_ylabel({"ms": "ms a call, median", "rate": "a second", "mb": "MB", "rows": "rows"}[unit])
    panels[0][0].legend(fontsize=7)
    figure.suptitle(operation)
    figure.tight_layout()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
