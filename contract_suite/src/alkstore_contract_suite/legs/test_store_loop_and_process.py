"""Where a store may be used: on the event loop that opened it, in the process that opened it (contract section 1)."""

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable

import pytest
from alkstore_core import (
    JobHandle,
    JobState,
    StopToken,
    Store,
    Transaction,
    Wake,
    Worker,
)
from alkstore_core.errors import DatabaseError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import (
    CALLS,
    TX_CALLS,
    Call,
    Subjects,
    subjects_of,
)


@leg(rules="T15", since="1.0")
async def test_other_loop_is_refused_everywhere(store: Store, witness: Witness) -> None:
    """On another event loop every call raises DatabaseError at once and does nothing; at home all goes on."""
    subjects = await subjects_of(store)
    await _refused_elsewhere(
        {
            **{name: lambda call=call: call(subjects) for name, call in CALLS.items()},  # type: ignore[misc]
            "WakeReceiver.recv": subjects.receiver.recv,
            "EventReceiver.recv": subjects.events.recv,
            "Store.close": store.close,
        }
    )
    assert await witness.jobs("subject") == JobCounts(pending=1, processing=2)
    assert len(await witness.events("subject")) == 1
    assert await subjects.handle.ack()
    assert await subjects.lock.renew(10)
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


@leg(rules="T15", since="1.0")
async def test_other_loop_is_refused_on_a_transaction(store: Store, witness: Witness) -> None:
    """So is every call on a transaction, which goes on at home."""
    async with store.transaction() as tx:
        await tx.enqueue("queue", 1)
        await _refused_elsewhere(
            {
                **{name: lambda call=call: call(tx) for name, call in TX_CALLS.items()},  # type: ignore[misc]
                "commit": tx.commit,
                "rollback": tx.rollback,
            }
        )
        await tx.enqueue("queue", 2)
    assert await witness.jobs("queue") == JobCounts(pending=2)
    assert await witness.jobs("subject") == JobCounts()


async def _refused_elsewhere(calls: dict[str, Callable[[], Awaitable[object]]]) -> None:
    outcomes: dict[str, object] = {}

    async def elsewhere() -> None:
        for name, call in calls.items():
            try:
                async with asyncio.timeout(2):
                    outcomes[name] = await call()
            except BaseException as error:
                outcomes[name] = type(error)

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert outcomes == dict.fromkeys(calls, DatabaseError)


@leg(rules="T15", since="1.0")
async def test_store_belongs_to_the_loop_that_opened_it(harness: Harness) -> None:
    """Each event loop opens its own store on the data, and they work side by side."""
    async with harness.open() as opened:

        async def elsewhere() -> int:
            async with harness.open() as own:
                with pytest.raises(DatabaseError):
                    await opened.queue("queue").enqueue("refused")
                return await own.queue("queue").enqueue("own")

        job_id = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        claim = await opened.queue("queue").claim_one("worker")
        assert claim is not None
        assert (claim.job.id, claim.job.payload) == (job_id, b'"own"')


@leg(rules="T4 T12 T13 T15", since="1.0")
async def test_cancelling_all_tasks_wedges_nothing(harness: Harness, witness: Witness) -> None:
    """With all tasks cancelled, as asyncio.run does at its end, a commit is whole or not there, and the store works."""
    for turns in range(12):
        async with harness.open(patience_s=5.0) as store:
            queue = f"q{turns}"

            async def commit(store: Store = store, queue: str = queue) -> None:
                async with store.transaction() as tx:
                    await tx.enqueue(queue, 1)
                    await tx.enqueue(queue, 2)

            await _cancelled_with_all_tasks(commit, turns)
            await store.queue("after").enqueue(turns)
            await _cancelled_with_all_tasks(store.close, turns)
            await store.close()
        assert (await witness.jobs(queue)).pending in (0, 2)
    assert await witness.jobs("after") == JobCounts(pending=12)


@leg(rules="Q15 W4 T13", since="1.0")
async def test_cancelling_all_tasks_gives_jobs_back(store: Store) -> None:
    """A worker that is cancelled with its handlers gives their jobs back, the attempts not counted."""
    queue, running = store.queue("queue"), asyncio.Event()
    job_ids = await queue.enqueue_many(range(3))

    async def handle(_: JobHandle) -> None:
        running.set()
        await asyncio.Event().wait()

    worker = asyncio.ensure_future(Worker(queue, handle).run(StopToken()))
    await running.wait()
    _cancel_all_tasks()
    await asyncio.wait((worker,))
    assert worker.cancelled()
    jobs = [await queue.get_job(job_id) for job_id in job_ids]
    assert [(job.state, job.attempts) for job in jobs if job is not None] == [(JobState.PENDING, 0)] * 3


async def _cancelled_with_all_tasks(call: Callable[[], Awaitable[None]], turns: int) -> None:
    task = asyncio.ensure_future(call())
    for _ in range(turns):
        await asyncio.sleep(0)
    _cancel_all_tasks()
    await asyncio.wait((task,))


def _cancel_all_tasks() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@leg(rules="T15 T5", since="1.0")
async def test_forked_child_is_refused_and_harms_nothing(store: Store, witness: Witness) -> None:
    """In a forked child every use raises DatabaseError; what the child drops or ends disturbs the parent in nothing."""
    if not hasattr(os, "fork"):
        return  # nothing forks here
    subjects = await subjects_of(store)
    async with store.transaction() as tx:
        await tx.enqueue("queue", 1)
        _, status = await asyncio.to_thread(os.waitpid, _forked(subjects, tx), 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await tx.enqueue("queue", 2)
    assert await witness.jobs("queue") == JobCounts(pending=2)
    assert await subjects.handle.ack()
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


def _forked(subjects: Subjects, tx: Transaction) -> int:
    """The process id of a child that tries each call, and ends with 0 if all were refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads: the point here
        pid = os.fork()
    if pid:
        return pid
    code = 255
    try:
        unrefused = asyncio.new_event_loop().run_until_complete(_first_unrefused(subjects, tx))
        for dropped in (tx, subjects.receiver, subjects.events, subjects.store):
            dropped.__del__()  # what the collector would do: the parent's frames still hold them here
        code = unrefused
    finally:
        os._exit(code)


async def _first_unrefused(subjects: Subjects, tx: Transaction) -> int:
    """Which call is the first that does not raise DatabaseError, from 1; 0 if all do."""
    calls: list[Call] = [*CALLS.values(), lambda _: tx.enqueue("queue", 3), lambda _: tx.commit()]
    for number, call in enumerate(calls, 1):
        try:
            async with asyncio.timeout(2):
                await call(subjects)
        except DatabaseError:
            continue
        except BaseException:  # noqa: S110 - the child must end by its exit code alone
            pass
        return number
    return 0
