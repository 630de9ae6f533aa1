"""The queue's order: exactly the contract's, at a cost that does not grow."""

from dataclasses import replace

import pytest
from alkstore_core import Job, JobState
from alkstore_core.engine import Claim
from alkstore_core.numbers import INT64_MAX, saturating_add
from alkstore_mem.backlog import Backlog, due_at, is_expired
from hypothesis import example, given, settings
from hypothesis import strategies as st

NEW = Job(
    id=0,
    queue="q",
    payload=b"1",
    state=JobState.PENDING,
    priority=0,
    ready_at=0,
    expires_at=None,
    attempts=0,
    max_attempts=3,
    visibility_timeout_s=3,
    backoff_base_s=5,
    dead_letter_retention_s=None,
    created_at=0,
    worker_id=None,
    claimed_at=None,
    claim_expires_at=None,
    last_error=None,
    died_at=None,
)


def claimed(job: Job, now: int) -> Job:
    until = saturating_add(now, job.visibility_timeout_s)
    return replace(job, state=JobState.PROCESSING, attempts=job.attempts + 1, claim_expires_at=until)


def exhausted_by_the_rule(rows: dict[int, Job], now: int) -> set[int]:
    """Q4, in so many words."""
    return {
        job.id
        for job in rows.values()
        if job.state is JobState.PROCESSING
        and due_at(job) <= now
        and job.attempts >= job.max_attempts
        and not is_expired(job, now)
    }


def claimable_by_the_rule(rows: dict[int, Job], now: int) -> list[int]:
    """Q3, in so many words."""
    able = [job for job in rows.values() if due_at(job) <= now and not is_expired(job, now)]
    return [job.id for job in sorted(able, key=lambda job: (-job.priority, job.ready_at, job.id))]


def past_retention_by_the_rule(dead: dict[int, Job], now: int) -> set[int]:
    """Q10, in so many words."""
    return {
        job.id
        for job in dead.values()
        if job.dead_letter_retention_s is not None
        and job.died_at is not None
        and min(job.died_at + job.dead_letter_retention_s, INT64_MAX) <= now
    }


times = st.sampled_from([*range(9), INT64_MAX])
steps = st.one_of(
    st.tuples(
        st.just("insert"),
        st.integers(-1, 1),
        times,
        st.sampled_from([None, None, 3, 6]),
        st.integers(1, 2),
        st.sampled_from([None, 0, 2]),
    ),
    st.tuples(st.just("claim"), st.integers(1, 4)),
    st.tuples(st.just("extend"), st.integers(0, 9), st.integers(-2, 8)),
    st.tuples(st.just("give back"), st.integers(0, 9), st.integers(-2, 8)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("time"), times),
    st.tuples(st.just("look")),
    st.tuples(st.just("sweep")),
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(steps, max_size=40))
@example([("time", INT64_MAX), ("insert", 0, 0, None, 1, 2), ("claim", 1)])  # a retention that ends beyond all time
@example(
    [("time", 8), ("insert", 0, 5, None, 1, None), ("time", 2), ("claim", 1)]
)  # stored due, then the clock was set back
@example(  # lapsed, looked at, and extended before it was claimed
    [
        ("insert", 0, 0, None, 2, None),
        ("claim", 1),
        ("time", 4),
        ("insert", 1, 0, None, 2, None),
        ("claim", 1),
        ("extend", 0, 8),
        ("claim", 4),
    ]
)
@example(  # heartbeaten to the second that it would have lapsed at anyway, and lapsed again at its last attempt
    [
        ("insert", 0, 0, None, 2, None),
        ("claim", 1),
        ("extend", 0, 3),
        ("time", 3),
        ("claim", 1),
        ("time", 6),
        ("claim", 1),
    ]
)
def test_claims_follow_the_rule_whatever_happened_before(script: list[tuple]):
    """After any history, clocks set back included, claims and sweeps take what the contract says (Q3, Q4, Q10, Q13)."""
    backlog, rows, dead, now, ids = Backlog(), {}, {}, 0, 0

    def store(job: Job) -> None:
        rows[job.id] = job
        backlog.store(job.id, Claim(job, 0), now)

    def bury(job: Job) -> None:
        del rows[job.id]
        dead[job.id] = replace(job, state=JobState.DEAD, died_at=now)
        backlog.store(job.id, Claim(dead[job.id], 0), now)

    last = [("look",), ("claim", 100), ("sweep",), ("time", INT64_MAX - 1), ("claim", 100), ("look",), ("sweep",)]
    for step, *arguments in [*script, *last]:
        picking = step not in ("insert", "time", "look", "sweep")
        picked = sorted(rows)[arguments[0] % len(rows)] if rows and picking else None
        if step == "insert":
            priority, ready_at, expires_at, max_attempts, retention = arguments
            ids += 1
            store(
                replace(
                    NEW,
                    id=ids,
                    priority=priority,
                    ready_at=ready_at,
                    expires_at=expires_at,
                    max_attempts=max_attempts,
                    dead_letter_retention_s=retention,
                )
            )
        elif step == "time":
            now = arguments[0]
        elif step == "look":
            assert backlog.next_due(now) == min(
                (due_at(job) for job in rows.values() if not is_expired(job, now)), default=None
            )
        elif step == "sweep":
            expired, forgotten = backlog.sweep(now)
            assert {row.job.id for row in expired} == {id for id, job in rows.items() if is_expired(job, now)}
            assert set(forgotten) == past_retention_by_the_rule(dead, now)
            for id in forgotten:
                del dead[id]
                backlog.store(id, None, now)
            for row in expired:
                bury(row.job)
        elif picked is None:
            continue
        elif step == "claim":
            dying = exhausted_by_the_rule(rows, now)
            order = claimable_by_the_rule({id: job for id, job in rows.items() if id not in dying}, now)
            exhausted, found = backlog.claim(now, arguments[0])
            assert {row.job.id for row in exhausted} == dying
            assert [row.job.id for row in found] == order[: arguments[0]]
            for row in exhausted:
                bury(row.job)
            for row in found:
                store(claimed(row.job, now))
        elif step == "extend" and rows[picked].state is JobState.PROCESSING:
            store(replace(rows[picked], claim_expires_at=saturating_add(now, arguments[1])))
        elif step == "give back":
            store(
                replace(
                    rows[picked],
                    state=JobState.PENDING,
                    ready_at=saturating_add(now, arguments[1]),
                    claim_expires_at=None,
                )
            )
        elif step == "delete":
            del rows[picked]
            backlog.store(picked, None, now)
        elif step == "kill":
            bury(rows[picked])


