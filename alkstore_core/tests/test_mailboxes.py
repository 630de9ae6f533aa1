"""Mailboxes: the facade over the primitives (contract section M). What they do is for the legs."""

from dataclasses import replace

import pytest
from alkstore_core import Holder, Message, Store
from alkstore_core.contract import CONTRACT_VERSION, require
from alkstore_core.engine import Engine, Refusal
from alkstore_core.errors import (
    CodecError,
    ConsumerFencedError,
    DatabaseError,
    InvalidNameError,
    ReservedNameError,
    StaleDeliveryError,
)
from alkstore_core.mailboxes import LARGEST_BATCH
from alkstore_core.wakes import mailbox_topic
from conftest import Faults

HOLDER = Holder("run", "7", 3)


@pytest.mark.parametrize(
    ("implemented", "since", "refused"),
    [
        ("1.0", "1.1", True),
        ("1.1", "1.1", False),
        ("1.2", "1.1", False),
        ("1.10", "1.9", False),
        ("1.9", "1.10", True),
        ("2.0", "1.1", False),
    ],
)
def test_versions_are_compared_as_numbers(implemented: str, since: str, refused: bool) -> None:
    """An older contract is refused with both versions in the message; an equal or a later one is not (M0)."""
    if not refused:
        require("things", since, implemented)
        return
    with pytest.raises(DatabaseError) as error:
        require("things", since, implemented)
    assert f"things arrived in contract {since}" in str(error.value)
    assert f"implements contract {implemented}" in str(error.value)


def test_an_engine_that_does_not_say_is_of_the_first_contract(store: Store) -> None:
    """Engines that were written before they could say are taken for what they are; those of today say it."""
    assert Engine.contract == "1.0"
    assert store.engine.contract == CONTRACT_VERSION == "1.1"


def test_a_handle_says_what_it_is_and_touches_nothing(store: Store, faults: Faults) -> None:
    """Making one checks the name at once, and asks the database nothing (T1, V1)."""
    mailbox = store.mailbox("run:7")
    assert (repr(mailbox), mailbox.name, mailbox.store) == ("<Mailbox 'run:7'>", "run:7", store)
    with pytest.raises(InvalidNameError):
        store.mailbox(" ")
    with pytest.raises(ReservedNameError):
        store.mailbox("__alkstore_x")
    assert faults.calls == []


async def test_nothing_is_sent_that_is_refused(store: Store, faults: Faults) -> None:
    """Names, numbers and payloads are checked before any primitive is called, on every entry point."""
    mailbox = store.mailbox("m")
    for error, call in (
        (CodecError, lambda: mailbox.send(object())),
        (InvalidNameError, lambda: mailbox.send(1, "")),
        (InvalidNameError, lambda: mailbox.attach(source="", subject="7")),
        (InvalidNameError, lambda: mailbox.adopt(source="run", subject="\0")),
        (InvalidNameError, lambda: mailbox.settle(source=" ", subject="7")),
        (InvalidNameError, lambda: mailbox.reopen(source="run", subject="")),
        (TypeError, lambda: mailbox.check(HOLDER, True)),
        (ValueError, lambda: mailbox.check(HOLDER, 2**63)),
        (TypeError, lambda: mailbox.check(HOLDER, types="status")),
        (InvalidNameError, lambda: mailbox.check(HOLDER, types=["status", ""])),
        (TypeError, lambda: mailbox.check(("run", "7", 3))),
        (TypeError, lambda: mailbox.check(replace(HOLDER, generation="3"))),
        (InvalidNameError, lambda: mailbox.check(replace(HOLDER, source=""))),
        (InvalidNameError, lambda: mailbox.acknowledge(HOLDER, None)),
        (TypeError, lambda: mailbox.mark_read("message")),
        (InvalidNameError, lambda: mailbox.mark_read([7])),
        (ReservedNameError, lambda: mailbox.reroute(to="__alkstore_x")),
    ):
        with pytest.raises(error):
            await call()
    assert faults.calls == []
    assert await mailbox.mark_read([]) == 0
    assert await mailbox.reroute(to="m") == 0
    assert faults.calls == []


async def test_what_the_engine_is_given(store: Store, faults: Faults) -> None:
    """Limits are clamped, types and ids given once each, and ids are new and in order of time."""
    mailbox = store.mailbox("m")
    first, second = await mailbox.send(1), await mailbox.send(1, "status")
    assert first < second
    assert first.startswith("message_")
    holder = await mailbox.attach(source="run", subject="7")
    for limit, given in ((-5, 1), (0, 1), (7, 7), (51, LARGEST_BATCH)):
        await mailbox.check(holder, limit, types=["a", "b", "a"])
        name, (of, who, wanted, types, fresh) = faults.calls[-1]
        assert (name, of, who, wanted, types) == ("check_mailbox", "m", holder, given, ["a", "b"])
        assert fresh.startswith("delivery_")
    await mailbox.mark_read([first, second, first])
    assert faults.calls[-1] == ("mark_read", ("m", [first, second]))


@pytest.mark.parametrize("refusal", Refusal)
async def test_every_refusal_has_its_error_and_its_words(store: Store, refusal: Refusal) -> None:
    """What an engine may answer is told with the mailbox, who or what was refused, and what to do (M7, E3)."""

    class Refusing:
        async def acknowledge_delivery(self, *_: object) -> Refusal:
            return refusal

    store._session = Refusing()  # type: ignore[assignment]
    stale = refusal in (Refusal.UNKNOWN_DELIVERY, Refusal.MESSAGE_ID, Refusal.OTHER_MAILBOX)
    with pytest.raises(StaleDeliveryError if stale else ConsumerFencedError) as refused:
        await store.mailbox("m").acknowledge(HOLDER, "delivery_1")
    told = str(refused.value)
    assert told.startswith("mailbox 'm': 'delivery_1'")
    assert len(told.partition(": ")[2].rpartition(": ")[2]) > 10, told
    if stale:
        assert refused.value.delivery_id == "delivery_1"
    else:
        assert "run '7', generation 3" in told
        assert refused.value.holder == HOLDER
    store._session = store.engine.autocommit()


async def test_a_transaction_takes_a_mailbox_by_name_or_by_handle(store: Store) -> None:
    """Both are the same mailbox; a name is checked as any other."""
    mailbox = store.mailbox("m")
    async with store.transaction() as tx:
        first, second = await tx.send("m", 1), await tx.send(mailbox, 2, "status")
        with pytest.raises(InvalidNameError):
            await tx.send("", 1)
        with pytest.raises(ReservedNameError):
            await tx.mark_read("__alkstore_x", [first])
        assert await tx.mark_read(mailbox, [first]) == 1
    [message] = await mailbox.pending()
    assert message == Message(second, "m", "status", b"2", message.created_at)
    assert message.payload_as(int) == 2
    with pytest.raises(CodecError):
        message.payload_as(str)


async def test_listening_is_to_a_topic_of_its_own(store: Store) -> None:
    """A mailbox's wakes are neither a queue's nor a channel's of that name."""
    assert mailbox_topic("m") == "m:m"
    receiver = await store.mailbox("m").listen()
    assert repr(receiver) == "<WakeReceiver 'm' open>"
    await receiver.close()
