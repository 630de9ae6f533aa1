"""Mailboxes: who races for a batch, in one process and in several (M1, M8)."""

import asyncio
from random import Random

from alkstore_core import Holder, Mailbox, Store
from alkstore_core.errors import (
    ConsumerFencedError,
)

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, refused_for_good, sent


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
