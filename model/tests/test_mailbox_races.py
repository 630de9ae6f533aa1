"""Real processes race for a mailbox: two of one generation, one of the next, and one that attaches meanwhile.

``ALKSTORE_RACE_ROUNDS`` says how many rounds there are; without it a few hundred.
"""

import asyncio
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from alkstore_contract_suite.engines import find_engine
from alkstore_contract_suite.harness import Harness, MailboxRows
from mailbox_racers import MESSAGES, PARTS, STALL_S, Told, race

ROUNDS = int(os.environ.get("ALKSTORE_RACE_ROUNDS", "300"))
OPTIONS: dict[str, dict[str, Any]] = {"sqlite": {"synchronous": "OFF"}, "pg": {}}


def raced(harness: Harness, engine: str, rounds: int, *, spoilt: bool = False) -> dict[str, list[Told]]:
    """Let the processes race; what each of them did in each round."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(PARTS)), context.Queue()
    address = harness.address()
    arguments = (address.url, {**address.options, **OPTIONS[engine]}, rounds, barrier, results)
    processes = [context.Process(target=race, args=(part, *arguments), kwargs={"spoilt": spoilt}) for part in PARTS]
    for process in processes:
        process.start()
    try:
        return dict(results.get(timeout=STALL_S + rounds) for _ in processes)
    finally:
        for process in processes:
            process.join(STALL_S)
            if process.is_alive():
                process.kill()


def faults_of(told: dict[str, Told], rows: MailboxRows) -> list[str]:
    """What is wrong with one round; empty if nothing is."""
    faults = []
    if rows.unread or rows.outstanding:
        faults.append(f"lost: {rows.unread} are unread and {rows.outstanding} outstanding, and nobody is left")
    read = [id for row in rows.deliveries if row.acknowledged_at is not None for id in row.message_ids]
    if len(read) != MESSAGES or len(set(read)) != MESSAGES:
        faults.append(f"not read exactly once: {read}")
    if any(row.fenced and row.acknowledged_at is not None for row in rows.deliveries):
        faults.append("a fenced delivery is acknowledged")
    live = [id for row in rows.deliveries if not row.fenced for id in row.message_ids]
    if len(live) != len(set(live)):
        faults.append(f"a message is in two deliveries that are not fenced: {live}")
    given = {id: members for one in told.values() for id, members, _ in one.checked}
    stored = {row.id: row.message_ids for row in rows.deliveries}
    if given != stored:
        faults.append(f"given were {given}, and stored are {stored}")
    new = [id for one in told.values() for id, _, replayed in one.checked if not replayed]
    if len(new) != len(set(new)):
        faults.append(f"one delivery was new to two: {new}")
    first = [id for one in told.values() for id, duplicate, _ in one.acknowledged if not duplicate]
    if sorted(first) != sorted(row.id for row in rows.deliveries if row.acknowledged_at is not None):
        faults.append(f"acknowledged first by somebody: {first}")
    attached = told["attacher"].attached
    if attached is None or attached[1] != 2:
        faults.append(f"attached: {attached}")
    else:
        late = [entry for part in ("first", "second") for entry in told[part].acknowledged if entry[2] > attached[0]]
        if late:
            faults.append(f"acknowledged by who was fenced: {late}")
    return faults


@pytest.mark.parametrize("engine", ["sqlite", "pg"])
def test_no_round_loses_or_doubles_a_message(engine: str, tmp_path: Path) -> None:
    """In no round is a message lost, read twice, in two live deliveries, or acknowledged by who was fenced."""
    harness_class = find_engine(engine).harness
    with harness_class.service():
        harness = harness_class(tmp_path)
        asyncio.run(harness.start())
        told = raced(harness, engine, ROUNDS)
        faults = asyncio.run(judged(harness, told))
        asyncio.run(harness.stop())
    assert faults == []
    fenced = sum(not told["first"][number].acknowledged for number in range(ROUNDS))
    assert 0 < fenced < ROUNDS, "no race at all: the attach always came first, or always last"


async def judged(harness: Harness, told: dict[str, list[Told]]) -> list[str]:
    """All that is wrong, round by round."""
    found = []
    for number in range(len(told["attacher"])):
        rows = await harness.witness.mailbox(f"race {number}")
        found += [f"round {number}: {fault}" for fault in faults_of({part: told[part][number] for part in told}, rows)]
    return found


def test_a_wrong_engine_is_caught(tmp_path: Path) -> None:
    """The control: where everybody is handed the same batch, the rounds show it."""
    harness = find_engine("sqlite").harness(tmp_path)
    asyncio.run(harness.start())
    told = raced(harness, "sqlite", 30, spoilt=True)
    faults = asyncio.run(judged(harness, told))
    assert any("acknowledged by who was fenced" in fault for fault in faults), faults
