"""Mailboxes: pending mail, and its wakes (M14)."""

from alkstore_core import Message, Store, Wake

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.legs.mail import attached, batch_of, sent
from alkstore_contract_suite.proofs import heard, mail_woke_nobody


@leg(rules="M14", since="1.1")
async def test_pending_is_what_nobody_holds(store: Store, second_store: Store, harness: Harness) -> None:
    """Pending are the unread messages outside the outstanding delivery, in order, however many; nothing is taken."""
    mailbox, holder = await attached(store)
    async with store.transaction() as tx:
        messages = [await tx.send("run:7", number, "note") for number in range(120)]
    seen = await second_store.mailbox("run:7").pending()
    assert seen == [
        Message(id, "run:7", "note", str(number).encode(), harness.clock.now()) for number, id in enumerate(messages)
    ]
    delivery = await batch_of(mailbox, holder, 40)
    assert [message.id for message in await mailbox.pending()] == messages[40:]
    await mailbox.mark_read([messages[0], messages[50]])
    assert [message.id for message in await mailbox.pending()] == messages[40:50] + messages[51:]
    await mailbox.attach(source="run", subject="7")
    assert [message.id for message in await mailbox.pending()] == messages[1:50] + messages[51:]
    assert await store.mailbox("run:8").pending() == []
    assert delivery.replayed is False


@leg(rules="M14", since="1.1")
async def test_mail_wakes(store: Store, second_store: Store) -> None:
    """A message wakes who listens to its mailbox, on every store, and nobody else."""
    mailbox, holder = await attached(store)
    async with (
        mailbox.listen() as here,
        second_store.mailbox("run:7").listen() as there,
        store.mailbox("run:8").listen() as elsewhere,
        store.listen("run:7") as channel,
    ):
        for number in range(2):  # the second is pending too: it is in no delivery
            await mailbox.send(number)
            assert await here.recv() == Wake("run:7")
            assert await there.recv() == Wake("run:7")
            await heard(store, here)
            await heard(second_store, there, sender=store)
            await batch_of(mailbox, holder)
        await mail_woke_nobody(store, elsewhere, channel)
    assert await here.recv() is None


@leg(rules="M14 M6 M8 M9 M11", since="1.1")
async def test_wakes_follow_eligibility(store: Store) -> None:
    """What makes mail pending again wakes: fencing, the suppression of a whole batch, rerouting; the rest does not."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2, 3)
    async with mailbox.listen() as wakes, store.mailbox("run:8").listen() as target:
        await heard(store, wakes)
        await batch_of(mailbox, holder, 2)
        await batch_of(mailbox, holder)
        await mailbox.pending()
        await mailbox.settle(source="run", subject="7")
        await mailbox.reopen(source="run", subject="7")
        await mailbox.mark_read(messages[:1])  # the batch still needs attention
        await mail_woke_nobody(store, wakes, target)
        await mailbox.mark_read(messages[1:2])  # and now the next message is deliverable
        assert await wakes.recv() == Wake("run:7")
        await heard(store, wakes)
        await batch_of(mailbox, holder)
        await mailbox.adopt(source="run", subject="7")
        assert await wakes.recv() == Wake("run:7")
        await heard(store, wakes)
        holder = await mailbox.attach(source="run", subject="7")  # nothing was outstanding
        await mail_woke_nobody(store, wakes, target)
        await batch_of(mailbox, holder)
        await mailbox.attach(source="run", subject="7")
        assert await wakes.recv() == Wake("run:7")
        await mailbox.reroute(to="run:8")
        assert await target.recv() == Wake("run:8")
        await heard(store, wakes, target)
        await mailbox.reroute(to="run:8")
        await mailbox.mark_read(messages)
        await mail_woke_nobody(store, wakes, target)


@leg(rules="M14 N7", since="1.1", needs=("child",))
async def test_mail_wakes_other_processes(store: Store, children: Children) -> None:
    """A message that another process sends wakes listeners here, by itself and on a transaction."""
    mailbox = store.mailbox("run:7")
    async with mailbox.listen() as wakes:
        child = await children.start(child_bodies.sends_mail, "run:7")
        for count, barrier in enumerate(("by itself", "on a transaction"), 1):
            await child.reached(barrier)
            await child.release(barrier)
            assert await wakes.recv() == Wake("run:7")
            assert len(await mailbox.pending()) == count
