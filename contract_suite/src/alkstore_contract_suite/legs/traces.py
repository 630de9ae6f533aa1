"""All that a transaction can leave behind, and the proof that it left nothing."""

from alkstore_core import Store, Transaction, WakeReceiver

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.proofs import heard_nothing


async def never_called(_: object) -> None:
    """Deliver what no outbox can hold."""
    raise AssertionError("a delivery of a transaction that was rolled back")


async def fill(harness: Harness, tx: Transaction) -> int:
    """One of everything that a transaction can hold; the event's offset."""
    await harness.write(tx, "order 7")
    await tx.enqueue("emails", {"order": 7})
    await tx.outbox_enqueue("mail", {"order": 7})
    offset = await tx.publish("orders", {"id": 7}, key="7")
    await tx.save_offset("orders", "reader", offset)
    await tx.notify("orders")
    return offset


async def left_no_trace(judge: Store, receiver: WakeReceiver, witness: Witness) -> None:
    """Prove that nothing of what `fill` does exists, as `judge` and its `receiver` of wakes see it."""
    await heard_nothing(judge, receiver)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None
    assert await witness.business() == []
    assert await judge.queue("emails").claim_one("worker") is None
    assert not await judge.outbox("mail").run_once("worker", never_called)


class Broken(BaseException):
    """Not even an Exception."""
