"""Payloads: any JSON value in, the same bytes stored, the same value out (contract section 4)."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from alkstore_core import StopToken, Store, Transaction, Wake, encode_payload
from alkstore_core.errors import CodecError, PayloadTooLargeError
from pydantic import BaseModel, Field

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import run_at_once
from alkstore_contract_suite.proofs import heard_nothing


class Point(BaseModel):
    """A model with what only a model can write."""

    x: int
    at: datetime
    id: UUID
    price: Decimal
    tags: set[str] = Field(default_factory=set)
    note: str | None = Field(default=None, alias="theNote")


@dataclass
class Line:
    """A dataclass around a model."""

    name: str
    start: Point
    on: date


class Colour(Enum):
    """No JSON value by itself."""

    RED = "red"


_POINT = Point(
    x=1,
    at=datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    id=UUID("12345678-1234-5678-1234-567812345678"),
    price=Decimal("1.50"),
    tags={"a"},
    theNote="\u00e9",
)
_POINT_JSON = (
    b'{"x":1,"at":"2024-01-02T03:04:05Z","id":"12345678-1234-5678-1234-567812345678","price":"1.50",'
    b'"tags":["a"],"theNote":"\xc3\xa9"}'
)
_LINE_JSON = b'{"name":"l","start":' + _POINT_JSON + b',"on":"2024-05-06"}'


def _nested(depth: int) -> Any:
    value: Any = []
    for level in range(depth - 1):
        value = [value] if level % 2 else {"a": value}
    return value


_VALUES: list[tuple[object, bytes]] = [
    (None, b"null"),
    (True, b"true"),
    (False, b"false"),
    (0, b"0"),
    (-1, b"-1"),
    (-(2**63), b"-9223372036854775808"),
    (2**63, b"9223372036854775808"),
    (2**64 - 1, b"18446744073709551615"),
    (0.1, b"0.1"),
    (1.0, b"1.0"),
    (-0.0, b"-0.0"),
    (1e100, b"1e+100"),
    (1e16, b"1e+16"),
    (1e-7, b"1e-07"),
    (5e-324, b"5e-324"),
    (1.7976931348623157e308, b"1.7976931348623157e+308"),
    (0.1 + 0.2, b"0.30000000000000004"),
    ("", b'""'),
    ("text", b'"text"'),
    ('q"b\\s/', b'"q\\"b\\\\s/"'),
    ("\n\t\r\b\f", b'"\\n\\t\\r\\b\\f"'),
    ("\0\x1f\x7f", b'"\\u0000\\u001f\x7f"'),
    ("caf\u00e9 \u2028 \U0001f600", '"caf\u00e9 \u2028 \U0001f600"'.encode()),
    ([], b"[]"),
    ({}, b"{}"),
    ((1, (2, [3])), b"[1,[2,[3]]]"),
    ({"b": 1, "a": {"": None}, "\u00e9": []}, b'{"b":1,"a":{"":null},"\xc3\xa9":[]}'),
    ({"id": 7, "items": [1.5, "x", None, True]}, b'{"id":7,"items":[1.5,"x",null,true]}'),
    (_POINT, _POINT_JSON),
    (Line("l", _POINT, date(2024, 5, 6)), _LINE_JSON),
    ([{"deep": (_POINT,)}], b'[{"deep":[' + _POINT_JSON + b"]}]"),
    ("x" * 200_000, b'"' + b"x" * 200_000 + b'"'),
    (_nested(127), encode_payload(_nested(127))),
]

Put = Callable[[Store, object], Awaitable[bytes]]


async def _enqueued(store: Store, value: object) -> bytes:
    job = await store.queue("queue").get_job(await store.queue("queue").enqueue(value))
    assert job is not None
    return job.payload


async def _enqueued_with_others(store: Store, value: object) -> bytes:
    ids = await store.queue("queue").enqueue_many([0, value, 0])
    job = await store.queue("queue").get_job(ids[1])
    assert job is not None
    return job.payload


async def _enqueued_in_outbox(store: Store, value: object) -> bytes:
    job = await store.queue("queue").get_job(await store.outbox("outbox").enqueue(value))
    assert job is not None
    return job.payload


async def _enqueued_on_transaction(store: Store, value: object) -> bytes:
    async with store.transaction() as tx:
        job_id = await tx.enqueue("queue", value)
    job = await store.queue("queue").get_job(job_id)
    assert job is not None
    return job.payload


async def _enqueued_in_outbox_on_transaction(store: Store, value: object) -> bytes:
    async with store.transaction() as tx:
        job_id = await tx.outbox_enqueue("outbox", value)
    job = await store.queue("queue").get_job(job_id)
    assert job is not None
    return job.payload


async def _published(store: Store, value: object) -> bytes:
    offset = await store.stream("stream").publish(value)
    [event] = await store.stream("stream").read_since(offset - 1, 1)
    return event.payload


async def _published_with_others(store: Store, value: object) -> bytes:
    offsets = await store.stream("stream").publish_many([0, value, 0])
    [event] = await store.stream("stream").read_since(offsets[1] - 1, 1)
    return event.payload


async def _published_on_transaction(store: Store, value: object) -> bytes:
    async with store.transaction() as tx:
        offset = await tx.publish("stream", value)
    [event] = await store.stream("stream").read_since(offset - 1, 1)
    return event.payload


_PUTS: dict[str, Put] = {
    "enqueue": _enqueued,
    "enqueue_many": _enqueued_with_others,
    "outbox enqueue": _enqueued_in_outbox,
    "tx.enqueue": _enqueued_on_transaction,
    "tx.outbox_enqueue": _enqueued_in_outbox_on_transaction,
    "publish": _published,
    "publish_many": _published_with_others,
    "tx.publish": _published_on_transaction,
}


@leg(rules="P1", since="1.0")
async def test_stored_as_compact_json(store: Store) -> None:
    """A payload is stored as exactly the bytes of its JSON: compact, in UTF-8, keys and floats as they were."""
    for value, expected in _VALUES:
        stored = {name: await put(store, value) for name, put in _PUTS.items()}
        assert stored == dict.fromkeys(_PUTS, expected)


@leg(rules="P1 T10", since="1.0")
async def test_stored_the_same_when_enlisted(harness: Harness, store: Store, native_kind: str) -> None:
    """On the caller's own transaction too."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        ids = [await tx.enqueue("queue", value) for value, _ in _VALUES]
        for value, _ in _VALUES:
            await tx.publish("stream", value)
        await native.commit()
    jobs = [await store.queue("queue").get_job(job_id) for job_id in ids]
    assert [job and job.payload for job in jobs] == [expected for _, expected in _VALUES]
    events = await store.stream("stream").read_since(0)
    assert [event.payload for event in events] == [expected for _, expected in _VALUES]


