"""Mailboxes: ordered batches for one consumer at a time, replayed until acknowledged (contract section M)."""

import asyncio
from random import Random

import pytest
from alkstore_core import Acknowledgement, Delivery, Holder, Mailbox, Message, Store, Wake
from alkstore_core.errors import (
    ClosedError,
    CodecError,
    ConsumerFencedError,
    DatabaseError,
    InvalidNameError,
    ReservedNameError,
    StaleDeliveryError,
)
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import DeliveryRow, Harness, MailboxRows, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.proofs import mail_woke_nobody


async def attached(store: Store, *, name: str = "run:7", source: str = "run") -> tuple[Mailbox, Holder]:
    """A mailbox with a consumer."""
    mailbox = store.mailbox(name)
    return mailbox, await mailbox.attach(source=source, subject="7")


async def sent(mailbox: Mailbox, *payloads: object, type: str | None = None) -> list[str]:
    """The ids of messages sent one after the other."""
    return [await mailbox.send(payload, type) for payload in payloads]


async def batch_of(mailbox: Mailbox, holder: Holder, limit: int = 50) -> Delivery:
    """The delivery that there must be."""
    delivery = await mailbox.check(holder, limit)
    assert delivery is not None, f"{mailbox!r} gave {holder} nothing"
    return delivery


def ids(delivery: Delivery) -> list[str]:
    """The ids of its messages."""
    return [message.id for message in delivery.messages]


def payloads(messages: "Delivery | list[Message]") -> list[object]:
    """What was sent."""
    listed = list(messages.messages) if isinstance(messages, Delivery) else messages
    return [message.payload_as(object) for message in listed]


# versions


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


# checking


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


@leg(rules="M1 M13", since="1.1")
async def test_racing_checks_get_one_delivery(store: Store, second_store: Store, witness: Witness) -> None:
    """However many check at once, on whatever store, all get the same delivery, and only one was made."""
    for number in range(20):
        mailbox, holder = await attached(store, name=f"race {number}")
        other = second_store.mailbox(mailbox.name)
        await sent(mailbox, *range(3))
        gathered = await asyncio.gather(*(one.check(holder, 2) for one in (mailbox, other) * 4))
        deliveries = [delivery for delivery in gathered if delivery is not None]
        assert len(deliveries) == 8
        assert {(one.id, one.messages) for one in deliveries} == {(deliveries[0].id, deliveries[0].messages)}
        assert [one.replayed for one in deliveries].count(False) == 1
        assert [row.id for row in (await witness.mailbox(mailbox.name)).deliveries] == [deliveries[0].id]


# acknowledging


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


# taking over


@leg(rules="M8 M7", since="1.1")
async def test_attaching_fences_the_former_batch(store: Store, second_store: Store, witness: Witness) -> None:
    """The new consumer gets the same mail under another id, and the former one's acknowledgement never lands."""
    mailbox, former = await attached(store)
    messages = await sent(mailbox, 1, 2)
    taken = await batch_of(mailbox, former)
    holder = await second_store.mailbox("run:7").attach(source="run", subject="7")
    assert holder == Holder("run", "7", former.generation + 1)
    rows = await witness.mailbox("run:7")
    assert (rows.unread, rows.outstanding) == (tuple(messages), ())
    assert [(row.fenced, row.acknowledged_at) for row in rows.deliveries] == [(True, None)]

    async def refused() -> None:
        before = await witness.mailbox("run:7")
        for either in (store, second_store):
            for who in (former, holder):  # the right generation does not make it right
                with pytest.raises(ConsumerFencedError):
                    await either.mailbox("run:7").acknowledge(who, taken.id)
            with pytest.raises(ConsumerFencedError):
                await either.mailbox("run:7").check(former)
        assert await witness.mailbox("run:7") == before

    await refused()
    again = await batch_of(mailbox, holder)
    assert (ids(again), again.replayed) == (messages, False)
    assert again.id != taken.id
    await refused()
    await mailbox.acknowledge(holder, again.id)
    await refused()
    await sent(mailbox, 3)
    await mailbox.attach(source="run", subject="7")
    await refused_for_good(mailbox, former, taken.id)


async def refused_for_good(mailbox: Mailbox, holder: Holder, delivery_id: str) -> None:
    """Neither of them is accepted."""
    with pytest.raises(ConsumerFencedError):
        await mailbox.check(holder)
    with pytest.raises(ConsumerFencedError):
        await mailbox.acknowledge(holder, delivery_id)


