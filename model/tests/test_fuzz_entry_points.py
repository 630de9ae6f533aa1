"""Every public call with hostile arguments, on every engine: refused by the contract's errors, and nothing stored."""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from alkstore_core import (
    Acknowledgement,
    Delivery,
    Holder,
    Job,
    JobHandle,
    Lock,
    Mailbox,
    Message,
    Outbox,
    Queue,
    Schedule,
    Store,
    Stream,
    StreamEvent,
    Transaction,
    Worker,
)
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError, PayloadTooLargeError
from alkstore_core.numbers import INT64_MAX
from drivers import DRIVERS, PATIENCE_S, Driver
from hostile import (
    ERRORS,
    FREE_NAMES,
    ID_LISTS,
    KEY_LISTS,
    KEYS,
    NAMES,
    NUMBERS,
    OPTIONALS,
    PAYLOAD_LISTS,
    PAYLOADS,
    SPECS,
    THINGS,
    Kind,
    Value,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import is_deep

ENQUEUE = {
    "delay": OPTIONALS,
    "run_at": OPTIONALS,
    "expires": OPTIONALS,
    "max_attempts": OPTIONALS,
    "priority": NUMBERS,
}
QUEUE = {
    "visibility_timeout_s": NUMBERS,
    "max_attempts": NUMBERS,
    "backoff_base_s": NUMBERS,
    "dead_letter_retention_s": OPTIONALS,
}
SCHEDULE = {"priority": NUMBERS, "max_attempts": OPTIONALS, "expires": OPTIONALS}


@dataclass(frozen=True, slots=True)
class Subjects:
    """What the calls of one engine are made on."""

    store: Store
    queue: Queue
    stream: Stream
    outbox: Outbox
    handle: JobHandle
    lock: Lock
    mailbox: Mailbox
    holder: Holder


async def made(store: Store) -> Subjects:
    """A store with a claimed job, two waiting, two events, a delivery, a lock, and a mailbox with a consumer."""
    queue, stream, outbox = store.queue("n", visibility_timeout_s=INT64_MAX), store.stream("n"), store.outbox("n")
    await queue.enqueue_many([1, 2, 3])
    handle = await queue.claim_one("w")
    await stream.publish_many([1, 2])
    await outbox.enqueue(1)
    lock = await store.try_lock("held", "w", INT64_MAX)
    assert handle is not None
    assert lock is not None
    mailbox = store.mailbox("n")
    holder = await mailbox.attach(source="w", subject="w")
    await mailbox.send(1)
    return Subjects(store, queue, stream, outbox, handle, lock, mailbox, holder)


async def sent(sending: Awaitable[str]) -> str:
    """A message, whose id is an engine's own."""
    return (await sending).partition("_")[0]


async def nothing(_: object) -> None:
    """A delivery, and a handler."""


async def at_once(thing: Any) -> Any:
    """A call that does not wait."""
    return thing


async def within(store: Store, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
    """A call on a transaction, which commits if it is not refused."""
    async with store.transaction() as tx:
        return await work(tx)


async def opened(opening: Any) -> Any:
    """A receiver, closed at once."""
    async with opening as receiver:
        return repr(receiver)


_ADDRESS = re.compile("0x[0-9a-f]+")

Call = Callable[..., Awaitable[Any]]

CALLS: dict[str, tuple[Call, dict[str, Kind]]] = {
    "Store.notify": (lambda its, **a: its.store.notify(**a), {"channel": NAMES, "payload": PAYLOADS}),
    "Store.listen": (lambda its, **a: opened(its.store.listen(**a)), {"channel": NAMES}),
    "Store.stream": (lambda its, **a: at_once(its.store.stream(**a)), {"name": NAMES}),
    "Store.queue": (lambda its, **a: at_once(its.store.queue(**a)), {"name": NAMES, **QUEUE}),
    "Store.outbox": (lambda its, **a: at_once(its.store.outbox(**a)), {"name": NAMES}),
    "Store.try_lock": (lambda its, **a: its.store.try_lock(**a), {"name": NAMES, "owner": FREE_NAMES, "ttl": NUMBERS}),
    "Store.schedule": (
        lambda its, **a: its.store.schedule(**a),
        {"name": NAMES, "spec": SPECS, "queue": NAMES, "payload": PAYLOADS, **SCHEDULE},
    ),
    "Store.unschedule": (lambda its, **a: its.store.unschedule(**a), {"name": NAMES}),
    "Store.enlist": (lambda its, **a: at_once(its.store.enlist(**a)), {"connection": THINGS}),
    "Queue.enqueue": (lambda its, **a: its.queue.enqueue(**a), {"payload": PAYLOADS, **ENQUEUE}),
    "Queue.enqueue_many": (lambda its, **a: its.queue.enqueue_many(**a), {"payloads": PAYLOAD_LISTS, **ENQUEUE}),
    "Queue.claim_one": (lambda its, **a: its.queue.claim_one(**a), {"worker_id": FREE_NAMES}),
    "Queue.claim_batch": (lambda its, **a: its.queue.claim_batch(**a), {"worker_id": FREE_NAMES, "n": NUMBERS}),
    "Queue.ack_batch": (lambda its, **a: its.queue.ack_batch(**a), {"worker_id": FREE_NAMES, "job_ids": ID_LISTS}),
    "Queue.cancel": (lambda its, **a: its.queue.cancel(**a), {"job_id": NUMBERS}),
    "Queue.get_job": (lambda its, **a: its.queue.get_job(**a), {"job_id": NUMBERS}),
    "JobHandle.retry": (lambda its, **a: its.handle.retry(**a), {"error": ERRORS, "delay": OPTIONALS}),
    "JobHandle.fail": (lambda its, **a: its.handle.fail(**a), {"error": ERRORS}),
    "JobHandle.heartbeat": (lambda its, **a: its.handle.heartbeat(**a), {"extend": NUMBERS}),
    "Stream.publish": (lambda its, **a: its.stream.publish(**a), {"payload": PAYLOADS, "key": KEYS}),
    "Stream.publish_many": (
        lambda its, **a: its.stream.publish_many(**a),
        {"payloads": PAYLOAD_LISTS, "keys": KEY_LISTS},
    ),
    "Stream.read_since": (lambda its, **a: its.stream.read_since(**a), {"offset": NUMBERS, "limit": NUMBERS}),
    "Stream.read_from_consumer": (
        lambda its, **a: its.stream.read_from_consumer(**a),
        {"consumer": FREE_NAMES, "limit": NUMBERS},
    ),
    "Stream.save_offset": (lambda its, **a: its.stream.save_offset(**a), {"consumer": FREE_NAMES, "offset": NUMBERS}),
    "Stream.get_offset": (lambda its, **a: its.stream.get_offset(**a), {"consumer": FREE_NAMES}),
    "Stream.trim_to": (lambda its, **a: its.stream.trim_to(**a), {"horizon": NUMBERS}),
    "Stream.subscribe": (lambda its, **a: opened(its.stream.subscribe(**a)), {"consumer": FREE_NAMES}),
    "Outbox.enqueue": (lambda its, **a: its.outbox.enqueue(**a), {"payload": PAYLOADS, **ENQUEUE}),
    "Outbox.run_once": (lambda its, **a: its.outbox.run_once(**a, delivery=nothing), {"worker_id": FREE_NAMES}),
    "Store.mailbox": (lambda its, **a: at_once(its.store.mailbox(**a)), {"name": NAMES}),
    "Mailbox.send": (lambda its, **a: sent(its.mailbox.send(**a)), {"payload": PAYLOADS, "type": KEYS}),
    "Mailbox.attach": (lambda its, **a: its.mailbox.attach(**a), {"source": FREE_NAMES, "subject": FREE_NAMES}),
    "Mailbox.adopt": (lambda its, **a: its.mailbox.adopt(**a), {"source": FREE_NAMES, "subject": FREE_NAMES}),
    "Mailbox.settle": (lambda its, **a: its.mailbox.settle(**a), {"source": FREE_NAMES, "subject": FREE_NAMES}),
    "Mailbox.reopen": (lambda its, **a: its.mailbox.reopen(**a), {"source": FREE_NAMES, "subject": FREE_NAMES}),
    "Mailbox.check": (
        lambda its, **a: its.mailbox.check(its.holder, **a),
        {"limit": NUMBERS, "types": KEY_LISTS},
    ),
    "Mailbox.check as": (
        lambda its, source, subject, generation: its.mailbox.check(Holder(source, subject, generation)),
        {"source": FREE_NAMES, "subject": FREE_NAMES, "generation": NUMBERS},
    ),
    "Mailbox.check by": (lambda its, **a: its.mailbox.check(**a), {"holder": THINGS}),
    "Mailbox.acknowledge": (
        lambda its, **a: its.mailbox.acknowledge(its.holder, **a),
        {"delivery_id": FREE_NAMES},
    ),
    "Mailbox.mark_read": (lambda its, **a: its.mailbox.mark_read(**a), {"message_ids": KEY_LISTS}),
    "Mailbox.reroute": (lambda its, **a: its.mailbox.reroute(**a), {"to": NAMES}),
    "Transaction.send": (
        lambda its, **a: sent(within(its.store, lambda tx: tx.send(**a))),
        {"mailbox": NAMES, "payload": PAYLOADS, "type": KEYS},
    ),
    "Transaction.mark_read": (
        lambda its, **a: within(its.store, lambda tx: tx.mark_read(**a)),
        {"mailbox": NAMES, "message_ids": KEY_LISTS},
    ),
    "Lock.renew": (lambda its, **a: its.lock.renew(**a), {"ttl": NUMBERS}),
    "Worker": (
        lambda its, **a: at_once(Worker(its.queue, nothing, **a)),
        {"concurrency": NUMBERS, "worker_id": FREE_NAMES, "shutdown_timeout": NUMBERS},
    ),
    "Transaction.enqueue": (
        lambda its, **a: within(its.store, lambda tx: tx.enqueue(**a)),
        {"queue": NAMES, "payload": PAYLOADS, **ENQUEUE},
    ),
    "Transaction.outbox_enqueue": (
        lambda its, **a: within(its.store, lambda tx: tx.outbox_enqueue(**a)),
        {"outbox": NAMES, "payload": PAYLOADS, **ENQUEUE},
    ),
    "Transaction.publish": (
        lambda its, **a: within(its.store, lambda tx: tx.publish(**a)),
        {"stream": NAMES, "payload": PAYLOADS, "key": KEYS},
    ),
    "Transaction.notify": (
        lambda its, **a: within(its.store, lambda tx: tx.notify(**a)),
        {"channel": NAMES, "payload": PAYLOADS},
    ),
    "Transaction.save_offset": (
        lambda its, **a: within(its.store, lambda tx: tx.save_offset(**a)),
        {"stream": NAMES, "consumer": FREE_NAMES, "offset": NUMBERS},
    ),
    "Transaction.get_job": (
        lambda its, **a: within(its.store, lambda tx: tx.get_job(**a)),
        {"queue": NAMES, "job_id": NUMBERS},
    ),
    "Transaction.get_offset": (
        lambda its, **a: within(its.store, lambda tx: tx.get_offset(**a)),
        {"stream": NAMES, "consumer": FREE_NAMES},
    ),
    "Transaction.read_since": (
        lambda its, **a: within(its.store, lambda tx: tx.read_since(**a)),
        {"stream": NAMES, "offset": NUMBERS, "limit": NUMBERS},
    ),
    "Transaction.read_from_consumer": (
        lambda its, **a: within(its.store, lambda tx: tx.read_from_consumer(**a)),
        {"stream": NAMES, "consumer": FREE_NAMES, "limit": NUMBERS},
    ),
}
"""Every call that takes arguments, and what is given for each."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """One call, with its arguments."""

    name: str
    arguments: dict[str, Value]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"

    async def on(self, subjects: Subjects) -> object:
        """What came of it, without the numbers that are an engine's own."""
        call, _ = CALLS[self.name]
        arguments = {name: value.make() for name, value in self.arguments.items()}
        try:
            return shape(await call(subjects, **arguments))
        except Exception as error:
            kind = type(error)
            if not issubclass(kind, AlkstoreError) and kind not in (TypeError, ValueError):
                raise AssertionError(f"{self!r} raised {error!r}, which the contract does not have") from error
            engines_own = issubclass(kind, ClosedError | DatabaseError) and not isinstance(error.__cause__, ValueError)
            return Refusal(kind, "" if engines_own else _ADDRESS.sub("0x", str(error)))


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error, with its words where they are core's."""

    kind: type[Exception]
    message: str


def shape(result: Any) -> object:
    """A result without ids and offsets."""
    match result:
        case bool() | None | str() | Schedule() | Holder() | Acknowledgement():
            return result
        case Delivery():
            return [shape(message) for message in result.messages], result.created_at, result.replayed
        case Message():
            return replace(result, id="")
        case int():
            return "a number"
        case list():
            return [shape(one) for one in result]
        case Job():
            return replace(result, id=0)
        case JobHandle():
            return replace(result.job, id=0)
        case StreamEvent():
            return replace(result, offset=0)
        case Lock():
            return result.name, result.owner, result.expires_at
        case Queue():
            return result.name, result.options
        case Worker():
            return type(result)
    return result.name


def chosen(kind: Kind) -> st.SearchStrategy[Value]:
    """More often a usual one, so that the hostile ones of the other arguments are reached."""
    usual, hostile = st.sampled_from(kind.usual), st.sampled_from(kind.hostile)
    return st.sampled_from((usual, usual, usual, hostile)).flatmap(lambda values: values)


def one_by_one(name: str) -> list[Hostile]:
    """The call with each value for each argument, the others being usual."""
    _, kinds = CALLS[name]
    usual = {argument: kind.usual[0] for argument, kind in kinds.items()}
    return [
        Hostile(name, {**usual, argument: value})
        for argument, kind in kinds.items()
        for value in (*kind.usual, *kind.hostile)
    ]


calls = st.sampled_from(sorted(CALLS)).flatmap(
    lambda name: st.fixed_dictionaries({argument: chosen(kind) for argument, kind in CALLS[name][1].items()}).map(
        lambda arguments: Hostile(name, arguments)
    )
)


@pytest.mark.parametrize("name", CALLS)
def test_each_hostile_argument_is_refused_alike_and_stores_nothing(name: str) -> None:
    """Whatever is given for one argument, each engine does the same with it; a refusal leaves every table as it was."""
    hold_all_to(one_by_one(name))


@settings(
    max_examples=2000 if is_deep() else 30,
    derandomize=not is_deep(),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(calls, min_size=10, max_size=40))
def test_hostile_arguments_together_are_refused_alike_and_store_nothing(hostile: list[Hostile]) -> None:
    """The same for several hostile arguments at once, in calls that follow one another."""
    hold_all_to(hostile)


def hold_all_to(hostile: list[Hostile]) -> None:
    """Do the calls on all engines, and compare."""
    with tempfile.TemporaryDirectory(prefix="alkstore-fuzz-") as directory:
        done = {
            driver.name: asyncio.run(outcomes(driver, hostile, Path(directory) / driver.name)) for driver in DRIVERS
        }
    first, *others = DRIVERS
    for driver in others:
        for call, ours, theirs in zip(hostile, done[first.name], done[driver.name], strict=True):
            if repr(ours) != repr(theirs) and not (driver.limits_notify and is_too_long_a_notify(call, theirs)):
                pytest.fail(f"{call!r}: {first.name} gave {ours!r}, {driver.name} gave {theirs!r}")


def is_too_long_a_notify(call: Hostile, given: object) -> bool:
    """Whether a notify was refused for the length of its payload, as one engine may (P4)."""
    return call.name.endswith(".notify") and isinstance(given, Refusal) and given.kind is PayloadTooLargeError


async def outcomes(driver: type[Driver], hostile: list[Hostile], place: Path) -> list[object]:
    """What one engine makes of the calls."""
    place.mkdir()
    harness = driver.harness(place)
    await harness.start()
    given: list[object] = []
    async with harness.open(patience_s=PATIENCE_S) as store:
        store.draw = lambda low, _: low
        subjects = await made(store)
        before = await driver.stored(harness)
        for call in hostile:
            async with asyncio.timeout(30):
                given.append(await call.on(subjects))
            after = await driver.stored(harness)
            if isinstance(given[-1], Refusal):
                assert after == before, f"{driver.name}: {call!r} was refused, and changed what is stored"
            before = after
    await harness.stop()
    return given