@leg(rules="P1 S7", since="1.0")
async def test_claimed_and_received_as_stored(store: Store, second_store: Store) -> None:
    """A claim and a subscription give exactly the bytes that were stored."""
    expected = [payload for _, payload in _VALUES]
    await store.queue("queue").enqueue_many([value for value, _ in _VALUES])
    claims = await second_store.queue("queue").claim_batch("worker", 100)
    assert [claim.job.payload for claim in claims] == expected
    async with second_store.stream("stream").subscribe("reader") as receiver:
        await store.stream("stream").publish_many([value for value, _ in _VALUES])
        for payload in expected:
            event = await receiver.recv()
            assert event is not None
            assert event.payload == payload


@leg(rules="P1 H1", since="1.0")
async def test_schedules_carry_the_same_bytes(store: Store, harness: Harness) -> None:
    """A schedule's jobs carry exactly the bytes of its payload."""
    values = {f"schedule {number}": value for number, value in enumerate(_VALUES)}
    for name, (value, _) in values.items():
        await store.schedule(name, "@every 1h", name, value)
    stop = StopToken()
    async with asyncio.TaskGroup() as group:
        group.create_task(store.run_schedules(stop))
        await harness.advance(3600)
        for name, (_, expected) in values.items():
            while (claim := await store.queue(name).claim_one("worker")) is None:  # noqa: ASYNC110 - firing has no event
                await asyncio.sleep(0)
            assert claim.job.payload == expected
        stop.cancel()


