"""Which names are allowed, and that nothing happens to them on the way (contract section 2)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from alkstore_core import Store, Transaction, Wake
from alkstore_core.errors import InvalidNameError, ReservedNameError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import run_at_once
from alkstore_contract_suite.proofs import caught_up, got_nothing, heard_nothing

Entry = Callable[[Store, Any], Awaitable[object]]
TxEntry = Callable[[Transaction, Any], Awaitable[object]]


async def _deliver(_: object) -> None:
    pass


_SHARED: dict[str, Entry] = {
    "notify": lambda store, name: store.notify(name),
    "try_lock": lambda store, name: store.try_lock(name, "owner", 10),
    "schedule": lambda store, name: store.schedule(name, "@every 1h", "queue", 1),
    "schedule's queue": lambda store, name: store.schedule("schedule", "@every 1h", name, 1),
    "unschedule": lambda store, name: store.unschedule(name),
}
_HANDLES: dict[str, Callable[[Store, Any], object]] = {
    "listen": lambda store, name: store.listen(name),
    "stream": lambda store, name: store.stream(name),
    "queue": lambda store, name: store.queue(name),
    "outbox": lambda store, name: store.outbox(name),
}
_TX_SHARED: dict[str, TxEntry] = {
    "enqueue": lambda tx, name: tx.enqueue(name, 1),
    "outbox_enqueue": lambda tx, name: tx.outbox_enqueue(name, 1),
    "publish": lambda tx, name: tx.publish(name, 1),
    "notify": lambda tx, name: tx.notify(name),
    "save_offset": lambda tx, name: tx.save_offset(name, "reader", 1),
    "get_job": lambda tx, name: tx.get_job(name, 1),
    "get_offset": lambda tx, name: tx.get_offset(name, "reader"),
    "read_since": lambda tx, name: tx.read_since(name, 0),
    "read_from_consumer": lambda tx, name: tx.read_from_consumer(name, "reader"),
}
_OWN: dict[str, Entry] = {
    "claim_one": lambda store, name: store.queue("queue").claim_one(name),
    "claim_batch": lambda store, name: store.queue("queue").claim_batch(name, 1),
    "ack_batch": lambda store, name: store.queue("queue").ack_batch(name, [1]),
    "run_once": lambda store, name: store.outbox("outbox").run_once(name, _deliver),
    "read_from_consumer": lambda store, name: store.stream("stream").read_from_consumer(name),
    "save_offset": lambda store, name: store.stream("stream").save_offset(name, 1),
    "get_offset": lambda store, name: store.stream("stream").get_offset(name),
}
_TX_OWN: dict[str, TxEntry] = {
    "save_offset": lambda tx, name: tx.save_offset("stream", name, 1),
    "get_offset": lambda tx, name: tx.get_offset("stream", name),
    "read_from_consumer": lambda tx, name: tx.read_from_consumer("stream", name),
}

_BLANK = ["", " ", "   ", "\t", "\n", "\r\n \t", "\u00a0", "\u3000\u2003", "\x1c\x1f"]
_UNSTORABLE = ["\0", "a\0", "\0a", "emails\0archive", "\ud800", "a\udfffb", "\udc80", "\ud83d", "\ude00\ud83d"]
_NO_STR = [None, 7, 1.5, True, b"emails", ["emails"], object()]
_RESERVED = ["__alkstore_", "__alkstore_x", "__alkstore_scheduler", "__alkstore_ ", "__alkstore_\U0001f600"]


def _named(error: Exception) -> object:
    assert isinstance(error, InvalidNameError | ReservedNameError)
    return error.name


async def _refused(
    store: Store,
    error: type[InvalidNameError] | type[ReservedNameError],
    names: list[Any],
    entries: Mapping[str, Entry],
    handles: Mapping[str, Callable[[Store, Any], object]],
    tx_entries: Mapping[str, TxEntry],
) -> None:
    for name in names:
        for entry in entries.values():
            with pytest.raises(error) as caught:
                run_at_once(entry(store, name))
            assert _named(caught.value) is name
        for handle in handles.values():
            with pytest.raises(error) as caught:
                handle(store, name)
            assert _named(caught.value) is name
    async with store.transaction() as tx:
        for name in names:
            for tx_entry in tx_entries.values():
                with pytest.raises(error) as caught:
                    run_at_once(tx_entry(tx, name))
                assert _named(caught.value) is name


@leg(rules="V1", since="1.0")
async def test_shared_names_are_not_blank(store: Store) -> None:
    """An empty or blank shared name is InvalidNameError at every entry and its transaction form, before any waiting."""
    await _refused(store, InvalidNameError, _BLANK, _SHARED, _HANDLES, _TX_SHARED)


@leg(rules="V1", since="1.0")
async def test_shared_names_are_str(store: Store) -> None:
    """A shared name that is no str is InvalidNameError at every entry, before any waiting."""
    await _refused(store, InvalidNameError, _NO_STR, _SHARED, _HANDLES, _TX_SHARED)


@leg(rules="V1", since="1.0")
async def test_reserved_prefix_is_refused(store: Store) -> None:
    """A shared name under the reserved prefix is ReservedNameError at every entry, before any waiting."""
    await _refused(store, ReservedNameError, _RESERVED, _SHARED, _HANDLES, _TX_SHARED)


@leg(rules="V3", since="1.0")
async def test_unstorable_shared_names_are_refused(store: Store) -> None:
    """A shared name with a NUL or a lone surrogate is InvalidNameError at every entry, before any waiting."""
    await _refused(store, InvalidNameError, _UNSTORABLE, _SHARED, _HANDLES, _TX_SHARED)


@leg(rules="V2", since="1.0")
async def test_own_names_are_not_blank(store: Store) -> None:
    """A blank consumer or worker, or one that is no str, is InvalidNameError at every entry, before any waiting."""
    subscribe = {"subscribe": lambda store, name: store.stream("stream").subscribe(name)}
    await _refused(store, InvalidNameError, _BLANK + _NO_STR, _OWN, subscribe, _TX_OWN)


@leg(rules="V3 V2", since="1.0")
async def test_unstorable_own_names_are_refused(store: Store) -> None:
    """A consumer or worker with a NUL or a lone surrogate is InvalidNameError at every entry, before any waiting."""
    subscribe = {"subscribe": lambda store, name: store.stream("stream").subscribe(name)}
    await _refused(store, InvalidNameError, _UNSTORABLE, _OWN, subscribe, _TX_OWN)


@leg(rules="V1", since="1.0")
async def test_refused_names_leave_nothing(store: Store, witness: Witness) -> None:
    """A refused name has changed nothing, and the transaction that it was refused on commits the rest."""
    async with store.transaction() as tx:
        for name in ("", "\0", "__alkstore_x"):
            for entry in _TX_SHARED.values():
                with pytest.raises((InvalidNameError, ReservedNameError)):
                    await entry(tx, name)
        await tx.enqueue("queue", 1)
    with pytest.raises(ReservedNameError):
        await store.schedule("schedule", "@every 1s", "__alkstore_x", 1)
    assert not await store.unschedule("schedule")
    assert await witness.jobs("queue") == JobCounts(pending=1)
    for name in ("", "__alkstore_x"):
        assert await witness.jobs(name) == JobCounts()
        assert await witness.events(name) == []


@leg(rules="V2", since="1.0")
async def test_own_names_may_use_the_reserved_prefix(store: Store) -> None:
    """Consumers and workers are the caller's own: under the reserved prefix they work like any other."""
    name = "__alkstore_mine"
    stream, queue = store.stream("stream"), store.queue("queue")
    offset = await stream.publish("event")
    async with stream.subscribe(name) as receiver:
        event = await receiver.recv()
        assert event is not None
        await receiver.save_offset()
    assert await stream.get_offset(name) == offset
    assert await stream.read_from_consumer(name) == []
    async with store.transaction() as tx:
        await tx.save_offset("stream", name, offset + 1)
        assert await tx.get_offset("stream", name) == offset + 1
        assert await tx.read_from_consumer("stream", name) == []
    await queue.enqueue_many([1, 2])
    claims = await queue.claim_batch(name, 2)
    assert [claim.job.worker_id for claim in claims] == [name] * 2
    assert await queue.ack_batch(name, [claim.job.id for claim in claims]) == 2
    await store.outbox("outbox").enqueue(1)
    assert await store.outbox("outbox").run_once(name, _deliver)


