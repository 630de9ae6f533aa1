"""Reports as Markdown: one summarised, or several side by side."""

from collections.abc import Iterable, Sequence

from alkstore_contract_suite.needs import TRAITS
from alkstore_contract_suite.report import LegResult, Outcome, Report
from alkstore_contract_suite.rules import RULES

_CELLS = {
    Outcome.PASSED: "yes",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.NOT_RUN: "not run",
    Outcome.SKIPPED: "SKIPPED",
    Outcome.XFAILED: "XFAILED",
    Outcome.FAILED: "FAILED",
    Outcome.ERROR: "ERROR",
}


def summary_of(report: Report) -> str:
    """One report as a Markdown page: the verdict, the stamp, the exemptions, what went wrong, the matrix."""
    lines = [f"# {report.engine.name} and the alkstore contract {report.contract}", "", report.verdict, ""]
    lines += ["| what | |", "|---|---|"]
    lines += [f"| {what} | {value} |" for what, value in _stamp(report)]
    if bad := [
        leg
        for leg in report.legs
        if leg.outcome not in (Outcome.PASSED, Outcome.NOT_APPLICABLE, Outcome.NEWER, Outcome.NOT_RUN)
    ]:
        lines += ["", "## Not as the contract says", ""]
        lines += [f"- `{leg.id}` ({' '.join(leg.rules)}): {leg.outcome}{_why(leg)}" for leg in bad]
    return "\n".join(lines) + "\n\n" + matrix_of([report])


def matrix_of(reports: Sequence[Report]) -> str:
    """Rules by engines, then legs by engines. A rule stands as badly as the worst of its legs."""
    engines = [report.engine for report in reports]
    head = [f"{engine.name} {engine.version}" for engine in engines]
    of_legs = [{leg.id: leg for leg in report.legs} for report in reports]
    ids = sorted(set().union(*of_legs))

    def rule_cell(legs: dict[str, LegResult], rule: str) -> str:
        proving = [leg for leg in legs.values() if rule in leg.rules]
        asked = [leg for leg in proving if leg.outcome not in (Outcome.NOT_APPLICABLE, Outcome.NEWER)]
        return _cell(min(asked or proving, key=_badness)) if proving else "no leg"

    def leg_cell(legs: dict[str, LegResult], id: str) -> str:
        return _cell(legs[id]) if id in legs else "no leg"

    rule_rows = [[f"{rule} {about}", *(rule_cell(legs, rule) for legs in of_legs)] for rule, about in RULES.items()]
    leg_rows = [[f"`{id}`", *(leg_cell(legs, id) for legs in of_legs)] for id in ids]
    lines = ["## Verdicts", "", *(f"- {report.verdict}" for report in reports), ""]
    lines += ["## Rules", "", *_table(["rule", *head], rule_rows), ""]
    lines += ["## Legs", "", *_table(["leg", *head], leg_rows)]
    return "\n".join(lines) + "\n"


def _badness(leg: LegResult) -> int:
    return list(Outcome).index(leg.outcome)


def _cell(leg: LegResult) -> str:
    return f"n/a: arrived in {leg.since}" if leg.outcome is Outcome.NEWER else _CELLS[leg.outcome]


def _stamp(report: Report) -> list[tuple[str, str]]:
    engine = report.engine
    traits = ", ".join(trait if getattr(engine, trait) else f"not {trait}" for trait in TRAITS)
    rows = [
        ("engine", f"{engine.distribution} {engine.version}, contract {engine.contract}"),
        ("backend", engine.backend),
        ("traits", traits.replace("_", " ")),
        ("enlists", ", ".join(engine.natives)),
        ("suite", f"{report.suite}, contract {report.contract}"),
        ("Python", f"{report.python} on {report.platform}"),
        ("started", report.started_at),
        ("digest", report.digest),
    ]
    return rows + [
        (f"without {exemption.need}", exemption.reason + ("" if exemption.excused else " (NOT excused)"))
        for exemption in report.exemptions
    ]


def _why(leg: LegResult) -> str:
    reasons = [f"{variant.failure or ''} {variant.reason or ''}".strip() for variant in leg.variants if variant.reason]
    return f": {reasons[0].splitlines()[0]}" if reasons else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(head), line(["---"] * len(head)), *map(line, rows)]