@leg(rules="M8 M6", since="1.1")
async def test_attaching_fences_what_was_read_too(store: Store, witness: Witness) -> None:
    """Every batch that is not acknowledged is fenced, one that is all read too; an acknowledged one is not."""
    mailbox, former = await attached(store)
    await sent(mailbox, "acknowledged")
    done = await batch_of(mailbox, former)
    acknowledged = await mailbox.acknowledge(former, done.id)
    suppressed = []
    for number in range(2):
        messages = await sent(mailbox, number)
        suppressed.append((await batch_of(mailbox, former)).id)
        await mailbox.mark_read(messages)
    await mailbox.attach(source="run", subject="7")
    rows = {row.id: (row.fenced, row.acknowledged_at) for row in (await witness.mailbox("run:7")).deliveries}
    assert rows == {
        done.id: (False, acknowledged.acknowledged_at),
        **dict.fromkeys(suppressed, (True, None)),
    }


@leg(rules="M8", since="1.1")
async def test_attaching_leaves_other_mailboxes_alone(store: Store, witness: Witness) -> None:
    """A consumer of one mailbox is nobody's rival in another, under the same name too."""
    mailbox, holder = await attached(store)
    other, other_holder = await attached(store, name="run:8")
    await sent(other, 1)
    delivery = await batch_of(other, other_holder)
    before = await witness.mailbox("run:8")
    assert await mailbox.attach(source="run", subject="7") == Holder("run", "7", holder.generation + 1)
    assert await witness.mailbox("run:8") == before
    assert (await other.acknowledge(other_holder, delivery.id)).duplicate is False


@leg(rules="M8 M1", since="1.1")
async def test_one_of_racing_consumers_is_left(store: Store, second_store: Store, witness: Witness) -> None:
    """Attach, check and acknowledge at the same time, in any order: nothing is read but by who holds it in the end."""
    draw = Random(8)
    for number in range(15):
        mailbox, former = await attached(store, name=f"race {number}")
        other = second_store.mailbox(mailbox.name)
        messages = await sent(mailbox, 1, 2)
        taken = await batch_of(mailbox, former)

        async def late(mailbox: Mailbox = mailbox, former: Holder = former, id: str = taken.id) -> bool:
            try:
                await mailbox.acknowledge(former, id)
            except ConsumerFencedError:
                return False
            return True

        attach = other.attach(source="run", subject="7")
        racing = [late(), attach] if draw.random() < 0.5 else [attach, late()]
        results = await asyncio.gather(*racing)
        landed = next(result for result in results if isinstance(result, bool))
        holder = next(result for result in results if isinstance(result, Holder))
        rows = await witness.mailbox(mailbox.name)
        assert rows.unread == (() if landed else tuple(messages))
        assert [row.fenced for row in rows.deliveries] == [not landed]
        following = await other.check(holder)
        assert (following is None) is landed
        await refused_for_good(mailbox, former, taken.id)


