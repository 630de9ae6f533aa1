"""Mailboxes: acknowledging, and what cannot be acknowledged (M5, M7)."""

import pytest
from alkstore_core import Acknowledgement, Holder, Store
from alkstore_core.errors import (
    ConsumerFencedError,
    StaleDeliveryError,
)
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, MailboxRows, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, sent


@leg(rules="M5", since="1.1")
async def test_acknowledging_reads_the_batch(
    harness: Harness, store: Store, second_store: Store, clock: ManualClock, witness: Witness
) -> None:
    """An acknowledgement reads every message of the batch and none sent since; a repeated one changes nothing."""
    mailbox, holder = await attached(store)
    await sent(mailbox, 1, 2)
    delivery = await batch_of(mailbox, holder)
    newer = await sent(mailbox, 3)
    await harness.advance(7)
    at = clock.now()
    assert await mailbox.acknowledge(holder, delivery.id) == Acknowledgement(at, duplicate=False)
    rows = await witness.mailbox("run:7")
    assert rows.unread == tuple(newer)
    assert rows.outstanding == ()
    assert [(row.id, row.acknowledged_at) for row in rows.deliveries] == [(delivery.id, at)]
    await harness.advance(7)
    for either in (store, second_store):
        again = await either.mailbox("run:7").acknowledge(holder, delivery.id)
        assert again == Acknowledgement(at, duplicate=True)
    assert await witness.mailbox("run:7") == rows
    following = await batch_of(mailbox, holder)
    assert ids(following) == newer
    assert await mailbox.acknowledge(holder, delivery.id) == Acknowledgement(at, duplicate=True)
    assert await witness.mailbox("run:7") == MailboxRows(
        tuple(newer), (await witness.mailbox("run:7")).deliveries, (following.id,)
    )


@leg(rules="M7", since="1.1")
async def test_stale_ids_are_told_apart(store: Store, witness: Witness) -> None:
    """An id of nothing, of another mailbox's delivery and of a message are refused, each in its own words."""
    mailbox, holder = await attached(store)
    other, other_holder = await attached(store, name="run:8")
    [message] = await sent(mailbox, "ours")
    await sent(other, "theirs")
    delivery = await batch_of(mailbox, holder)
    theirs = await batch_of(other, other_holder)
    before = await witness.mailbox("run:7"), await witness.mailbox("run:8")
    told = []
    for stale in ("delivery_of_nothing", theirs.id, message):
        with pytest.raises(StaleDeliveryError) as refused:
            await mailbox.acknowledge(holder, stale)
        assert refused.value.delivery_id == stale
        told.append(str(refused.value).replace(stale, ""))
    assert len(set(told)) == 3
    assert (await witness.mailbox("run:7"), await witness.mailbox("run:8")) == before
    assert (await mailbox.acknowledge(holder, delivery.id)).duplicate is False


@leg(rules="M7", since="1.1")
async def test_wrong_generation_is_refused(store: Store, second_store: Store, witness: Witness) -> None:
    """A generation that is not the record's, earlier or later, checks nothing and acknowledges nothing."""
    mailbox, holder = await attached(store)
    holder = await mailbox.attach(source="run", subject="7")
    assert holder == Holder("run", "7", 2)
    await sent(mailbox, 1)
    for outstanding in (False, True):
        delivery_id = (await batch_of(mailbox, holder)).id if outstanding else "delivery_of_nothing"
        before = await witness.mailbox("run:7")
        for wrong in (
            Holder("run", "7", 1),
            Holder("run", "7", 3),
            Holder("run", "7", 0),
            Holder("run", "8", 2),
            Holder("Run", "7", 2),
        ):
            for either in (store, second_store):
                its = either.mailbox("run:7")
                with pytest.raises(ConsumerFencedError) as refused:
                    await its.check(wrong)
                assert refused.value.holder == wrong
                with pytest.raises(ConsumerFencedError):
                    await its.acknowledge(wrong, delivery_id)
        with pytest.raises(ConsumerFencedError):
            await store.mailbox("run:8").check(holder)
        assert await witness.mailbox("run:7") == before
