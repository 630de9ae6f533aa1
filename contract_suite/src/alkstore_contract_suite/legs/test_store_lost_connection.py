"""A commit whose outcome is in doubt, since its connection was lost (contract section 1)."""

import asyncio
from random import Random

import pytest
from alkstore_core import (
    Store,
)
from alkstore_core.errors import ClosedError, CommitUnknownError, DatabaseError

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg


@leg(rules="T14 T9", since="1.0", needs=("sever",))
async def test_commit_around_a_lost_connection(harness: Harness, store: Store, witness: Witness) -> None:
    """A commit whose connection is cut says the truth: done, failed and not there, or that it cannot know."""
    draw = Random(14)
    for number in range(20):
        name = f"name {number}"
        async with store.begin_tx() as tx:
            await tx.enqueue(name, 1)
            await tx.publish(name, 1)
            committing = asyncio.create_task(tx.commit())
            for _ in range(draw.randrange(20)):
                await asyncio.sleep(0)
            await harness.sever()
            [outcome] = await asyncio.gather(committing, return_exceptions=True)
            there = (await witness.jobs(name)).pending, len(await witness.events(name))
            if outcome is None:
                assert there == (1, 1)
            elif isinstance(outcome, CommitUnknownError):
                assert there in ((1, 1), (0, 0))
            else:
                assert isinstance(outcome, DatabaseError)
                assert there == (0, 0)
            with pytest.raises(ClosedError):
                await tx.commit()