@leg(rules="P1", since="1.0")
async def test_encoded_before_the_first_await(store: Store) -> None:
    """A payload is what it was at the call, whatever happens to the object while the call waits."""

    async def stored(put: Callable[[Any], Awaitable[Any]]) -> None:
        payload = {"as": "it was"}
        putting = asyncio.ensure_future(put(payload))
        await asyncio.sleep(0)  # its first step, up to where it waits
        payload["as"] = "changed meanwhile"
        await putting

    queue, stream = store.queue("queue"), store.stream("stream")
    await stored(queue.enqueue)
    await stored(lambda payload: queue.enqueue_many([payload]))
    await stored(stream.publish)
    await stored(lambda payload: stream.publish_many([payload]))
    async with store.transaction() as tx:
        await stored(lambda payload: tx.enqueue("queue", payload))
        await stored(lambda payload: tx.publish("stream", payload))
    claims = await queue.claim_batch("worker", 5)
    assert [claim.job.payload for claim in claims] == [b'{"as":"it was"}'] * 3
    assert [event.payload for event in await stream.read_since(0)] == [b'{"as":"it was"}'] * 3


# what cannot round-trip


def _cycle() -> object:
    inner: list[object] = []
    inner.append({"back": inner})
    return inner


class _FloatModel(BaseModel):
    value: float


_NOT_JSON: dict[str, tuple[object, str]] = {
    "NaN": ([float("nan")], "$[0]"),
    "infinity": ({"a": float("inf")}, "$.a"),
    "negative infinity": ({"a": [0, float("-inf")]}, "$.a[1]"),
    "NaN in a model": ({"a": _FloatModel(value=float("nan"))}, "$.a"),
    "lone surrogate": (["ok", "\ud800"], "$[1]"),
    "low surrogate": ({"a": "x\udc00"}, "$.a"),
    "surrogate in a key": ({"a": {"\udfff": 1}}, "$.a"),
    "128 containers": (_nested(128), "$"),
    "1000 containers": (_nested(1000), "$"),
    "100000 containers": (_nested(100_000), "$"),
    "cycle": (_cycle(), "$"),
    "2^64": ([2**64], "$[0]"),
    "below -2^63": ({"a": -(2**63) - 1}, "$.a"),
    "a huge integer": ({"a": 10**5000}, "$.a"),
    "int key": ({"a": {1: 2}}, "$.a"),
    "None key": ({None: 2}, "$"),
    "bool key": ({True: 2}, "$"),
    "tuple key": ({(1, 2): 2}, "$"),
    "float key": ([{1.5: 2}], "$[0]"),
}
_NEEDS_A_MODEL: dict[str, object] = {
    "bytes": b"bytes",
    "bytearray": bytearray(b"bytes"),
    "memoryview": memoryview(b"bytes"),
    "datetime": datetime(2024, 1, 2, tzinfo=UTC),
    "date": date(2024, 1, 2),
    "timedelta": timedelta(1),
    "Decimal": Decimal(1),
    "UUID": UUID(int=1),
    "set": {1},
    "frozenset": frozenset({1}),
    "enum": Colour.RED,
    "complex": 1j,
    "object": object(),
    "class": dict,
    "model class": Point,
    "generator": (str(number) for number in range(3)),
    "range": range(3),
    "keys": {"a": 1}.keys(),
}
_ENTRIES: dict[str, Callable[[Store, object], Awaitable[object]]] = {
    "notify": lambda store, value: store.notify("channel", value),
    "enqueue": lambda store, value: store.queue("queue").enqueue(value),
    "enqueue_many": lambda store, value: store.queue("queue").enqueue_many([1, value]),
    "outbox enqueue": lambda store, value: store.outbox("outbox").enqueue(value),
    "publish": lambda store, value: store.stream("stream").publish(value),
    "publish_many": lambda store, value: store.stream("stream").publish_many([1, value]),
    "schedule": lambda store, value: store.schedule("schedule", "@every 1h", "queue", value),
}
_TX_ENTRIES: dict[str, Callable[[Transaction, object], Awaitable[object]]] = {
    "notify": lambda tx, value: tx.notify("channel", value),
    "enqueue": lambda tx, value: tx.enqueue("queue", value),
    "outbox_enqueue": lambda tx, value: tx.outbox_enqueue("outbox", value),
    "publish": lambda tx, value: tx.publish("stream", value),
}