@leg(rules="M9", since="1.1")
async def test_adopting_fences_without_a_generation(store: Store, witness: Witness) -> None:
    """Adopted, a mailbox keeps its generation and loses its batches: the right generation alone is not enough."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2)
    taken = await batch_of(mailbox, holder)
    adopted = await mailbox.adopt(source="run", subject="7")
    assert adopted == holder
    [row] = (await witness.mailbox("run:7")).deliveries
    assert (row.generation, row.fenced, row.acknowledged_at) == (holder.generation, True, None)
    with pytest.raises(ConsumerFencedError):
        await mailbox.acknowledge(holder, taken.id)
    assert (await witness.mailbox("run:7")).unread == tuple(messages)
    again = await batch_of(mailbox, adopted)
    assert (ids(again), again.id != taken.id) == (messages, True)
    await mailbox.acknowledge(adopted, again.id)
    with pytest.raises(ConsumerFencedError):
        await mailbox.acknowledge(adopted, taken.id)
    assert await mailbox.attach(source="run", subject="7") == Holder("run", "7", holder.generation + 1)


@leg(rules="M9", since="1.1")
async def test_nobody_adopts_as_a_stranger(store: Store, witness: Witness) -> None:
    """A consumer that never attached adopts nothing, and nothing is fenced."""
    mailbox, holder = await attached(store)
    await sent(mailbox, 1)
    await batch_of(mailbox, holder)
    before = await witness.mailbox("run:7")
    with pytest.raises(ConsumerFencedError):
        await mailbox.adopt(source="federated", subject="7")
    assert await witness.mailbox("run:7") == before


@leg(rules="M10", since="1.1")
async def test_sources_have_records_of_their_own(store: Store) -> None:
    """One subject under two sources has two generations, and each holder is held to its own."""
    mailbox = store.mailbox("run:7")
    for _ in range(2):
        await mailbox.attach(source="local", subject="7")
    local = await mailbox.attach(source="local", subject="7")
    federated = await mailbox.attach(source="federated", subject="7")
    assert (local, federated) == (Holder("local", "7", 3), Holder("federated", "7", 1))
    await sent(mailbox, 1)
    delivery = await batch_of(mailbox, federated)
    assert (await mailbox.acknowledge(federated, delivery.id)).duplicate is False
    await sent(mailbox, 2)
    delivery = await batch_of(mailbox, local)
    assert (await mailbox.acknowledge(local, delivery.id)).duplicate is False
    for wrong in (Holder("local", "7", 1), Holder("federated", "7", 3)):
        with pytest.raises(ConsumerFencedError):
            await mailbox.check(wrong)
    assert await mailbox.settle(source="local", subject="7") is True
    assert await mailbox.check(federated) is None
    with pytest.raises(ConsumerFencedError):
        await mailbox.check(local)


@leg(rules="M10 M13", since="1.1")
async def test_another_source_s_batch_is_not_replayed(store: Store, witness: Witness) -> None:
    """A batch in the hands of one source's consumer is neither given to another's nor acknowledged by it."""
    mailbox = store.mailbox("run:7")
    local = await mailbox.attach(source="local", subject="7")
    federated = await mailbox.attach(source="federated", subject="7")
    assert local.generation == federated.generation
    await sent(mailbox, 1)
    delivery = await batch_of(mailbox, federated)
    before = await witness.mailbox("run:7")
    await refused_for_good(mailbox, local, delivery.id)
    assert await witness.mailbox("run:7") == before
    assert (await mailbox.acknowledge(federated, delivery.id)).duplicate is False


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
        await mailbox.mark_read(messages[:1])
        assert await wakes.recv() == Wake("run:7")
    assert await witness.mailbox("run:7") == MailboxRows((messages[1],), (row,), ())
    assert payloads(await mailbox.pending()) == [2]
    await harness.insert_delivery("run:7", messages[1:], acknowledged_at=None)
    assert await mailbox.pending() == []
    with pytest.raises(ConsumerFencedError):  # it is outstanding now, and nobody's
        await mailbox.check(holder)


# pending mail and wakes


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
        await mailbox.send(1)
        assert await here.recv() == Wake("run:7")
        assert await there.recv() == Wake("run:7")
        await batch_of(mailbox, holder)
        await mailbox.send(2)  # in no delivery, so that it is pending
        assert await here.recv() == Wake("run:7")
        assert await there.recv() == Wake("run:7")
        await mail_woke_nobody(store, elsewhere, channel)
    assert await here.recv() is None


@leg(rules="M14 M6 M8 M9 M11", since="1.1")
async def test_wakes_follow_eligibility(store: Store) -> None:
    """What makes mail pending again wakes: fencing, the suppression of a whole batch, rerouting; the rest does not."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2, 3)
    async with mailbox.listen() as wakes, store.mailbox("run:8").listen() as target:
        await batch_of(mailbox, holder, 2)
        await batch_of(mailbox, holder)
        await mailbox.pending()
        await mailbox.settle(source="run", subject="7")
        await mailbox.reopen(source="run", subject="7")
        await mailbox.mark_read(messages[:1])  # the batch still needs attention
        await mail_woke_nobody(store, wakes, target)
        await mailbox.mark_read(messages[1:2])  # and now the next message is deliverable
        assert await wakes.recv() == Wake("run:7")
        await batch_of(mailbox, holder)
        await mailbox.adopt(source="run", subject="7")
        assert await wakes.recv() == Wake("run:7")
        holder = await mailbox.attach(source="run", subject="7")  # nothing was outstanding
        await mail_woke_nobody(store, wakes, target)
        await batch_of(mailbox, holder)
        await mailbox.attach(source="run", subject="7")
        assert await wakes.recv() == Wake("run:7")
        await mailbox.reroute(to="run:8")
        assert await target.recv() == Wake("run:8")
        await mailbox.reroute(to="run:8")
        await mailbox.mark_read(messages)
        await mail_woke_nobody(store, wakes, target)


