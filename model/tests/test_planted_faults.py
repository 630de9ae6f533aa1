"""The comparison finds what is wrong: each of these engines differs in one thing, and is caught."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from alkstore_core.numbers import saturating_add
from alkstore_mem import backlog, mailboxes, queues
from alkstore_mem.backlog import Backlog
from alkstore_mem.database import Changes
from alkstore_mem.locks import LockSession
from alkstore_mem.mailboxes import MailboxSession
from alkstore_mem.queues import QueueSession
from alkstore_mem.scheduler import SchedulerSession
from alkstore_mem.streams import StreamSession
from alkstore_mem.transaction import MemTransaction
from alkstore_sqlite.mailboxes import SQL as MAIL
from alkstore_sqlite.queues import SQL
from drivers import MemDriver, SqliteDriver
from hypothesis import Phase
from machine import Machine
from side import DisagreementError
from test_engines_agree import Mailboxes, Queues, Schedules, Transactions, compare

Plant = Callable[[pytest.MonkeyPatch], None]

FAULTS: list[tuple[Plant, type[Machine]]] = []


def fault(machine: type[Machine]) -> Callable[[Plant], Plant]:
    """Declare a fault that `machine` must find; its name says what is wrong."""

    def declare(plant: Plant) -> Plant:
        FAULTS.append((plant, machine))
        return plant

    return declare


@fault(Queues)
def release_counts_the_attempt(patch):
    give_back = queues._give_back
    patch.setattr(
        queues,
        "_give_back",
        lambda changes, row, ready_at, _, error: give_back(changes, row, ready_at, row.job.attempts, error),
    )


@fault(Queues)
def sqlite_release_counts_the_attempt(patch):
    patch.setattr(SQL, "release_claim", SQL.release_claim.replace("attempts = attempts - 1", "attempts = attempts"))


@fault(Queues)
def a_stale_claim_settles_its_successor(patch):
    def live_row(changes, claim, now):
        row = changes.get(changes.database.jobs, claim.job.id)
        return row if row is not None and queues._is_live(row.job, now) else None

    patch.setattr(queues, "_live_row", live_row)


@fault(Queues)
def claims_ignore_priority(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, job.ready_at, job.id))


@fault(Queues)
def a_last_attempt_that_lapsed_is_handed_out_again(patch):
    patch.setattr(backlog, "_at_last_attempt", lambda _: False)


@fault(Queues)
def heartbeats_add_up(patch):
    async def extend_claim(self, claim, extend):
        with await self.writing() as changes:
            row = queues._live_row(changes, claim, self.now())
            if row is not None:
                until = saturating_add(row.job.claim_expires_at, extend)
                changes.put(
                    changes.database.jobs, row.job.id, replace(row, job=replace(row.job, claim_expires_at=until))
                )
            return row is not None

    patch.setattr(QueueSession, "extend_claim", extend_claim)


@fault(Queues)
def sweeps_leave_who_is_claimed(patch):
    right = Backlog.sweep

    def sweep(self, now):
        expired, forgotten = right(self, now)
        return [row for row in expired if row.job.worker_id is None], forgotten

    patch.setattr(Backlog, "sweep", sweep)


@fault(Transactions)
def a_saved_offset_goes_back(patch):
    async def save_offset(self, stream, consumer, offset):
        with await self.writing() as changes:
            changes.put(changes.database.offsets, (stream, consumer), offset)

    patch.setattr(StreamSession, "save_offset", save_offset)


@fault(Transactions)
def a_savepoint_rolled_back_keeps_its_jobs(patch):
    discard = Changes.discard

    def keep_jobs(self, depth):
        jobs = self.database.jobs
        for layer in self.layers[depth + 1 :]:
            self.layers[depth].setdefault(jobs, {}).update(layer.get(jobs, {}))
        discard(self, depth)

    patch.setattr(Changes, "discard", keep_jobs)


@fault(Transactions)
def a_dropped_transaction_is_committed(patch):
    def abandon(self):
        self._engine.database.commit(self.turn, self.changes, self.now)

    patch.setattr(MemTransaction, "abandon", abandon)


@fault(Schedules)
def asking_again_refreshes_a_lock(patch):
    take_lock = LockSession.take_lock

    async def refresh(self, name, owner, ttl):
        grant = await take_lock(self, name, owner, ttl)
        return grant and await self.renew_lock(grant, ttl)

    patch.setattr(LockSession, "take_lock", refresh)


@fault(Schedules)
def registering_again_restarts_a_schedule(patch):
    put_schedule = SchedulerSession.put_schedule

    async def restart(self, schedule):
        await self.delete_schedule(schedule.name)
        await put_schedule(self, schedule)

    patch.setattr(SchedulerSession, "put_schedule", restart)


@fault(Mailboxes)
def fencing_leaves_what_is_all_read(patch):
    def fence(changes, mailbox):
        row = mailboxes.outstanding(changes, mailbox)
        if row is not None:
            changes.put(changes.database.deliveries, row.id, replace(row, fenced=True))

    patch.setattr(mailboxes, "_fence", fence)


@fault(Mailboxes)
def suppression_acknowledges(patch):
    right = MailboxSession.mark_read

    async def mark_read(self, mailbox, ids):
        with await self.reading() as changes:
            held = mailboxes.outstanding(changes, mailbox)
        marked = await right(self, mailbox, ids)
        with await self.writing() as changes:
            if held is not None and mailboxes.outstanding(changes, mailbox) is None:
                changes.put(changes.database.deliveries, held.id, replace(held, acknowledged_at=self.now()))
        return marked

    patch.setattr(MailboxSession, "mark_read", mark_read)


@fault(Mailboxes)
def sqlite_suppresses_mail_of_other_mailboxes(patch):
    patch.setattr(MAIL, "mark_read", MAIL.mark_read.replace("+mailbox = ?", "? IS NOT NULL"))


@fault(Mailboxes)
def sqlite_pending_shows_what_is_handed_out(patch):
    patch.setattr(MAIL, "pending", MAIL.pending.replace("AND id NOT IN (SELECT member.value", "AND 0 NOT IN (SELECT 1"))


@fault(Mailboxes)
def sqlite_reroutes_to_the_end(patch):
    patch.setattr(
        MAIL,
        "reroute",
        MAIL.reroute.replace("SET mailbox = ?", "SET sequence = sequence + 100000, mailbox = ?"),
    )


@pytest.mark.parametrize(("plant", "machine"), FAULTS, ids=lambda one: one.__name__)
def test_the_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, machine: type[Machine]) -> None:
    """An engine that is wrong in one thing disagrees with the others.

    Most are found within ten runs, and nearly all within the sixty of a quick comparison. Which runs those are changes
    with the machine and with Hypothesis, so that here they may be a few times as many.
    """
    plant(monkeypatch)
    with pytest.raises(DisagreementError):
        compare(machine, (MemDriver, SqliteDriver), times=4, phases=[Phase.generate])
