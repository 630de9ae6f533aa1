"""The store's surface: what it offers, with which options, and handles that touch nothing (contract section 1)."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from alkstore_core import (
    EventReceiver,
    Job,
    JobHandle,
    JobState,
    Lock,
    Outbox,
    Queue,
    QueueOptions,
    Schedule,
    ScheduleOptions,
    StopToken,
    Store,
    Stream,
    StreamEvent,
    Transaction,
    Wake,
    WakeReceiver,
    Worker,
    open_store,
)
from alkstore_core.errors import DatabaseError
from alkstore_core.testing import running_tasks

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import (
    subjects_of,
)
from alkstore_contract_suite.proofs import heard_nothing

# what it offers

_ENQUEUE = "*, delay=None, run_at=None, expires=None, max_attempts=None, priority=0)"
_RECEIVER = {"recv": "()", "try_recv": "()", "close": "()", "__aiter__": "()", "__aenter__": "()"}
_SURFACE: dict[type, dict[str, str]] = {
    Store: {
        "close": "()",
        "notify": "(channel, payload=None)",
        "listen": "(channel)",
        "stream": "(name)",
        "queue": "(name, *, visibility_timeout_s=300, max_attempts=3, backoff_base_s=5, dead_letter_retention_s=None)",
        "outbox": "(name)",
        "try_lock": "(name, owner, ttl)",
        "schedule": "(name, spec, queue, payload, *, priority=0, max_attempts=None, expires=None)",
        "unschedule": "(name)",
        "run_schedules": "(stop)",
        "begin_tx": "()",
        "transaction": "()",
        "enlist": "(connection)",
    },
    Transaction: {
        "enqueue": f"(queue, payload, {_ENQUEUE}",
        "outbox_enqueue": f"(outbox, payload, {_ENQUEUE}",
        "publish": "(stream, payload, *, key=None)",
        "notify": "(channel, payload=None)",
        "save_offset": "(stream, consumer, offset)",
        "get_job": "(queue, job_id)",
        "get_offset": "(stream, consumer)",
        "read_since": "(stream, offset, limit=100)",
        "read_from_consumer": "(stream, consumer, limit=100)",
        "commit": "()",
        "rollback": "()",
    },
    Queue: {
        "enqueue": f"(payload, {_ENQUEUE}",
        "enqueue_many": f"(payloads, {_ENQUEUE}",
        "claim_one": "(worker_id)",
        "claim_batch": "(worker_id, n)",
        "ack_batch": "(worker_id, job_ids)",
        "cancel": "(job_id)",
        "get_job": "(job_id)",
        "sweep_expired": "()",
    },
    JobHandle: {
        "ack": "()",
        "retry": "(error, delay=None)",
        "fail": "(error=None)",
        "heartbeat": "(extend)",
        "release": "()",
    },
    Stream: {
        "publish": "(payload, *, key=None)",
        "publish_many": "(payloads, *, keys=None)",
        "read_since": "(offset, limit=100)",
        "read_from_consumer": "(consumer, limit=100)",
        "save_offset": "(consumer, offset)",
        "get_offset": "(consumer)",
        "trim_to": "(horizon)",
        "subscribe": "(consumer)",
    },
    WakeReceiver: _RECEIVER,
    EventReceiver: {**_RECEIVER, "save_offset": "()"},
    Outbox: {"enqueue": f"(payload, {_ENQUEUE}", "run_once": "(worker_id, delivery)"},
    Lock: {"renew": "(ttl)", "release": "()", "__aenter__": "()"},
    StopToken: {"cancel": "()", "wait": "()"},
}


def _parameters(function: Callable[..., object]) -> str:
    """The parameters of a method as written, without self and types."""
    _, *parameters = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare))


@leg(rules="X1 T2", since="1.0")
async def test_surface(store: Store) -> None:
    """Everything that the contract names is there, with those parameters and defaults and no engine's own beside."""
    its = await subjects_of(store)
    async with store.transaction() as tx:
        things = (store, tx, its.queue, its.handle, its.stream, its.receiver, its.events, its.outbox, its.lock)
        for thing in (*things, StopToken()):
            [kind] = [kind for kind in _SURFACE if isinstance(thing, kind)]
            offered = {name: _parameters(getattr(type(thing), name)) for name in _SURFACE[kind]}
            assert offered == _SURFACE[kind]
        assert tx.connection is not None
    assert (its.queue.name, its.queue.options) == ("subject", QueueOptions())
    assert isinstance(its.handle.job, Job)
    assert (its.lock.name, its.lock.owner) == ("subject", "subject")
    assert isinstance(its.lock.expires_at, int)
    assert isinstance(its.lock.token, int)
    names = list(inspect.signature(Worker).parameters)
    assert names == ["queue", "handler", "concurrency", "worker_id", "shutdown_timeout"]
    assert _parameters(Worker.run) == "(stop)"


@leg(rules="T2", since="1.0")
async def test_no_capability_query(store: Store) -> None:
    """A store offers nothing that asks what its engine can do."""
    for thing in (store, store.queue("queue"), store.stream("stream")):
        words = {word for name in dir(thing) if not name.startswith("_") for word in name.split("_")}
        asks = {"capability", "capabilities", "supports", "supported", "features", "has", "can", "dialect", "backend"}
        assert words & asks == set()


@leg(rules="T2 X1", since="1.0")
async def test_open_belongs_to_the_engine(store: Store) -> None:
    """The store's own class opens it, with a class method that is awaitable and a context manager."""
    assert type(store) is not Store
    assert isinstance(store, Store)
    assert inspect.ismethod(getattr(type(store), "open", None))


