"""What the processes of a mailbox race do, each round at the same moment. Each tells its parent, who judges."""

import asyncio
import importlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

from alkstore_core import Holder, Mailbox, open_store
from alkstore_core.errors import ConsumerFencedError

SUBJECT = {"source": "run", "subject": "7"}
MESSAGES = 3
STALL_S = 60.0
"""After how long a process that waits for the others gives up."""


@dataclass
class Told:
    """What one process did in one round.

    Attributes:
        checked: each delivery that it was given: id, message ids, and whether it was said to be replayed.
        acknowledged: each acknowledgement that landed: id, whether it was a duplicate, and when it was asked for.
        attached: when an attach had returned, and its generation.
    """

    checked: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    acknowledged: list[tuple[str, bool, int]] = field(default_factory=list)
    attached: tuple[int, int] | None = None


Part = Callable[[Mailbox, Told, random.Random], Awaitable[None]]


async def former(mailbox: Mailbox, told: Told, draw: random.Random) -> None:
    """Check and acknowledge as the first generation, until there is no mail or somebody else has it."""
    try:
        while await _turn(mailbox, Holder("run", "7", 1), told, draw):
            pass
    except ConsumerFencedError:
        return


async def successor(mailbox: Mailbox, told: Told, draw: random.Random) -> None:
    """Check and acknowledge as the second generation, from before there is one until there is no mail."""
    while True:
        try:
            while await _turn(mailbox, Holder("run", "7", 2), told, draw):
                pass
        except ConsumerFencedError:
            await asyncio.sleep(0)
        else:
            return


async def attacher(mailbox: Mailbox, told: Told, draw: random.Random) -> None:
    """Attach, at some moment."""
    for _ in range(draw.randrange(4)):
        await mailbox.pending()
    holder = await mailbox.attach(**SUBJECT)
    told.attached = time.monotonic_ns(), holder.generation


PARTS: dict[str, Part] = {"first": former, "second": former, "successor": successor, "attacher": attacher}


async def _turn(mailbox: Mailbox, holder: Holder, told: Told, draw: random.Random) -> bool:
    delivery = await mailbox.check(holder, draw.randrange(1, MESSAGES + 1))
    if delivery is None:
        return False
    told.checked.append((delivery.id, tuple(message.id for message in delivery.messages), delivery.replayed))
    for _ in range(draw.randrange(3)):
        await asyncio.sleep(0)
    asked = time.monotonic_ns()
    receipt = await mailbox.acknowledge(holder, delivery.id)
    told.acknowledged.append((delivery.id, receipt.duplicate, asked))
    return True


def hand_one_batch_to_everybody() -> None:
    """Make SQLite's mailboxes wrong: no generation is refused, nothing is fenced, and whoever asks has the batch."""

    class Anybody:
        def __init__(self, *_: object) -> None:
            pass

        def __ne__(self, other: object) -> bool:
            return False

    def refused(*_: object) -> Any:
        yield from ()

    mailboxes: Any = importlib.import_module("alkstore_sqlite.mailboxes")
    mailboxes.refused, mailboxes.Holder = refused, Anybody
    mailboxes._fence = lambda *_: iter(())


def race(
    part: str, url: str, options: dict[str, Any], rounds: int, barrier: Barrier, results: "Queue[Any]", *, spoilt: bool
) -> None:
    """One process: its part in every round, and at the end all that it did."""
    if spoilt:
        hand_one_batch_to_everybody()
    asyncio.run(_race(part, url, options, rounds, barrier, results))


async def _race(part: str, url: str, options: dict[str, Any], rounds: int, barrier: Barrier, results: Any) -> None:
    draw, told = random.Random(part), []
    async with open_store(url, **options) as store:
        for number in range(rounds):
            mailbox = store.mailbox(f"race {number}")
            if part == "first":
                await mailbox.attach(**SUBJECT)
                async with store.transaction() as tx:
                    for message in range(MESSAGES):
                        await tx.send(mailbox, message)
            barrier.wait(STALL_S)
            told.append(Told())
            await PARTS[part](mailbox, told[-1], draw)
            barrier.wait(STALL_S)
    results.put((part, told))
