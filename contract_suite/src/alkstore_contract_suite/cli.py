"""``alkstore-contract``: run the legs on an engine, list them, compare reports, check a report."""

import sys
from collections import Counter
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alkstore_contract_suite import CONTRACT_VERSION, __version__
from alkstore_contract_suite.catalogue import DuplicateLegError, UnknownLegError, locked_legs, write_lock, written_legs
from alkstore_contract_suite.engines import UnknownEngineError, find_engine
from alkstore_contract_suite.harness import HarnessError
from alkstore_contract_suite.matrix import matrix_of, summary_of
from alkstore_contract_suite.report import Outcome, Report
from alkstore_contract_suite.running import run_legs
from alkstore_contract_suite.verdict import check_report

_console = Console()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"%(prog)s %(version)s, contract {CONTRACT_VERSION}")
def main() -> None:
    """What every alkstore engine must do, as tests.

    Exit codes: 0 as asked, 1 not conformant or not as it should be, 2 wrong usage.
    """


@main.command()
@click.argument("engine", metavar="NAME")
@click.argument("leg_ids", metavar="[LEG]...", nargs=-1)
@click.option("-k", "keyword", metavar="EXPRESSION", default="", help="Only legs whose name matches, as in pytest.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
@click.option(
    "--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a summary here."
)
def run(
    engine: str, leg_ids: tuple[str, ...], keyword: str, json_file: Path | None, markdown_file: Path | None
) -> None:
    """Run the legs on the engine whose harness is registered as NAME, and say whether it is conformant.

    With leg ids or -k only some are run, and then the engine is never called conformant.
    """
    try:
        report = run_legs(find_engine(engine), only=leg_ids, keyword=keyword)
    except (UnknownEngineError, UnknownLegError, DuplicateLegError, HarnessError) as error:
        raise click.UsageError(str(error)) from error
    if json_file is not None:
        json_file.write_text(report.model_dump_json(indent=2) + "\n", "utf-8")
    if markdown_file is not None:
        markdown_file.write_text(summary_of(report), "utf-8")
    for exemption in report.exemptions:
        apart = sum(exemption.need in result.missing for result in report.legs)
        _console.print(
            Text(f"without {exemption.need} ({apart} legs not applicable): {exemption.reason}", "yellow"),
            soft_wrap=True,
        )
    arrived = Counter(result.since for result in report.legs if result.outcome is Outcome.NEWER)
    for since, apart in sorted(arrived.items()):
        _console.print(
            Text(
                f"n/a: arrived in {since}, after this engine's contract {report.engine.contract}: {apart} legs",
                "yellow",
            )
        )
    _console.print(Text(report.verdict, "bold green" if report.conformant else "bold red"), soft_wrap=True)
    sys.exit(not report.conformant)


@main.command()
@click.option("--update", is_flag=True, help="Freeze the ids of new legs in legs.lock.")
@click.option("--remove", "removed", metavar="ID", multiple=True, help="With --update: a leg that may go.")
def legs(update: bool, removed: tuple[str, ...]) -> None:
    """List the legs: id, rules, since when, what they prove; and whether legs.lock agrees."""
    try:
        written, locked = written_legs(), locked_legs()
    except DuplicateLegError as error:
        _console.print(Text(str(error), "bold red"), soft_wrap=True)
        sys.exit(1)
    if gone := sorted(set(locked) - set(written) - set(removed)):
        _console.print(Text(f"in legs.lock but not in the code, and ids never go: {', '.join(gone)}", "bold red"))
        sys.exit(1)
    if update:
        write_lock(written.values())
        _console.print(f"legs.lock: {len(written)} legs")
        return
    table = Table("id", "rules", "since", "property", title=f"contract {CONTRACT_VERSION}, suite {__version__}")
    for leg in written.values():
        table.add_row(leg.id, " ".join(leg.rules), leg.since, leg.title)
    _console.print(table)
    if drifted := [leg.id for leg in written.values() if leg.id not in locked or locked[leg.id].rules != leg.rules]:
        _console.print(Text(f"not as in legs.lock: {', '.join(drifted)}", "bold red"))
        sys.exit(1)


@main.command()
@click.argument(
    "reports", metavar="REPORT.json...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
def matrix(reports: tuple[Path, ...]) -> None:
    """Print reports side by side, as Markdown: rules by engines, then legs by engines."""
    click.echo(matrix_of([_loaded(path) for path in reports]), nl=False)


@main.command()
@click.argument("report_file", metavar="REPORT.json", type=click.Path(exists=True, path_type=Path))
def verify(report_file: Path) -> None:
    """Check that a report is whole, unaltered and conformant, against this suite's legs."""
    report = _loaded(report_file)
    problems = check_report(report)
    for problem in problems:
        _console.print(Text(problem, "bold red"), soft_wrap=True)
    if not problems:
        _console.print(Text(report.verdict, "bold green"), soft_wrap=True)
    sys.exit(bool(problems))


def _loaded(path: Path) -> Report:
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise click.UsageError(f"{path} is not a report of this suite: {error}") from error
