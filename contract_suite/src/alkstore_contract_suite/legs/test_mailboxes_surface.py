"""Mailboxes: engines that have none, names, numbers, outages, and what has ended (M0, E1, T8, T12)."""

from collections.abc import Awaitable, Callable

import pytest
from alkstore_core import Holder, Store
from alkstore_core.errors import (
    ClosedError,
    CodecError,
    DatabaseError,
    InvalidNameError,
    ReservedNameError,
)

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, payloads, sent


@leg(rules="M0", since="1.1")
async def test_older_engine_is_told(store: Store) -> None:
    """On an engine of an older contract a mailbox is refused at once, with both versions, and nothing else is."""
    store.engine.contract = "1.0"
    with pytest.raises(DatabaseError, match=r"contract 1\.1.*contract 1\.0"):
        store.mailbox("run:7")
    async with store.transaction() as tx:
        with pytest.raises(DatabaseError, match=r"contract 1\.1.*contract 1\.0"):
            await tx.send("run:7", 1)
        with pytest.raises(DatabaseError, match=r"contract 1\.1.*contract 1\.0"):
            await tx.mark_read("run:7", ["message"])
        await tx.enqueue("emails", 1)
    assert await store.queue("emails").claim_one("worker") is not None


@leg(rules="M0 V1 V2 V5", since="1.1")
async def test_names_and_numbers_are_checked(store: Store) -> None:
    """A mailbox's name is a shared name; sources, subjects and types are free ones; the limit is an int64."""
    for name in ("", " ", None, "a\0b", "\ud800"):
        with pytest.raises(InvalidNameError):
            store.mailbox(name)  # type: ignore[arg-type]
    with pytest.raises(ReservedNameError):
        store.mailbox("__alkstore_mail")
    mailbox, holder = await attached(store)
    for bad in ("", "\t", "a\0b"):
        with pytest.raises(InvalidNameError):
            await mailbox.attach(source=bad, subject="7")
        with pytest.raises(InvalidNameError):
            await mailbox.attach(source="run", subject=bad)
        with pytest.raises(InvalidNameError):
            await mailbox.send(1, bad)
        with pytest.raises(InvalidNameError):
            await mailbox.check(holder, types=[bad])
        with pytest.raises(InvalidNameError):
            await mailbox.reroute(to=bad)
        with pytest.raises(InvalidNameError):
            await mailbox.acknowledge(holder, bad)
    for wrong, error in ((True, TypeError), (1.0, TypeError), (2**63, ValueError)):
        with pytest.raises(error):
            await mailbox.check(holder, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await mailbox.check(holder, types="status")
    with pytest.raises(TypeError):
        await mailbox.mark_read("message")
    with pytest.raises(TypeError):
        await mailbox.check("holder")  # type: ignore[arg-type]
    with pytest.raises(CodecError):
        await mailbox.send({1})
    other = await store.mailbox("__mine " * 40).attach(source="__alkstore_run", subject=" 7 ")
    assert other == Holder("__alkstore_run", " 7 ", 1)


@leg(rules="M15 T8 T12", since="1.1")
async def test_what_has_ended_refuses(store: Store, harness: Harness) -> None:
    """On an ended transaction and on a closed store every call of a mailbox raises ClosedError; its receivers end."""
    mailbox, holder = await attached(store)
    await sent(mailbox, 1)
    tx = await store.begin_tx()
    await tx.rollback()
    for call in (tx.send("run:7", 1), tx.mark_read("run:7", ["message"])):
        with pytest.raises(ClosedError):
            await call
    async with harness.open() as closing:
        theirs = closing.mailbox("run:7")
        receiver = await theirs.listen()
    assert await receiver.recv() is None
    for act in (
        theirs.send(1),
        theirs.attach(source="run", subject="7"),
        theirs.adopt(source="run", subject="7"),
        theirs.check(holder),
        theirs.acknowledge(holder, "delivery"),
        theirs.mark_read(["message"]),
        theirs.settle(source="run", subject="7"),
        theirs.reopen(source="run", subject="7"),
        theirs.pending(),
        theirs.reroute(to="run:8"),
    ):
        with pytest.raises(ClosedError):
            await act
    with pytest.raises(ClosedError):
        await theirs.listen()
    assert payloads(await mailbox.pending()) == [1]


@leg(rules="M15 E1", since="1.1", needs=("outage",))
async def test_writes_fail_in_an_outage_and_leave_nothing(harness: Harness, witness: Witness) -> None:
    """While the database cannot be written every writing call of a mailbox is a DatabaseError, and changes nothing."""
    async with harness.open(patience_s=0.2) as store:
        mailbox, holder = await attached(store)
        messages = await sent(mailbox, 1, 2)
        delivery = await batch_of(mailbox, holder, 1)
        before = await witness.mailbox("run:7")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: mailbox.send(3),
            lambda: mailbox.attach(source="run", subject="7"),
            lambda: mailbox.adopt(source="run", subject="7"),
            lambda: mailbox.check(holder),
            lambda: mailbox.acknowledge(holder, delivery.id),
            lambda: mailbox.mark_read(messages),
            lambda: mailbox.settle(source="run", subject="7"),
            lambda: mailbox.reroute(to="run:8"),
        ]
        async with harness.outage():
            for call in calls:
                with pytest.raises(DatabaseError):
                    await call()
        assert await witness.mailbox("run:7") == before
    async with harness.open() as store:
        again = await batch_of(store.mailbox("run:7"), holder)
        assert (again.id, again.messages, again.replayed) == (delivery.id, delivery.messages, True)