@leg(rules="X1 V6", since="1.0")
async def test_option_sets_are_closed(store: Store, witness: Witness) -> None:
    """An option that the contract does not name is TypeError wherever options are taken, and nothing happens."""
    queue, stream, outbox = store.queue("queue"), store.stream("stream"), store.outbox("outbox")
    unknown: Any = {"colour": "red"}
    async with store.transaction() as tx:
        for call in (
            lambda: store.queue("queue", **unknown),
            lambda: store.stream("stream", **unknown),
            lambda: store.outbox("outbox", **unknown),
            lambda: store.listen("channel", **unknown),
            lambda: store.notify("channel", **unknown),
            lambda: store.schedule("schedule", "@every 1h", "queue", 1, **unknown),
            lambda: store.try_lock("lock", "owner", 10, **unknown),
            lambda: store.begin_tx(**unknown),
            lambda: store.transaction(**unknown),
            lambda: queue.enqueue(1, **unknown),
            lambda: queue.enqueue_many([1], **unknown),
            lambda: queue.claim_one("worker", **unknown),
            lambda: stream.publish(1, **unknown),
            lambda: stream.publish_many([1], **unknown),
            lambda: stream.subscribe("reader", **unknown),
            lambda: outbox.enqueue(1, **unknown),
            lambda: tx.enqueue("queue", 1, **unknown),
            lambda: tx.outbox_enqueue("outbox", 1, **unknown),
            lambda: tx.publish("stream", 1, **unknown),
            lambda: tx.notify("channel", **unknown),
            lambda: QueueOptions(**unknown),
            lambda: ScheduleOptions(**unknown),
        ):
            with pytest.raises(TypeError, match="colour"):
                call()
    assert await witness.jobs("queue") == JobCounts()
    assert await witness.events("stream") == []


@leg(rules="X1 T2", since="1.0", needs=("child",))
async def test_open_refuses_unknown_schemes_and_opens_by_url(harness: Harness, store: Store) -> None:
    """open_store opens the same data by its URL; a scheme that no engine has is DatabaseError."""
    address = harness.address()
    job_id = await store.queue("queue").enqueue(1)
    async with open_store(address.url, clock=harness.clock, **address.options) as another:
        assert type(another) is type(store)
        assert await another.queue("queue").get_job(job_id) is not None
    for url in ("nosuchengine://somewhere", "no url", ""):
        with pytest.raises(DatabaseError):
            await open_store(url)


@leg(rules="X1", since="1.0")
async def test_values_do_not_change(store: Store) -> None:
    """Jobs, events, schedules, wakes and options are immutable and slotted, and equal where they say the same."""
    its = await subjects_of(store)
    [event] = await its.stream.read_since(0)
    schedule = await store.schedule("schedule", "@every 1h", "queue", 1, priority=2)
    assert (schedule.name, schedule.spec, schedule.queue) == ("schedule", "@every 1h", "queue")
    assert schedule.options == ScheduleOptions(priority=2)
    job = await its.queue.get_job(its.handle.job.id)
    assert job == its.handle.job
    assert isinstance(event, StreamEvent)
    assert isinstance(schedule, Schedule)
    for value in (job, event, schedule, schedule.options, its.queue.options, Wake("channel")):
        assert not hasattr(value, "__dict__")
        assert hash(value) == hash(value)
        for name in [*getattr(type(value), "__match_args__", ()), "another"]:
            with pytest.raises((AttributeError, TypeError)):
                setattr(value, name, None)
    assert {state.name: state.value for state in JobState} == {
        "PENDING": "pending",
        "PROCESSING": "processing",
        "DEAD": "dead",
    }


@leg(rules="X1 H3", since="1.0")
async def test_stop_token() -> None:
    """A token says whether it was cancelled, and ends every wait, whichever thread cancels it; once is for ever."""
    token = StopToken()
    assert token.is_cancelled is False
    waiting = [asyncio.create_task(token.wait()) for _ in range(3)]
    abandoned = asyncio.create_task(token.wait())
    await asyncio.sleep(0)
    abandoned.cancel()
    assert not any(task.done() for task in waiting)
    await asyncio.to_thread(token.cancel)
    await asyncio.gather(*waiting)
    token.cancel()
    assert token.is_cancelled is True
    await token.wait()


# handles


@leg(rules="T1", since="1.0")
async def test_handles_touch_nothing(store: Store, second_store: Store, witness: Witness) -> None:
    """Making handles is no await: it starts nothing, stores nothing and wakes nobody, also beside a transaction."""
    async with second_store.listen("name") as receiver, store.transaction() as tx:
        tasks = running_tasks()
        for make in (store.queue, store.stream, store.outbox):
            for _ in range(100):
                assert not inspect.isawaitable(make("name"))
        assert running_tasks() == tasks
        await tx.commit()
        await heard_nothing(second_store, receiver)
    assert await witness.jobs("name") == JobCounts()
    assert await witness.events("name") == []


@leg(rules="T1 Q2", since="1.0")
async def test_handles_of_one_name_are_independent(store: Store) -> None:
    """Handles hold nothing but their name and options: another one of the same name sees and does the same."""
    one, two = store.queue("queue", max_attempts=1), store.queue("queue", max_attempts=7)
    ids = [await one.enqueue(1), await two.enqueue(2)]
    claims = [await two.claim_one("worker"), await one.claim_one("worker")]
    assert [claim and (claim.job.id, claim.job.max_attempts) for claim in claims] == [(ids[0], 1), (ids[1], 7)]
    offset = await store.stream("stream").publish(1)
    assert [event.offset for event in await store.stream("stream").read_since(0)] == [offset]
