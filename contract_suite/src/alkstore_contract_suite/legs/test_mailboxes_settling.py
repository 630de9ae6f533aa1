"""Mailboxes: settled consumers, and what becomes of their mail (M11)."""

import pytest
from alkstore_core import Store
from alkstore_core.errors import (
    ConsumerFencedError,
)

from alkstore_contract_suite.harness import Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, refused_for_good, sent


@leg(rules="M11", since="1.1")
async def test_settled_consumer_gets_nothing(store: Store, second_store: Store, witness: Witness) -> None:
    """A settled consumer neither checks nor acknowledges, its mail stays unread; reopened it goes on where it was."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1)
    delivery = await batch_of(mailbox, holder)
    before = await witness.mailbox("run:7")
    assert await mailbox.settle(source="run", subject="7") is True
    assert await second_store.mailbox("run:7").settle(source="run", subject="7") is False
    for either in (store, second_store):
        await refused_for_good(either.mailbox("run:7"), holder, delivery.id)
    assert await witness.mailbox("run:7") == before
    assert before.unread == tuple(messages)
    later = await mailbox.attach(source="run", subject="7")
    await refused_for_good(mailbox, later, delivery.id)
    assert await mailbox.reopen(source="run", subject="7") is True
    assert await mailbox.reopen(source="run", subject="7") is False
    assert ids(await batch_of(mailbox, later)) == messages
    assert await mailbox.settle(source="run", subject="nobody") is False
    assert await mailbox.reopen(source="run", subject="nobody") is False


@leg(rules="M11 M13", since="1.1")
async def test_rerouted_mail_keeps_its_order(store: Store, witness: Witness) -> None:
    """Unread mail moves on whole, in order of sending among what is there; what was read and done stays."""
    mailbox, holder = await attached(store)
    other, other_holder = await attached(store, name="run:8")
    await sent(mailbox, "done")
    done = await batch_of(mailbox, holder)
    await mailbox.acknowledge(holder, done.id)
    held = await sent(mailbox, 1, 2)
    theirs = await sent(other, "theirs")
    taken = await batch_of(mailbox, holder)
    later = await sent(mailbox, 3)
    await mailbox.settle(source="run", subject="7")
    assert await mailbox.reroute(to="run:8") == 3
    assert await mailbox.reroute(to="run:8") == 0
    assert await other.reroute(to="run:8") == 0
    rows = await witness.mailbox("run:7")
    assert (rows.unread, rows.outstanding) == ((), ())
    assert {row.id: row.fenced for row in rows.deliveries} == {done.id: False, taken.id: True}
    assert (await witness.mailbox("run:8")).unread == (*held, *theirs, *later)
    delivery = await batch_of(other, other_holder)
    assert ids(delivery) == [*held, *theirs, *later]
    assert {message.mailbox for message in delivery.messages} == {"run:8"}
    await mailbox.reopen(source="run", subject="7")
    with pytest.raises(ConsumerFencedError):
        await mailbox.acknowledge(holder, taken.id)
    assert (await witness.mailbox("run:8")).outstanding == (delivery.id,)
    assert await mailbox.check(holder) is None
    assert (await other.acknowledge(other_holder, delivery.id)).duplicate is False
