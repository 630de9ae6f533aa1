"""Queues: at-least-once jobs (contract section 7)."""

from alkstore_core import Store
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.leg import leg


@leg(rules="Q3 Q11", since="1.0")
async def test_claim_order(store: Store, clock: ManualClock) -> None:
    """Jobs are claimed by priority descending, then by ready time, then by id."""
    queue, now = store.queue("emails"), clock.now()
    late = await queue.enqueue("late", run_at=now)
    early = await queue.enqueue("early", run_at=now - 10)
    early_too = await queue.enqueue("early too", run_at=now - 10)
    urgent = await queue.enqueue("urgent", priority=1)
    background = await queue.enqueue("background", priority=-1, run_at=now - 100)
    batch = await queue.claim_batch("worker", 4)
    rest = await queue.claim_batch("worker", 4)
    assert [handle.job.id for handle in batch] == [urgent, early, early_too, late]
    assert [handle.job.id for handle in rest] == [background]
