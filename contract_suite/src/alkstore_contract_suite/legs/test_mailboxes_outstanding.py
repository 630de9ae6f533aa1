"""Mailboxes: what is outstanding, is replayed, survives restarts, and is one thing only (M2, M12, M13)."""

import pytest
from alkstore_core import Delivery, Holder, Store, Wake
from alkstore_core.errors import (
    ConsumerFencedError,
)

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, MailboxRows, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, payloads, refused_for_good, sent
from alkstore_contract_suite.proofs import heard


@leg(rules="M2", since="1.1")
async def test_unacknowledged_batch_is_replayed(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """Until it is acknowledged the very same batch comes again: same id, same messages, whatever was asked or sent."""
    mailbox, holder = await attached(store)
    await sent(mailbox, 1, 2, 3)
    delivery = await batch_of(mailbox, holder, 2)
    assert delivery.replayed is False
    await harness.advance(1000)
    await sent(mailbox, 4, type="urgent")
    again = Delivery(delivery.id, "run:7", delivery.messages, delivery.created_at, replayed=True)
    for either in (store, second_store):
        its = either.mailbox("run:7")
        assert await its.check(holder) == again
        assert await its.check(holder, 1) == again
        assert await its.check(holder, 50, types=["urgent"]) == again
        assert await its.check(holder, types=["nothing of the kind"]) == again
    rows = await witness.mailbox("run:7")
    assert [row.id for row in rows.deliveries] == [delivery.id]
    assert rows.outstanding == (delivery.id,)


@leg(rules="M2 M6", since="1.1")
async def test_replay_keeps_what_was_read_meanwhile(store: Store) -> None:
    """A batch of which some messages were suppressed is replayed whole, in order."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, *range(5))
    delivery = await batch_of(mailbox, holder)
    assert await mailbox.mark_read([messages[3], messages[0]]) == 2
    again = await batch_of(mailbox, holder)
    assert (again.id, ids(again), again.replayed) == (delivery.id, messages, True)


@leg(rules="M5 M6", since="1.1")
async def test_time_acknowledges_nothing(harness: Harness, store: Store, witness: Witness) -> None:
    """A batch stays in its consumer's hands for ever: no deadline reads, acknowledges or fences it."""
    mailbox, holder = await attached(store)
    await sent(mailbox, 1)
    delivery = await batch_of(mailbox, holder)
    before = await witness.mailbox("run:7")
    for seconds in (1, 60, 3600, 86400 * 365, 10**12):
        await harness.advance(seconds)
        again = await batch_of(mailbox, holder)
        assert (again.id, again.created_at, again.replayed) == (delivery.id, delivery.created_at, True)
    assert await witness.mailbox("run:7") == before
    assert (await mailbox.acknowledge(holder, delivery.id)).duplicate is False


@leg(rules="M12 M10", since="1.1", needs=("durable",))
async def test_restart_keeps_generation_and_batch(harness: Harness) -> None:
    """A consumer that comes back without attaching gets the very same delivery, and may acknowledge it."""
    async with harness.open() as store:
        mailbox, holder = await attached(store)
        await sent(mailbox, 1, 2)
        delivery = await batch_of(mailbox, holder)
    await harness.restart()
    async with harness.open() as store:
        mailbox = store.mailbox("run:7")
        kept = Holder("run", "7", 1)
        again = await batch_of(mailbox, kept)
        assert again == Delivery(delivery.id, "run:7", delivery.messages, delivery.created_at, replayed=True)
        assert (await mailbox.acknowledge(kept, delivery.id)).duplicate is False
        assert await mailbox.attach(source="run", subject="7") == Holder("run", "7", 2)


@leg(rules="M12 M8", since="1.1", needs=("child",))
async def test_batch_of_the_dead_is_kept(store: Store, witness: Witness, children: Children) -> None:
    """A process killed with a batch in hand loses nothing: restarted it has the batch, replaced its successor has."""
    mailbox = store.mailbox("run:7")
    messages = await sent(mailbox, 1, 2)
    child = await children.start(child_bodies.holds_a_batch, "run:7")
    generation, delivery_id = await child.reached("checked")
    await child.kill()
    holder = Holder("run", "7", generation)
    again = await batch_of(mailbox, holder)
    assert (again.id, ids(again), again.replayed) == (delivery_id, messages, True)
    successor = await mailbox.attach(source="run", subject="7")
    following = await batch_of(mailbox, successor)
    assert (ids(following), following.replayed) == (messages, False)
    await refused_for_good(mailbox, holder, delivery_id)
    assert (await witness.mailbox("run:7")).outstanding == (following.id,)


@leg(rules="M13 M6", since="1.1", needs=("insert",))
async def test_database_refuses_a_second_outstanding_delivery(harness: Harness, store: Store, witness: Witness) -> None:
    """Plain SQL cannot insert a second outstanding delivery; what is acknowledged or all read may be inserted."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2, 3)
    await mailbox.mark_read(messages[:1])
    delivery = await batch_of(mailbox, holder, 1)
    before = await witness.mailbox("run:7")
    for members in (messages[1:2], messages[2:], messages):
        with pytest.raises(Exception, match="outstanding"):
            await harness.insert_delivery("run:7", members, acknowledged_at=None)
    assert await witness.mailbox("run:7") == before
    await harness.insert_delivery("run:7", messages[1:], acknowledged_at=5)
    await harness.insert_delivery("run:7", messages[:1], acknowledged_at=None)
    assert len((await witness.mailbox("run:7")).deliveries) == 3
    again = await batch_of(mailbox, holder)
    assert (again.id, again.replayed) == (delivery.id, True)
    await mailbox.mark_read(messages[1:2])  # nothing but a message changes, and the guard lets in what it refused
    await harness.insert_delivery("run:7", messages[2:], acknowledged_at=None)
    assert len((await witness.mailbox("run:7")).outstanding) == 1


@leg(rules="M13", since="1.1", needs=("insert",))
async def test_one_view_answers_everything(harness: Harness, store: Store, witness: Witness) -> None:
    """Where only a message changes, checking, the guard, pending mail and its wake all change: none knows more."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2)
    delivery = await batch_of(mailbox, holder, 1)
    [row] = (await witness.mailbox("run:7")).deliveries
    assert payloads(await mailbox.pending()) == [2]
    assert (await batch_of(mailbox, holder)).id == delivery.id
    with pytest.raises(Exception, match="outstanding"):
        await harness.insert_delivery("run:7", messages[1:], acknowledged_at=None)
    async with mailbox.listen() as wakes:
        await heard(store, wakes)
        await mailbox.mark_read(messages[:1])
        assert await wakes.recv() == Wake("run:7")
    assert await witness.mailbox("run:7") == MailboxRows((messages[1],), (row,), ())
    assert payloads(await mailbox.pending()) == [2]
    await harness.insert_delivery("run:7", messages[1:], acknowledged_at=None)
    assert await mailbox.pending() == []
    with pytest.raises(ConsumerFencedError):  # it is outstanding now, and nobody's
        await mailbox.check(holder)
