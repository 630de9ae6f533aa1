"""Mailboxes: what a check hands out (M3, M4)."""

import pytest
from alkstore_core import Delivery, Message, Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, MailboxRows, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, payloads, sent


@leg(rules="M3", since="1.1")
async def test_oldest_unread_come_in_order(store: Store, clock: ManualClock, harness: Harness) -> None:
    """A batch is the oldest unread messages in order of sending, under an id of its own, and as they were sent."""
    mailbox, holder = await attached(store)
    first = await mailbox.send({"kind": "status", "n": [1, "é"]}, type="status")
    await harness.advance(5)
    second = await mailbox.send(None)
    await harness.advance(5)
    delivery = await mailbox.check(holder)
    assert delivery is not None
    assert delivery.id.startswith("delivery_")
    assert delivery == Delivery(
        delivery.id,
        "run:7",
        (
            Message(first, "run:7", "status", '{"kind":"status","n":[1,"é"]}'.encode(), clock.now() - 10),
            Message(second, "run:7", None, b"null", clock.now() - 5),
        ),
        clock.now(),
        replayed=False,
    )
    await mailbox.acknowledge(holder, delivery.id)
    await sent(mailbox, *range(60))
    seen: list[object] = []
    known = {delivery.id}
    while (delivery := await mailbox.check(holder, 25)) is not None:
        seen += payloads(delivery)
        assert delivery.id not in known
        known.add(delivery.id)
        await mailbox.acknowledge(holder, delivery.id)
    assert seen == list(range(60))


@leg(rules="M3 V5", since="1.1")
@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1, 1), (3, 3), (50, 50), (51, 50), (INT64_MAX, 50), (0, 1), (-1, 1), (INT64_MIN, 1), (None, 50)],
)
async def test_limit_is_clamped(store: Store, limit: int | None, expected: int) -> None:
    """At most `limit` messages, where a limit is 1 at the least, 50 at the most, and 50 by default."""
    mailbox, holder = await attached(store)
    async with store.transaction() as tx:
        for number in range(55):
            await tx.send(mailbox, number)
    delivery = await (mailbox.check(holder) if limit is None else mailbox.check(holder, limit))
    assert delivery is not None
    assert payloads(delivery) == list(range(expected))


@leg(rules="M3", since="1.1")
async def test_no_mail_is_nothing(store: Store, witness: Witness) -> None:
    """Where nothing is unread the answer is None, and nothing is stored."""
    mailbox, holder = await attached(store)
    assert await mailbox.check(holder) is None
    [message] = await sent(mailbox, "read before anybody looked")
    assert await mailbox.mark_read([message]) == 1
    assert await mailbox.check(holder, types=["status"]) is None
    assert await mailbox.check(holder) is None
    assert await witness.mailbox("run:7") == MailboxRows((), (), ())


@leg(rules="M4", since="1.1")
async def test_types_decide_whether_and_not_what(store: Store) -> None:
    """With types there is a batch only if an unread message has one of them, and then it is the oldest of all types."""
    mailbox, holder = await attached(store)
    await sent(mailbox, "a", "b", type="heartbeat")
    await sent(mailbox, "c")
    assert await mailbox.check(holder, types=["result", "Heartbeat"]) is None
    assert await mailbox.check(holder, types=[]) is None
    await sent(mailbox, "d", type="result")
    delivery = await mailbox.check(holder, 2, types=["question", "result"])
    assert delivery is not None
    assert payloads(delivery) == ["a", "b"]
    assert [message.type for message in delivery.messages] == ["heartbeat", "heartbeat"]
    await mailbox.acknowledge(holder, delivery.id)
    delivery = await mailbox.check(holder, types=("result",))
    assert delivery is not None
    assert payloads(delivery) == ["c", "d"]
    await mailbox.acknowledge(holder, delivery.id)
    assert await mailbox.check(holder, types=["result"]) is None
