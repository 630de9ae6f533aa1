"""The scheduler, registering: specs, options, and putting a schedule in another's place (contract section 10)."""

import pytest
from alkstore_core import Job, JobState, Schedule, ScheduleOptions, Store
from alkstore_core.errors import CodecError, InvalidSpecError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.runners import boundaries, fired_now, nothing_left, pass_time, running, settled


@leg(rules="H1", since="1.0")
async def test_schedule_says_what_it_is(store: Store) -> None:
    """Registering gives the schedule: its name, spec, queue and options."""
    plain = await store.schedule("report", "@every 5m", "reports", {"of": "sales"})
    assert plain == Schedule("report", "@every 5m", "reports", ScheduleOptions(0, None, None))
    urgent = await store.schedule("report", "@every 5m", "reports", None, priority=-3, max_attempts=2, expires=60)
    assert urgent == Schedule("report", "@every 5m", "reports", ScheduleOptions(-3, 2, 60))


@leg(rules="H1 H2 H4", since="1.0")
async def test_intervals_are_exact(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A spec of n seconds, minutes, hours or days fires first one interval after registering, and then at every one."""
    start = clock.now()
    seconds = {"7s": 7, "90s": 90, "3m": 180, "2h": 7200, "1d": 86_400}
    for interval in seconds:
        await store.schedule(interval, f"@every {interval}", interval, None)
    elapsed = 2 * 86_400 + 1
    await pass_time(harness, store, elapsed)
    async with running(store):
        await settled(store, "sentinels")
    for interval, step in seconds.items():
        expected = [start + step * number for number in range(1, min(elapsed // step, 64) + 1)]
        assert boundaries(await fired_now(store, interval)) == expected


REFUSED = (
    "",
    " ",
    "5s",
    "every 5s",
    "@every",
    "@every ",
    "@every s",
    "@every 5",
    "@every 0s",
    "@every 00m",
    "@every -5s",
    "@every +5s",
    "@every 1.5s",
    "@every 1e3s",
    "@every 0x10s",
    "@every 1_000s",
    "@every 5w",
    "@every 5ms",
    "@every 5S",
    "@EVERY 5s",
    "@every 5 s",
    "@every  5s",
    " @every 5s",
    "@every 5s ",
    "@every 5s\n",
    "@every\t5s",
    "@every 1h30m",
    "@every 5s 5s",
    "@every \u0665s",
    "@every \uff15s",
    "* * * * *",
    "0 0 * * *",
    "@hourly",
    "@daily",
    "@at 5s",
    f"@every {INT64_MAX + 1}s",
    f"@every {INT64_MAX // 60 + 1}m",
    f"@every {INT64_MAX // 3600 + 1}h",
    f"@every {INT64_MAX // 86_400 + 1}d",
    f"@every {2**64}s",
    f"@every {'9' * 10_000}d",
    "@every 5\0s",
    None,
    5,
    b"@every 5s",
)


@leg(rules="H1", since="1.0")
async def test_other_specs_are_refused(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Anything but ``@every <n><unit>`` is InvalidSpecError, registers nothing, and leaves what there was alone."""
    start = clock.now()
    await store.schedule("kept", "@every 5s", "reports", "kept")
    for spec in REFUSED:
        for name in ("kept", "refused"):
            with pytest.raises(InvalidSpecError):
                await store.schedule(name, spec, "others", None)  # type: ignore[arg-type]  # what callers do
    assert await store.unschedule("refused") is False
    await pass_time(harness, store, 5)
    async with running(store):
        jobs = await settled(store, "reports")
    assert [(job.payload, job.ready_at) for job in jobs] == [(b'"kept"', start + 5)]
    assert await fired_now(store, "others") == []


@leg(rules="H1 H5", since="1.0")
async def test_longest_specs_are_accepted(harness: Harness, store: Store, witness: Witness) -> None:
    """An interval up to the int64 limit is legal in every unit, and is not reached."""
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)):
        spec = f"@every {INT64_MAX // seconds}{unit}"
        assert (await store.schedule(unit, spec, "reports", None)).spec == spec
    async with running(store):
        await nothing_left(harness, store)
        await harness.advance(14)
        await nothing_left(harness, store)
    assert await witness.jobs("reports") == JobCounts()


