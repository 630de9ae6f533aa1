"""What is left after a process was killed (T3, Q14, S1, L5)."""

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_core import Store


@leg(rules="T3", since="1.0", needs=("child",))
async def test_acknowledged_enqueue_survives(store: Store, witness: Witness, children: Children) -> None:
    """A job whose enqueue returned is there after its process was killed at once."""
    child = await children.start(child_bodies.enqueues, "emails")
    job_id = await child.reached("acknowledged")
    await child.kill()
    claim = await store.queue("emails").claim_one("worker")
    assert claim is not None
    assert (claim.job.id, claim.job.payload) == (job_id, b'{"from":"child"}')
    assert await witness.jobs("emails") == JobCounts(processing=1)
