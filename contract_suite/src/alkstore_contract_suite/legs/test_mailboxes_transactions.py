"""Mailboxes: mail that rides on transactions (M15)."""

import pytest
from alkstore_core import Store, Wake

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, sent
from alkstore_contract_suite.proofs import heard, mail_woke_nobody


@leg(rules="M15 T3 T6", since="1.1")
@pytest.mark.parametrize("end", ["commit", "rollback", "exception"])
async def test_mail_lands_with_the_transaction(
    harness: Harness, store: Store, second_store: Store, witness: Witness, end: str
) -> None:
    """Mail sent and suppressed on a transaction is seen, and wakes, when it commits, and never if it does not."""
    mailbox, holder = await attached(store)
    [before] = await sent(mailbox, "before")
    message = ""
    async with mailbox.listen() as wakes, second_store.mailbox("run:7").listen() as there:
        await heard(store, wakes)
        await heard(second_store, there, sender=store)
        try:
            async with store.transaction() as tx:
                await harness.write(tx, "order 7")
                message = await tx.send(mailbox, {"order": 7}, type="order")
                assert await tx.mark_read("run:7", [before]) == 1
                assert await tx.mark_read(mailbox, [before]) == 0
                assert [one.id for one in await second_store.mailbox("run:7").pending()] == [before]
                assert await wakes.try_recv() is None
                if end == "rollback":
                    await tx.rollback()
                elif end == "exception":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        if end == "commit":
            assert await wakes.recv() == Wake("run:7")
            assert await there.recv() == Wake("run:7")
        else:
            await mail_woke_nobody(store, wakes)
            await mail_woke_nobody(second_store, there, sender=store)
    landed = end == "commit"
    assert (await witness.mailbox("run:7")).unread == ((message,) if landed else (before,))
    assert await witness.business() == (["order 7"] if landed else [])
    assert ids(await batch_of(mailbox, holder)) == [message if landed else before]


@leg(rules="M15 T10 T3", since="1.1")
async def test_enlisted_mail_goes_with_the_caller(
    harness: Harness, store: Store, witness: Witness, native_kind: str
) -> None:
    """Mail on an enlisted transaction goes with the caller's commit, and a savepoint rolled back takes its part."""
    mailbox = store.mailbox("run:7")
    [before] = await sent(mailbox, "before")
    async with mailbox.listen() as wakes:
        await heard(store, wakes)
        async with harness.native(native_kind) as native:
            await native.write("order 7")
            tx = store.enlist(native.handle)
            kept = await tx.send("run:7", "kept")
            await native.savepoint()
            await tx.send("run:7", "undone")
            await tx.mark_read("run:7", [before])
            await native.rollback_to_savepoint()
            assert await wakes.try_recv() is None
            assert (await witness.mailbox("run:7")).unread == (before,)
            await native.commit()
        assert await wakes.recv() == Wake("run:7")
    assert (await witness.mailbox("run:7")).unread == (before, kept)
    async with mailbox.listen() as wakes:
        await heard(store, wakes)
        async with harness.native(native_kind) as native:
            tx = store.enlist(native.handle)
            await tx.send("run:7", "never")
            await tx.mark_read("run:7", [before])
            await native.rollback()
        await mail_woke_nobody(store, wakes)
    assert (await witness.mailbox("run:7")).unread == (before, kept)
    holder = await mailbox.attach(source="run", subject="7")
    assert ids(await batch_of(mailbox, holder, 1)) == [before]
    async with mailbox.listen() as wakes:
        await heard(store, wakes)
        async with harness.native(native_kind) as native:
            tx = store.enlist(native.handle)
            assert await tx.mark_read("run:7", [before]) == 1
            await native.commit()
        assert await wakes.recv() == Wake("run:7")
    assert ids(await batch_of(mailbox, holder)) == [kept]
