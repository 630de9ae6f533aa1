"""Engines that raise the wrong things, or where nothing is wrong."""

from alkstore_contract_suite.mutation import mutant
from alkstore_core import JobHandle, JobState, Lock, Queue, Store, errors, names, numbers
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError
from alkstore_mem.queues import QueueSession
from alkstore_mem.writer import WriterSlot


@mutant(kills=["errors/one_root"])
def has_an_error_that_nobody_can_act_on(patch):
    patch.setattr(errors, "PoolError", type("PoolError", (AlkstoreError,), {}), raising=False)


@mutant(kills=["errors/driver_errors_come_as_database_errors"], engine="sqlite")
def lets_driver_errors_through(patch):
    from alkstore_sqlite.database import Database

    patch.setattr(Database, "too_busy", lambda _, cause=None: cause or DatabaseError("too busy: wait"))


@mutant(kills=["errors/driver_errors_come_as_database_errors"], engine="sqlite")
def hides_what_the_driver_said(patch):
    from alkstore_sqlite.database import Database

    right = Database.too_busy
    patch.setattr(Database, "too_busy", lambda self, _=None: right(self))


@mutant(kills=["errors/writes_fail_in_an_outage_and_leave_nothing"], engine="sqlite")
def acknowledges_what_failed(patch):
    right = Queue.enqueue

    async def enqueue(self, payload, **options):
        try:
            return await right(self, payload, **options)
        except DatabaseError:
            return 0

    patch.setattr(Queue, "enqueue", enqueue)


@mutant(kills=["errors/closed_connection_comes_as_an_alkstore_error"])
def lets_an_error_of_the_closed_connection_through(patch):
    right = WriterSlot.check

    def check(self, turn):
        try:
            right(self, turn)
        except ClosedError as error:
            raise ValueError("no active connection") from error

    patch.setattr(WriterSlot, "check", check)


@mutant(kills=["errors/nothing_to_do_is_a_value"])
def raises_where_nothing_is_found(patch):
    right = Queue.get_job

    async def get_job(self, job_id):
        job = await right(self, job_id)
        if job is None:
            raise DatabaseError(f"there is no job {job_id}: look for another")
        return job

    patch.setattr(Queue, "get_job", get_job)


@mutant(kills=["errors/nothing_to_do_is_a_value"])
def raises_where_a_lock_is_held(patch):
    right = Store.try_lock

    async def try_lock(self, name, owner, ttl):
        lock = await right(self, name, owner, ttl)
        if lock is None:
            raise DatabaseError(f"lock {name!r} is held by another: wait")
        return lock

    patch.setattr(Store, "try_lock", try_lock)


@mutant(kills=["errors/what_was_lost_is_a_value"])
def raises_where_a_claim_was_lost(patch):
    right = JobHandle.heartbeat

    async def heartbeat(self, extend):
        if not await right(self, extend):
            raise DatabaseError("this claim was lost: drop what you did")
        return True

    patch.setattr(JobHandle, "heartbeat", heartbeat)


@mutant(kills=["errors/what_was_lost_is_a_value"])
def answers_none_where_a_lock_was_lost(patch):
    right = Lock.release

    async def release(self):
        return await right(self) or None

    patch.setattr(Lock, "release", release)


@mutant(kills=["errors/dead_letter_is_state"])
def finds_no_dead_letter(patch):
    right = QueueSession.find_job

    async def find_job(self, job_id, queue):
        job = await right(self, job_id, queue)
        return None if job is not None and job.state is JobState.DEAD else job

    patch.setattr(QueueSession, "find_job", find_job)


@mutant(kills=["errors/errors_carry_the_value"])
def does_not_show_the_value(patch):
    for module in (names, numbers):
        patch.setattr(module, "shown", lambda _: "a value")


@mutant(kills=["errors/errors_carry_the_value"])
def shows_the_whole_value(patch):
    patch.setattr(names, "shown", repr)


@mutant(kills=["errors/errors_say_what_to_do"])
def says_only_what_was_wrong(patch):
    patch.setattr(AlkstoreError, "__str__", lambda self: str(self.args[0]).partition(": ")[0], raising=False)
