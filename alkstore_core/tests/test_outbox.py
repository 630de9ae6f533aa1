"""The outbox: one delivery at a time, acked, retried, or given back (O1 to O3)."""

import asyncio

import pytest
from alkstore_core.errors import DatabaseError, InvalidNameError, ReservedNameError
from alkstore_core.outbox import backing_queue
from alkstore_core.values import JobState


async def fine(_: object) -> None:
    """Delivers."""


async def test_a_delivery_is_acked_retried_or_absent(store) -> None:
    """Whether there was a job is the answer (O2)."""
    outbox = store.outbox("mail")
    assert await outbox.run_once("w", fine) is False
    job = await outbox.enqueue({"to": "a"}, priority=3)
    assert (await outbox.queue.get_job(job)).visibility_timeout_s == 60

    async def fail(_: object) -> None:
        raise OSError("no route")

    assert await outbox.run_once("w", fail) is True
    waiting = await outbox.queue.get_job(job)
    assert (waiting.state, waiting.last_error, waiting.attempts) == (JobState.PENDING, "no route", 1)
    assert await outbox.run_once("w", fine) is False
    await outbox.queue.cancel(job)
    job = await outbox.enqueue(1)
    assert await outbox.run_once("w", fine) is True
    assert await outbox.queue.get_job(job) is None


async def test_the_backing_queue_is_out_of_everybody_else_s_reach(store) -> None:
    """Under the reserved prefix, and named after the outbox alone (O1)."""
    assert backing_queue("mail") == "__alkstore_outbox:mail"
    with pytest.raises(ReservedNameError):
        store.queue(backing_queue("mail"))
    with pytest.raises(ReservedNameError):
        store.outbox(backing_queue("mail"))
    with pytest.raises(InvalidNameError):
        store.outbox("")
    await store.queue("mail").enqueue(1)
    assert await store.outbox("mail").run_once("w", fine) is False


@pytest.mark.parametrize("how", ["ack", "retry", "fail", "release"])
@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_a_delivery_that_settles_the_handle_itself_is_left_at_that(store, faults, how: str, end: str) -> None:
    """One settling, the delivery's own."""
    outbox = store.outbox("mail")
    await outbox.enqueue(1)

    async def deliver(handle) -> None:
        await (handle.retry("mine", 5) if how == "retry" else getattr(handle, how)())
        if end == "raises":
            raise OSError("afterwards")

    faults.calls.clear()
    assert await outbox.run_once("w", deliver) is True
    primitive = {"ack": "ack_claims", "retry": "retry_claim", "fail": "bury_claim", "release": "release_claims"}[how]
    assert faults.names() == ["claim_jobs", primitive]


@pytest.mark.parametrize("away", [False, True])
async def test_a_cancelled_delivery_is_given_back_and_the_cancellation_goes_on(store, faults, away: bool) -> None:
    """Also while the database is away, and then the claim lapses (O2)."""
    outbox = store.outbox("mail")
    job = await outbox.enqueue(1)
    started = asyncio.Event()

    async def deliver(_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(outbox.run_once("w", deliver))
    await started.wait()
    faults.down = away
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    faults.down = False
    found = await outbox.queue.get_job(job)
    assert (found.state, found.attempts) == ((JobState.PROCESSING, 1) if away else (JobState.PENDING, 0))


async def test_an_outage_at_the_ack_is_said(store, faults) -> None:
    """The caller knows that the delivery may come again (E1)."""
    outbox = store.outbox("mail")
    await outbox.enqueue(1)

    async def deliver(_: object) -> None:
        faults.down = True

    with pytest.raises(DatabaseError, match="away"):
        await outbox.run_once("w", deliver)
