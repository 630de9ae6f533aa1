"""The queue's facade: options resolved and checked once, and a handle that knows what became of its claim."""

import asyncio

import pytest
from alkstore_core.errors import CodecError, DatabaseError, InvalidNameError
from alkstore_core.options import (
    DEFAULT_QUEUE_OPTIONS,
    OUTBOX_QUEUE_OPTIONS,
    JobStamp,
    QueueOptions,
    ScheduleOptions,
    job_stamp,
)

INT64_MAX = 2**63 - 1


def test_the_defaults_are_the_contract_s() -> None:
    """300/3/5 for ever, and 60/5/5 for outboxes (Q2)."""
    assert QueueOptions(300, 3, 5, None) == DEFAULT_QUEUE_OPTIONS
    assert QueueOptions(60, 5, 5, None) == OUTBOX_QUEUE_OPTIONS


@pytest.mark.parametrize(
    "option", ["visibility_timeout_s", "max_attempts", "backoff_base_s", "dead_letter_retention_s"]
)
def test_queue_options_are_checked_at_once(store, option: str) -> None:
    """Each to its own minimum (V6)."""
    least = 1 if option in ("visibility_timeout_s", "max_attempts") else 0
    assert getattr(store.queue("q", **{option: least}).options, option) == least
    assert getattr(store.queue("q", **{option: INT64_MAX}).options, option) == INT64_MAX
    for value in (least - 1, INT64_MAX + 1):
        with pytest.raises(ValueError, match=option):
            store.queue("q", **{option: value})
    for value in (True, 1.0, "1") + (() if option == "dead_letter_retention_s" else (None,)):
        with pytest.raises(TypeError, match=option):
            store.queue("q", **{option: value})
    with pytest.raises(TypeError, match="unexpected keyword"):
        store.queue("q", retries=3)


@pytest.mark.parametrize("option", ["delay", "run_at", "expires", "max_attempts", "priority"])
async def test_enqueue_options_are_checked_before_anything_is_stored(store, faults, option: str) -> None:
    """Also the false and the zero that equal a default (V5, V6)."""
    queue = store.queue("q")
    wrong = [True, False, 1.0, 0.0, "1"] + ([None] if option == "priority" else [])
    for value in wrong:
        with pytest.raises(TypeError, match=option):
            await queue.enqueue(1, **{option: value})
        with pytest.raises(TypeError, match=option):
            await queue.enqueue_many([1], **{option: value})
    for value in (2**63, -(2**63) - 1) + ((0, -1) if option == "max_attempts" else ()):
        with pytest.raises(ValueError, match=option):
            await queue.enqueue(1, **{option: value})
    with pytest.raises(CodecError):
        await queue.enqueue_many([1, b"x"])
    assert await queue.enqueue_many([]) == []
    assert faults.calls == []


async def test_a_job_is_stamped_with_its_handle_s_options_and_the_enqueue_s_own(store, faults) -> None:
    """Unset options are the queue's (Q1, Q2)."""
    queue = store.queue("q", visibility_timeout_s=7, max_attempts=4, backoff_base_s=2, dead_letter_retention_s=9)
    await queue.enqueue({"a": 1})
    await queue.enqueue(2, delay=1, run_at=2, expires=3, max_attempts=1, priority=-5)
    await queue.enqueue_many([3, 4], priority=1)
    assert faults.calls == [
        ("insert_jobs", ("q", (b'{"a":1}',), JobStamp(7, 4, 2, 9))),
        ("insert_jobs", ("q", (b"2",), JobStamp(7, 1, 2, 9, -5, 1, 2, 3))),
        ("insert_jobs", ("q", [b"3", b"4"], JobStamp(7, 4, 2, 9, 1))),
    ]


def test_a_schedule_stamps_the_queue_defaults_and_its_boundary() -> None:
    """The ready time of a fired job is its boundary (H1, Q2)."""
    assert ScheduleOptions(1, 2, 3).stamp(500) == job_stamp(
        DEFAULT_QUEUE_OPTIONS, priority=1, max_attempts=2, expires=3, run_at=500
    )
    for wrong, error in (({"priority": 1.0}, TypeError), ({"max_attempts": 0}, ValueError)):
        with pytest.raises(error):
            ScheduleOptions(**wrong)