_ODD = [
    "a",
    "A",
    " a",
    "a ",
    "a\n",
    "\ta",
    "a b",
    "caf\u00e9",
    "cafe\u0301",
    "\uff41",
    "stra\u00dfe",
    "STRASSE",
    "\u0130",
    "i",
    "a'",
    'a"; DROP TABLE business; --',
    "a%",
    "a_",
    "a\\",
    "a/b",
    "a:b",
    "$1 ? :a",
    "\U0001f600",
    "\u200b",
    "\ufeff",
    "\uffff",
    "\x01\x7f",
    "__alkstore",
    "__ALKSTORE_X",
    " __alkstore_x",
    "null",
    "0",
]
"""Names that are easily taken for one another, or for something else."""


@leg(rules="V1", since="1.0")
async def test_names_stay_as_they_are(store: Store, second_store: Store, witness: Witness) -> None:
    """A name is not trimmed, folded, normalized or interpreted: near-equal names are different queues and streams."""
    for number, name in enumerate(_ODD):
        await store.queue(name).enqueue(number)
        await store.stream(name).publish(number, key=name)
        async with store.transaction() as tx:
            await tx.enqueue(name, number)
            await tx.publish(name, number, key=name)
            await tx.save_offset(name, name, number + 1)
            await tx.outbox_enqueue(name, number)
    for number, name in enumerate(_ODD):
        assert await witness.jobs(name) == JobCounts(pending=2)
        claims = await second_store.queue(name).claim_batch(name, 5)
        assert [(claim.job.queue, claim.job.worker_id, claim.job.payload_as(int)) for claim in claims] == [
            (name, name, number)
        ] * 2
        events = await second_store.stream(name).read_since(0)
        assert [(event.stream, event.key, event.payload_as(int)) for event in events] == [(name, name, number)] * 2
        assert await second_store.stream(name).get_offset(name) == number + 1
        delivered: list[int] = []

        async def deliver(handle: Any, delivered: list[int] = delivered) -> None:
            delivered.append(handle.job.payload_as(int))

        assert await second_store.outbox(name).run_once("worker", deliver)
        assert not await second_store.outbox(name).run_once("worker", deliver)
        assert delivered == [number]


