"""Mailboxes: consumers that take over from others (M7 to M10)."""

import pytest
from alkstore_core import Holder, Store
from alkstore_core.errors import (
    ConsumerFencedError,
)

from alkstore_contract_suite.harness import Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.mail import attached, batch_of, ids, refused_for_good, sent


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
