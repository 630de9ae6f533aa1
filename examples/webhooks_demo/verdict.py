"""What the sink saw, held against what was sent and who was killed: lost, duplicated, and whether that was right.

A delivery may arrive twice in one case only: its worker was killed after the delivery had left and before the
acknowledgement had landed. A worker's slot acknowledges one delivery before it takes the next, so what was under way
when a worker died is the last arrival from each of its slots, and anything earlier was acknowledged.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Arrival:
    """One delivery, as the sink wrote it down.

    Attributes:
        line: which webhook, by its line in the input.
        worker: the worker process that sent it; a restarted one has another name.
        slot: which of the worker's slots.
        at: when, on the sink's monotonic clock.
        fingerprint: the fingerprint of what was delivered.
    """

    line: int
    worker: str
    slot: int
    at: float
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run went, seen from outside.

    Attributes:
        delivered: how many webhooks arrived at least once.
        duplicates: how many arrivals there were beyond those.
        lost: the lines that never arrived.
        damaged: the lines of which an arrival differed from what was sent, or was never sent.
        unexplained: the lines that arrived again although no worker had died with them in its hands.
    """

    delivered: int
    duplicates: int
    lost: tuple[int, ...]
    damaged: tuple[int, ...]
    unexplained: tuple[int, ...]

    @property
    def good(self) -> bool:
        """Whether everything arrived as it was sent, and nothing twice without reason."""
        return not (self.lost or self.damaged or self.unexplained)


def fingerprint(body: str) -> str:
    """What a body is recognised by, without keeping it."""
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def judge(sent: Mapping[int, str], arrivals: Sequence[Arrival], kills: Mapping[str, float]) -> Verdict:
    """The verdict on one run.

    Args:
        sent: the fingerprint of every webhook's body, by line.
        arrivals: what the sink saw, in the order it saw it.
        kills: when each killed worker was killed, on the clock of the arrivals.
    """
    last_of_slot: dict[tuple[str, int], Arrival] = {(arrival.worker, arrival.slot): arrival for arrival in arrivals}
    by_line: defaultdict[int, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_line[arrival.line].append(arrival)

    def explained(first: Arrival, again: Arrival) -> bool:
        under_way = last_of_slot[first.worker, first.slot] is first
        return under_way and first.worker in kills and again.at > kills[first.worker]

    return Verdict(
        delivered=len(by_line.keys() & sent.keys()),
        duplicates=len(arrivals) - len(by_line),
        lost=tuple(sorted(sent.keys() - by_line.keys())),
        damaged=tuple(sorted({arrival.line for arrival in arrivals if sent.get(arrival.line) != arrival.fingerprint})),
        unexplained=tuple(
            sorted(
                line
                for line, seen in by_line.items()
                if not all(explained(first, again) for first, again in pairwise(seen))
            )
        ),
    )