@leg(rules="V1 L1", since="1.0")
async def test_near_equal_locks_differ(store: Store, second_store: Store) -> None:
    """Locks and their owners are told apart by every character."""
    for name in _ODD:
        lock = await store.try_lock(name, "owner", 10)
        assert lock is not None
        assert (lock.name, lock.owner) == (name, "owner")
    for owner in _ODD:
        assert await second_store.try_lock("a", owner, 10) is None
    for owner in _ODD:
        lock = await store.try_lock("of many", owner, 10)
        assert lock is not None
        assert lock.owner == owner
        assert await lock.release()


@leg(rules="V1 H1", since="1.0")
async def test_near_equal_schedules_differ(store: Store) -> None:
    """Schedules are told apart by every character of their names."""
    for name in _ODD:
        schedule = await store.schedule(name, "@every 1h", name, 1)
        assert (schedule.name, schedule.queue) == (name, name)
    for name in _ODD:
        assert await store.unschedule(name)
        assert not await store.unschedule(name)


@leg(rules="V1 N3", since="1.0")
async def test_near_equal_channels_differ(store: Store, second_store: Store) -> None:
    """A notify wakes the listeners of its own channel, to the character, and no other."""
    receivers = {name: await store.listen(name) for name in _ODD}
    for woken, receiver in receivers.items():
        await second_store.notify(woken)
        assert await receiver.recv() == Wake(woken)
        await caught_up(store)
        # A repeated wake of the right channel is legal (N3); one of another is not.
        assert await receiver.try_recv() in (None, Wake(woken))
        await heard_nothing(store, *(other for name, other in receivers.items() if name != woken))