@pytest.mark.parametrize("others", ["ready", "delayed", "expired", "claimed", "dead"])
def test_a_claim_looks_at_what_it_takes_and_at_nothing_else(others: str):
    """Rows that wait behind, are delayed, have expired, are claimed or dead cost the next thousand claims nothing."""
    backlog, now, many, claims = Backlog(), 1000, 20_000, 1000
    for job_id in range(many):
        job = replace(NEW, id=job_id, priority=1, ready_at=now)
        if others == "ready":
            job = replace(job, priority=-1)
        elif others == "delayed":
            job = replace(job, ready_at=now + 1)
        elif others == "expired":
            job = replace(job, expires_at=now)
        elif others == "claimed":
            job = claimed(job, now)
        else:
            job = replace(job, state=JobState.DEAD)
        backlog.store(job_id, Claim(job, 0), now)
    for job_id in range(many, many + claims):
        backlog.store(job_id, Claim(replace(NEW, id=job_id, ready_at=now), 0), now)
    first = backlog.claim(now, 1)[1]
    backlog.next_due(now)
    before = backlog.steps
    found = [row.job.id for _ in range(claims - 1) for row in backlog.claim(now, 1)[1]]
    assert [first[0].job.id, *found] == list(range(many, many + claims))
    assert backlog.steps - before == claims - 1


def test_a_sweep_looks_at_what_it_takes_and_at_nothing_else():
    """Rows that are live, will expire, or are dead for good or for a while cost the next thousand sweeps nothing."""
    backlog, now, many = Backlog(), 1000, 20_000
    for job_id in range(many):
        job = replace(NEW, id=job_id, expires_at=None if job_id % 2 else now + 1)
        if job_id % 3 == 0:
            retention = 50 if job_id % 2 else None
            job = replace(job, state=JobState.DEAD, died_at=now, dead_letter_retention_s=retention)
        backlog.store(job_id, Claim(job, 0), now)
    before = backlog.steps
    for job_id in range(many, many + 1000):
        expired = replace(NEW, id=job_id, expires_at=now)
        backlog.store(job_id, Claim(expired, 0), now)
        assert backlog.sweep(now) == ([Claim(expired, 0)], [])
        backlog.store(job_id, None, now)
    assert backlog.steps - before == 1000


def test_a_row_that_keeps_changing_costs_the_same_memory():
    """A job that is heartbeaten for days leaves no trail in the order."""
    backlog = Backlog()
    job = claimed(replace(NEW, id=1, expires_at=INT64_MAX), 0)
    for now in range(10_000):
        job = replace(job, claim_expires_at=now + 300)
        backlog.store(1, Claim(job, 1), now)
    assert len(backlog._waiting) + len(backlog._by_time) + len(backlog._claimable) + len(backlog._expiring) < 200
    assert backlog.claim(10_299, 1) == ([], [Claim(job, 1)])