@leg(rules="P2 E3", since="1.0")
async def test_what_is_not_json_is_refused(store: Store) -> None:
    """What would not read back the same from JSON is CodecError at every entry, with its path, before any waiting."""
    async with store.transaction() as tx:
        for value, path in _NOT_JSON.values():
            for tx_entry in _TX_ENTRIES.values():
                with pytest.raises(CodecError) as caught:
                    run_at_once(tx_entry(tx, value))
                assert path in str(caught.value)
    for value, path in _NOT_JSON.values():
        for entry in _ENTRIES.values():
            with pytest.raises(CodecError) as caught:
                run_at_once(entry(store, value))
            assert path in str(caught.value)


@leg(rules="P2 E3", since="1.0")
async def test_what_has_many_forms_needs_a_model(store: Store) -> None:
    """Bytes, times, Decimals, UUIDs, sets and other objects are CodecError, with the path and "use a model"."""
    async with store.transaction() as tx:
        for value in _NEEDS_A_MODEL.values():
            for tx_entry in _TX_ENTRIES.values():
                with pytest.raises(CodecError) as caught:
                    run_at_once(tx_entry(tx, {"a": [value]}))
                assert "$.a[0]" in str(caught.value)
                assert "use a model" in str(caught.value)
    for value in _NEEDS_A_MODEL.values():
        for entry in _ENTRIES.values():
            with pytest.raises(CodecError) as caught:
                run_at_once(entry(store, [{"b": value}]))
            assert "$[0].b" in str(caught.value)
            assert "use a model" in str(caught.value)


@leg(rules="P2 Q12", since="1.0")
async def test_refused_payloads_leave_nothing(store: Store, witness: Witness) -> None:
    """A refused payload stores nothing of its call, wakes nobody, and leaves a transaction usable."""
    async with store.listen("channel") as receiver:
        for entry in _ENTRIES.values():
            with pytest.raises(CodecError):
                await entry(store, float("nan"))
        async with store.transaction() as tx:
            for tx_entry in _TX_ENTRIES.values():
                with pytest.raises(CodecError):
                    await tx_entry(tx, {1})
            await tx.enqueue("after", 1)
        await heard_nothing(store, receiver)
    assert await witness.jobs("queue") == JobCounts()
    assert await witness.events("stream") == []
    assert await witness.jobs("after") == JobCounts(pending=1)
    assert not await store.unschedule("schedule")


class _Raising(BaseModel):
    value: int = 1

    def model_dump(self, **_: Any) -> dict[str, Any]:
        raise RuntimeError("of the model's own")


@leg(rules="P2", since="1.0")
async def test_model_that_does_not_dump_is_refused(store: Store) -> None:
    """A model that raises while it is dumped is CodecError with the model's error as the cause: never another error."""
    with pytest.raises(CodecError) as caught:
        await store.queue("queue").enqueue([_Raising()])
    assert isinstance(caught.value.__cause__, RuntimeError)


@leg(rules="P2", since="1.0")
async def test_deep_callers_are_safe(store: Store) -> None:
    """A caller with little stack left stores the deepest payload, or is told that it is too deep: nothing recurses."""
    payload, stream = _nested(127), store.stream("stream")

    async def descend(levels: int) -> int:
        return await (descend(levels - 1) if levels else stream.publish(payload))

    depth, frame = 0, sys._getframe()  # noqa: SLF001 - how deep this task's own stack is
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    offset = await descend(sys.getrecursionlimit() - depth - 100)  # fewer than there are containers
    [event] = await stream.read_since(offset - 1)
    assert event.payload == encode_payload(payload)


# and back