_PREFIX = "x" * 63
_LONG = {
    "63 bytes": (_PREFIX + "a", _PREFIX + "b"),
    "the 63 themselves": (_PREFIX, _PREFIX + "b"),
    "63 bytes of a multibyte text": ("\u00e9" * 31 + "xa", "\u00e9" * 31 + "xb"),
    "a character across the limit": ("x" * 62 + "\u00e9", "x" * 62 + "\u00e8"),
    "1000 characters": ("".join(map(str, range(1000)))[:999] + "a", "".join(map(str, range(1000)))[:999] + "b"),
}


@leg(rules="V4", since="1.0")
@pytest.mark.parametrize("pair", _LONG)
async def test_long_channels_wake_their_own(store: Store, second_store: Store, pair: str) -> None:
    """Two channels that share their first 63 bytes never wake each other, by either form of notify."""
    one, other = _LONG[pair]
    async with store.listen(one) as receiver, store.listen(other) as bystander:
        for sender in (store, second_store):
            await sender.notify(one)
            assert await receiver.recv() == Wake(one)
            await caught_up(store)
            await receiver.try_recv()
            async with sender.transaction() as tx:
                await tx.notify(one)
            assert await receiver.recv() == Wake(one)
            await heard_nothing(store, bystander)
            await receiver.try_recv()
        await second_store.notify(other)
        assert await bystander.recv() == Wake(other)
        await heard_nothing(store, receiver)


@leg(rules="V4 T10", since="1.0")
async def test_long_channels_wake_their_own_when_enlisted(harness: Harness, store: Store, native_kind: str) -> None:
    """So it is for a notify on the caller's own transaction."""
    one, other = _LONG["63 bytes"]
    async with store.listen(one) as receiver, store.listen(other) as bystander:
        async with harness.native(native_kind) as native:
            await store.enlist(native.handle).notify(one)
            await native.commit()
        assert await receiver.recv() == Wake(one)
        await heard_nothing(store, bystander)


@leg(rules="V4 S9", since="1.0")
@pytest.mark.parametrize("pair", _LONG)
async def test_long_streams_keep_apart(store: Store, second_store: Store, pair: str) -> None:
    """Two streams that share their first 63 bytes hold and deliver their own events only."""
    one, other = _LONG[pair]
    async with store.stream(one).subscribe("reader") as receiver, store.stream(other).subscribe("reader") as bystander:
        offset = await second_store.stream(one).publish("own")
        event = await receiver.recv()
        assert event is not None
        assert (event.stream, event.offset, event.payload) == (one, offset, b'"own"')
        await receiver.save_offset()
        await got_nothing(store.stream(other), bystander)
    assert await store.stream(one).get_offset("reader") == offset
    assert await store.stream(other).get_offset("reader") == 0


@leg(rules="V4", since="1.0")
@pytest.mark.parametrize("pair", _LONG)
async def test_long_names_are_not_cut(store: Store, second_store: Store, witness: Witness, pair: str) -> None:
    """A long name works for queues, outboxes, locks, schedules, workers and consumers, whole."""
    one, other = _LONG[pair]
    await store.queue(one).enqueue("own")
    await store.outbox(one).enqueue("own")
    assert await second_store.queue(other).claim_one(one) is None
    assert not await second_store.outbox(other).run_once(one, _deliver)
    claim = await second_store.queue(one).claim_one(one)
    assert claim is not None
    assert (claim.job.queue, claim.job.worker_id) == (one, one)
    assert await witness.jobs(one) == JobCounts(processing=1)
    assert await second_store.queue(one).ack_batch(other, [claim.job.id]) == 0
    assert await second_store.queue(one).ack_batch(one, [claim.job.id]) == 1
    lock, beside = await store.try_lock(one, one, 10), await second_store.try_lock(other, other, 10)
    assert lock is not None
    assert beside is not None
    assert (lock.name, lock.owner, beside.name, beside.owner) == (one, one, other, other)
    assert await second_store.try_lock(one, other, 10) is None
    schedule = await store.schedule(one, "@every 1h", one, 1)
    assert (schedule.name, schedule.queue) == (one, one)
    assert not await store.unschedule(other)
    assert await store.unschedule(one)
    await store.stream("stream").save_offset(one, 5)
    assert await store.stream("stream").get_offset(other) == 0
    assert await store.stream("stream").get_offset(one) == 5