@leg(rules="M14 N7", since="1.1", needs=("child",))
async def test_mail_wakes_other_processes(store: Store, children: Children) -> None:
    """A message that another process sends wakes listeners here, by itself and on a transaction."""
    mailbox = store.mailbox("run:7")
    async with mailbox.listen() as wakes:
        child = await children.start(child_bodies.sends_mail, "run:7")
        for count in (1, 2):
            await child.reached("ready")
            await child.release("ready")
            assert await wakes.recv() == Wake("run:7")
            assert len(await mailbox.pending()) == count


# transactions


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
        await mail_woke_nobody(store, wakes)
        await mail_woke_nobody(second_store, there)
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
        async with harness.native(native_kind) as native:
            tx = store.enlist(native.handle)
            await tx.send("run:7", "never")
            await tx.mark_read("run:7", [before])
            await native.rollback()
        await mail_woke_nobody(store, wakes)
    assert (await witness.mailbox("run:7")).unread == (before, kept)


@leg(rules="M15 M6", since="1.1")
async def test_suppression_rides_the_transaction(store: Store, witness: Witness) -> None:
    """A batch suppressed on a transaction is outstanding for everybody until the commit, and for nobody after it."""
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, 1, 2)
    delivery = await batch_of(mailbox, holder, 1)
    async with mailbox.listen() as wakes:
        async with store.transaction() as tx:
            assert await tx.mark_read(mailbox, messages[:1]) == 1
            assert (await witness.mailbox("run:7")).outstanding == (delivery.id,)
            assert payloads(await mailbox.pending()) == [2]
        assert await wakes.recv() == Wake("run:7")
    assert (await witness.mailbox("run:7")).outstanding == ()
    assert ids(await batch_of(mailbox, holder)) == messages[1:]


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


@leg(rules="M15 T13", since="1.1")
async def test_cancelled_calls_lose_nothing(store: Store, witness: Witness) -> None:
    """A check or acknowledgement that is cancelled happened or did not: each message is delivered once in the end."""
    draw = Random(13)
    mailbox, holder = await attached(store)
    messages = await sent(mailbox, *range(30))
    read: list[str] = []
    for _ in range(200):
        task = asyncio.ensure_future(mailbox.check(holder, 3))
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        delivery = await mailbox.check(holder, 3)
        if delivery is None:
            break
        acknowledging = asyncio.ensure_future(mailbox.acknowledge(holder, delivery.id))
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        acknowledging.cancel()
        await asyncio.wait((acknowledging,))
        await mailbox.acknowledge(holder, delivery.id)
        read += ids(delivery)
    assert read == messages
    rows = await witness.mailbox("run:7")
    assert (rows.unread, rows.outstanding) == ((), ())
    assert sorted(id for row in rows.deliveries for id in row.message_ids) == sorted(messages)


@leg(rules="M1 M5 M8 M13", since="1.1", needs=("child",))
async def test_processes_race_for_a_mailbox(store: Store, witness: Witness, children: Children) -> None:
    """Processes check, acknowledge and attach as they please: each message is read once, by who held it."""
    mailbox = store.mailbox("run:7")
    messages: list[str] = []
    racers = [await children.start(child_bodies.races_for_mail, "run:7", f"racer {n}", 60, n) for n in range(3)]
    for racer in racers:
        await racer.reached("ready")
    for racer in racers:
        await racer.release("ready")
    for number in range(150):
        messages.append(await mailbox.send(number))
        assert len((await witness.mailbox("run:7")).outstanding) <= 1
    told: list[list[str]] = []
    for racer in racers:
        told += await racer.result()
    holder = await mailbox.attach(source="run", subject="7")
    while (delivery := await mailbox.check(holder)) is not None:
        await mailbox.acknowledge(holder, delivery.id)
        told.append(ids(delivery))
    read = [id for batch in told for id in batch]
    assert sorted(read) == sorted(messages)
    rows = await witness.mailbox("run:7")
    assert (rows.unread, rows.outstanding) == ((), ())
    acknowledged = {row.message_ids for row in rows.deliveries if row.acknowledged_at is not None}
    assert acknowledged == {tuple(batch) for batch in told}
    assert not any(row.fenced for row in rows.deliveries if row.acknowledged_at is not None)