@leg(rules="P3", since="1.0")
async def test_payloads_decode_to_what_is_asked(store: Store) -> None:
    """payload_as gives a job's or event's payload as the type asked for: plain values, models, dataclasses."""
    line = Line("l", _POINT, date(2024, 5, 6))
    cases: list[tuple[object, Any, object]] = [
        ({"a": [1, None]}, dict, {"a": [1, None]}),
        ({"a": 1}, dict[str, int], {"a": 1}),
        ([1, "x"], list, [1, "x"]),
        ((1, 2), tuple[int, int], (1, 2)),
        (None, type(None), None),
        ("text", str, "text"),
        (7, int, 7),
        (2**64 - 1, int, 2**64 - 1),
        (0.1, float, 0.1),
        (True, bool, True),
        (_POINT, Point, _POINT),
        (line, Line, line),
        ("red", Colour, Colour.RED),
        ([_POINT], list[Point], [_POINT]),
        ({"any": [0.5]}, object, {"any": [0.5]}),
    ]
    queue, stream = store.queue("queue"), store.stream("stream")
    await queue.enqueue_many([value for value, _, _ in cases])
    await stream.publish_many([value for value, _, _ in cases])
    claims, events = await queue.claim_batch("worker", 100), await stream.read_since(0)
    for claim, event, (_, kind, expected) in zip(claims, events, cases, strict=True):
        for holder in (claim.job, event):
            decoded = holder.payload_as(kind)
            assert decoded == expected
            assert type(decoded) is type(expected)


@leg(rules="P3", since="1.0")
async def test_payloads_that_do_not_fit_are_refused(store: Store) -> None:
    """payload_as raises CodecError where the payload is not of the type asked for, and can be asked again."""
    await store.queue("queue").enqueue({"name": 7})
    await store.stream("stream").publish({"name": 7})
    [claim], [event] = await store.queue("queue").claim_batch("w", 1), await store.stream("stream").read_since(0)
    for holder in (claim.job, event):
        for kind in (list, int, str, Point, Line, Colour):
            with pytest.raises(CodecError):
                holder.payload_as(kind)
        assert holder.payload_as(dict) == {"name": 7}


# notify's limit


_NOTIFY_LIMIT = 7999


@leg(rules="P4", since="1.0")
@pytest.mark.parametrize("form", ["store", "tx"])
async def test_notify_carries_up_to_the_limit(store: Store, form: str) -> None:
    """A payload of 7,999 bytes, encoded, can be notified on every engine, and the wake comes."""
    for payload in ("x" * (_NOTIFY_LIMIT - 2), "\u00e9" * ((_NOTIFY_LIMIT - 3) // 2) + "x", [_POINT], None, 0):
        assert len(encode_payload(payload)) <= _NOTIFY_LIMIT
        async with store.listen("channel") as receiver:
            if form == "store":
                await store.notify("channel", payload)
            else:
                async with store.transaction() as tx:
                    await tx.notify("channel", payload)
            assert await receiver.recv() == Wake("channel")


@leg(rules="P4 E3", since="1.0")
@pytest.mark.parametrize("form", ["store", "tx"])
async def test_notify_over_the_limit(store: Store, form: str) -> None:
    """Beyond it a notify works, or is PayloadTooLargeError with limit and size, at once; and all goes on after it."""
    for payload in ("x" * (_NOTIFY_LIMIT - 1), "\u00e9" * (_NOTIFY_LIMIT // 2), ["x" * 100_000]):
        size = len(encode_payload(payload))
        assert size > _NOTIFY_LIMIT
        async with store.listen("channel") as receiver, store.listen("after") as after:
            if form == "store":
                refusal = await _refusal(store.notify("channel", payload))
                await store.notify("after")
            else:
                async with store.transaction() as tx:
                    refusal = await _refusal(tx.notify("channel", payload))
                    await tx.notify("after")
            assert await after.recv() == Wake("after")
            if refusal is None:
                assert await receiver.recv() == Wake("channel")
            else:
                assert (refusal.limit, refusal.size) == (_NOTIFY_LIMIT, size)
                assert str(size) in str(refusal)
                await heard_nothing(store, receiver)


async def _refusal(notifying: Awaitable[None]) -> PayloadTooLargeError | None:
    try:
        await notifying
    except PayloadTooLargeError as error:
        return error
    return None