async def test_extents_of_zero_or_less_touch_nothing(store, faults) -> None:
    """And worker ids are checked all the same (V2, V5)."""
    queue = store.queue("q")
    assert [await queue.claim_batch("w", n) for n in (0, -1, -(2**63))] == [[], [], []]
    assert await queue.ack_batch("w", []) == 0
    for worker in ("", " ", None, "a\0"):
        with pytest.raises(InvalidNameError):
            await queue.claim_batch(worker, 0)
        with pytest.raises(InvalidNameError):
            await queue.ack_batch(worker, [1])
    for n in (True, 1.0, None):
        with pytest.raises(TypeError):
            await queue.claim_batch("w", n)
    with pytest.raises(TypeError):
        await queue.ack_batch("w", ["1"])
    assert faults.calls == []
    await queue.enqueue(1)
    assert (await queue.claim_one("__alkstore_mine")).job.worker_id == "__alkstore_mine"


async def claimed(store):
    """A handle on a freshly enqueued job."""
    queue = store.queue("q")
    await queue.enqueue(1)
    return await queue.claim_one("w")


@pytest.mark.parametrize("how", ["ack", "retry", "fail", "release"])
async def test_a_handle_remembers_that_it_was_settled(store, faults, how: str) -> None:
    """From the moment that it begins; not if it raised; and landed or not (Q5)."""
    handle = await claimed(store)
    settle = (lambda: handle.retry("e")) if how == "retry" else getattr(handle, how)
    primitive = {"ack": "ack_claims", "retry": "retry_claim", "fail": "bury_claim", "release": "release_claims"}[how]
    assert not handle.settled
    faults.down = True
    with pytest.raises(DatabaseError):
        await settle()
    assert not handle.settled
    faults.down = False
    faults.stalled = {primitive}
    settling = asyncio.create_task(settle())
    await faults.reached(primitive)
    assert handle.settled
    faults.flowing.set()
    assert await settling is True
    assert handle.settled
    assert await settle() is False
    assert handle.settled


async def test_a_handle_knows_when_its_claim_lapses(store, clock) -> None:
    """At first by the claim, then by the last heartbeat that landed, saturating (Q6)."""
    handle = await claimed(store)
    start = clock.now()
    assert handle.lapses_at == start + 300 == handle.job.claim_expires_at
    clock.advance(10)
    assert await handle.heartbeat(50)
    assert handle.lapses_at == start + 60
    assert await handle.heartbeat(INT64_MAX)
    assert handle.lapses_at == INT64_MAX
    assert not handle.settled
    assert await handle.heartbeat(0)
    assert handle.lapses_at == start + 10
    assert await handle.heartbeat(100) is False
    assert handle.lapses_at == start + 10


async def test_a_retry_without_a_delay_draws_it_from_the_store(store, clock) -> None:
    """Once, between half the cap and the cap (Q7)."""
    handle = await claimed(store)
    asked = []

    def draw(low: int, high: int) -> int:
        asked.append((low, high))
        return high

    store.draw = draw
    assert await handle.retry("no")
    job = await store.queue("q").get_job(handle.job.id)
    assert (asked, job.ready_at, job.last_error) == ([(2, 5)], clock.now() + 5, "no")


async def test_the_last_attempt_s_retry_is_a_dead_letter(store) -> None:
    """With that error; whatever the delay (Q7)."""
    queue = store.queue("q", max_attempts=1)
    await queue.enqueue(1)
    handle = await queue.claim_one("w")
    assert await handle.retry("no \0 more", delay=7)
    job = await queue.get_job(handle.job.id)
    assert (job.state, job.last_error) == ("dead", "no \ufffd more")


async def test_errors_and_delays_are_checked_before_the_claim_is_touched(store, faults) -> None:
    """An error is a str (V5)."""
    handle = await claimed(store)
    faults.calls.clear()
    for call in (
        lambda: handle.retry(ValueError("no")),
        lambda: handle.retry(None),
        lambda: handle.retry("no", delay=1.0),
        lambda: handle.fail(7),
        lambda: handle.heartbeat(True),
    ):
        with pytest.raises(TypeError):
            await call()
    assert faults.calls == []
    assert not handle.settled
    assert await handle.fail()
    assert (await store.queue("q").get_job(handle.job.id)).last_error == "failed"
