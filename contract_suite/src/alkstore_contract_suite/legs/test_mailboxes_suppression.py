"""Mailboxes: messages that need no attention any more (M6)."""

from alkstore_core import Acknowledgement, Store, Wake
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import DeliveryRow, Harness, MailboxRows, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, payloads, sent
from alkstore_contract_suite.proofs import heard


@leg(rules="M6", since="1.1")
async def test_suppression_changes_messages_only(
    harness: Harness, store: Store, clock: ManualClock, witness: Witness
) -> None:
    """A batch whose messages are all read is out of the way with its row as it was; it may still be acknowledged."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2)
    delivery = await batch_of(mailbox, holder)
    before = await witness.mailbox("run:7")
    [row] = before.deliveries
    assert row == DeliveryRow(delivery.id, tuple(messages), 1, delivery.created_at, None, fenced=False)
    await harness.advance(3)
    assert await mailbox.mark_read(messages[:1]) == 1
    assert await witness.mailbox("run:7") == MailboxRows((messages[1],), (row,), (delivery.id,))
    assert await mailbox.mark_read(messages) == 1
    assert await mailbox.mark_read(messages) == 0
    assert await witness.mailbox("run:7") == MailboxRows((), (row,), ())
    assert await mailbox.check(holder) is None
    newer = await sent(mailbox, 3)
    following = await batch_of(mailbox, holder)
    assert (ids(following), following.replayed) == (newer, False)
    await harness.advance(3)
    late = await mailbox.acknowledge(holder, delivery.id)
    assert late == Acknowledgement(clock.now(), duplicate=False)
    await harness.advance(3)
    assert await mailbox.acknowledge(holder, delivery.id) == Acknowledgement(late.acknowledged_at, duplicate=True)
    rows = await witness.mailbox("run:7")
    assert (rows.unread, rows.outstanding) == (tuple(newer), (following.id,))


@leg(rules="M6", since="1.1")
async def test_suppression_is_of_this_mailbox(store: Store, witness: Witness) -> None:
    """Ids of other mailboxes, of deliveries and of nothing are ignored."""
    mailbox, holder = await attached(store)
    other = store.mailbox("run:8")
    [theirs] = await sent(other, "theirs")
    [ours] = await sent(mailbox, "ours")
    delivery = await batch_of(mailbox, holder)
    assert await mailbox.mark_read([theirs, delivery.id, "nothing"]) == 0
    assert await mailbox.mark_read([]) == 0
    assert (await witness.mailbox("run:8")).unread == (theirs,)
    assert (await witness.mailbox("run:7")).unread == (ours,)
    assert await mailbox.mark_read([theirs, ours, ours]) == 1


@leg(rules="M15 M6", since="1.1")
async def test_suppression_rides_the_transaction(store: Store, witness: Witness) -> None:
    """A batch suppressed on a transaction is outstanding for everybody until the commit, and for nobody after it."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2)
    delivery = await batch_of(mailbox, holder, 1)
    async with mailbox.listen() as wakes:
        await heard(store, wakes)
        async with store.transaction() as tx:
            assert await tx.mark_read(mailbox, messages[:1]) == 1
            assert (await witness.mailbox("run:7")).outstanding == (delivery.id,)
            assert payloads(await mailbox.pending()) == [2]
        assert await wakes.recv() == Wake("run:7")
    assert (await witness.mailbox("run:7")).outstanding == ()
    assert ids(await batch_of(mailbox, holder)) == messages[1:]
