"""What a person sees: bars while it runs, and the table and the verdict at the end."""

from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from webhooks_demo.verdict import Verdict

_SHOWN = 8
"""How many kinds of event, and how many lines at fault, are named."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of a run, each number from where it can be seen.

    Attributes:
        received: webhooks in the input.
        stored: rows in the business table.
        counts: events by kind, as the subscriber counted them.
        verdict: the sink's side.
        kills: how many workers were killed.
        seconds: from the first webhook taken in to the last delivery settled.
    """

    received: int
    stored: int
    counts: Counter[str]
    verdict: Verdict
    kills: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every webhook was stored, published and delivered, and none twice without reason."""
        return self.stored == self.received == self.counts.total() and self.verdict.good


class Bars:
    """A progress bar for each stage of the run."""

    def __init__(self, console: Console, total: int) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console)
        self._stored, self._delivered, self._counted = (
            self._progress.add_task(stage, total=total) for stage in ("stored", "delivered", "counted")
        )

    def stored(self, count: int) -> None:
        """So many webhooks are stored."""
        self._progress.update(self._stored, completed=count)

    def delivered(self, count: int) -> None:
        """So many deliveries have arrived."""
        self._progress.update(self._delivered, completed=count)

    def counted(self, count: int) -> None:
        """So many events are counted."""
        self._progress.update(self._counted, completed=count)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def show(console: Console, outcome: Outcome) -> None:
    """Print the counts, the table and the verdict."""
    verdict = outcome.verdict
    events = Table(box=box.SIMPLE_HEAD)
    events.add_column("event")
    events.add_column("count", justify="right")
    shown = outcome.counts.most_common(_SHOWN)
    for event, count in shown:
        events.add_row(event, str(count))
    if more := len(outcome.counts) - len(shown):
        events.add_row(f"and {more} more", str(outcome.counts.total() - sum(count for _, count in shown)))
    console.print(events)

    row = {
        "received": outcome.received,
        "stored": outcome.stored,
        "published": outcome.counts.total(),
        "delivered": verdict.delivered,
        "duplicates": verdict.duplicates,
        "lost": len(verdict.lost),
        "seconds": f"{outcome.seconds:.1f}",
        "rate": f"{outcome.received / outcome.seconds:.0f}/s",
    }
    totals = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in row:
        totals.add_column(name, justify="right")
    totals.add_row(*map(str, row.values()))
    console.print(totals)
    console.print(_sentence(outcome), style="green" if outcome.good else "bold red", highlight=False)


def _sentence(outcome: Outcome) -> str:
    verdict = outcome.verdict
    faults = [
        f"{what}: {_some(lines)}"
        for what, lines in (
            ("lost, lines", verdict.lost),
            ("not delivered as sent, lines", verdict.damaged),
            ("delivered again although no worker died with it in its hands, lines", verdict.unexplained),
        )
        if lines
    ]
    if outcome.stored != outcome.received:
        faults.append(f"stored {outcome.stored} of {outcome.received}")
    if outcome.counts.total() != outcome.received:
        faults.append(f"published {outcome.counts.total()} of {outcome.received}")
    if faults:
        return "NOT GOOD. " + "; ".join(faults)
    if outcome.kills:
        return (
            f"Good: nothing lost although {outcome.kills} workers were killed; each of the {verdict.duplicates} "
            "duplicates was under way when its worker died."
        )
    return "Good: nothing lost, nothing twice."


def _some(lines: tuple[int, ...]) -> str:
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ", ".join(map(str, lines[:_SHOWN])) + more