@leg(rules="H1 V5 V6 P2", since="1.0")
async def test_refused_arguments_register_nothing(store: Store) -> None:
    """Options and payloads that an enqueue would refuse are refused at once, and nothing is registered."""
    with pytest.raises(ValueError, match="max_attempts"):
        await store.schedule("report", "@every 5s", "reports", None, max_attempts=0)
    with pytest.raises(ValueError, match="expires"):
        await store.schedule("report", "@every 5s", "reports", None, expires=2**63)
    with pytest.raises(TypeError):
        await store.schedule("report", "@every 5s", "reports", None, priority=1.5)  # type: ignore[arg-type]
    with pytest.raises(CodecError):
        await store.schedule("report", "@every 5s", "reports", float("nan"))
    assert await store.unschedule("report") is False


@leg(rules="H1 Q2", since="1.0")
async def test_fired_job_is_stamped(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A fired job has its schedule's payload and options over the queue defaults, and is ready since its boundary."""
    start = clock.now()
    await store.schedule("plain", "@every 10s", "plain", {"of": "żółw"})
    await store.schedule("urgent", "@every 10s", "urgent", [1], priority=7, max_attempts=9, expires=100)
    await pass_time(harness, store, 12)
    async with running(store):
        [plain], [urgent] = await settled(store, "plain"), await fired_now(store, "urgent")
    for job, payload, priority, expires_at, max_attempts in (
        (plain, '{"of":"żółw"}'.encode(), 0, None, 3),
        (urgent, b"[1]", 7, start + 112, 9),
    ):
        assert job == Job(
            id=job.id,
            queue=job.queue,
            payload=payload,
            state=JobState.PROCESSING,
            priority=priority,
            ready_at=start + 10,
            expires_at=expires_at,
            attempts=1,
            max_attempts=max_attempts,
            visibility_timeout_s=300,
            backoff_base_s=5,
            dead_letter_retention_s=None,
            created_at=start + 12,
            worker_id="reader",
            claimed_at=job.claimed_at,
            claim_expires_at=job.claim_expires_at,
            last_error=None,
            died_at=None,
        )


@leg(rules="H1 H2", since="1.0")
async def test_upsert_replaces_everything(harness: Harness, store: Store, second_store: Store) -> None:
    """Registering a name again replaces its queue, payload and options, and there is still one schedule of it."""
    start = harness.clock.now()
    await store.schedule("report", "@every 10s", "old", "old", priority=1, max_attempts=2, expires=60)
    await harness.advance(4)
    await second_store.schedule("report", "@every 10s", "new", "new", priority=5)
    await pass_time(harness, store, 8)
    async with running(store):
        jobs = await settled(store, "new")
    assert len(jobs) == 1
    [job] = jobs
    assert (job.payload, job.priority, job.max_attempts, job.expires_at) == (b'"new"', 5, 3, None)
    assert job.ready_at == start + 10
    assert await fired_now(store, "old") == []
    assert await store.unschedule("report") is True
    assert await store.unschedule("report") is False


@leg(rules="H1", since="1.0")
async def test_unscheduled_fires_no_more(harness: Harness, store: Store, second_store: Store) -> None:
    """A schedule that was dropped fires nothing more, not even what was due; dropping says whether there was one."""
    await store.schedule("report", "@every 5s", "reports", None)
    await store.schedule("kept", "@every 5s", "kept", None)
    await harness.advance(5)
    assert await second_store.unschedule("report") is True
    assert await store.unschedule("report") is False
    assert await store.unschedule("never there") is False
    async with running(store):
        await nothing_left(harness, store)
    assert len(await fired_now(store, "kept")) == 1
    assert await fired_now(store, "reports") == []
