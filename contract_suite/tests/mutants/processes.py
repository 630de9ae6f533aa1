"""Engines that do not get on with several processes."""

# ruff: noqa: ARG001, ARG005 - a wrong engine takes the arguments of the right one

import warnings

from alkstore_contract_suite.mutation import mutant
from alkstore_core import EventReceiver, Queue, Store, Wake, WakeReceiver
from alkstore_core.errors import DatabaseError
from alkstore_core.home import Home
from alkstore_core.wakes import WakeHub


@mutant(kills=["processes/wakes_cross"], engine="sqlite", in_children=True, hangs=True)
def hears_nobody(patch):
    patch.setattr(WakeHub, "wake", lambda self, topics: None)


@mutant(kills=["processes/wakes_cross", "processes/enlisted_commits_wake"], engine="sqlite", in_children=True)
@mutant(kills=["processes/commits_of_others_wake"], engine="sqlite")
def names_another_channel(patch):
    patch.setattr(WakeReceiver, "_wake", lambda self, woken: Wake("another"))


@mutant(kills=["processes/subscribers_follow_across"], engine="sqlite", in_children=True)
def repeats_events(patch):
    right = EventReceiver.recv
    last = []

    async def recv(self):
        if not last:
            last.append(await right(self))
            return last[0]
        return last.pop()

    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["processes/claims_are_disjoint"], engine="sqlite", in_children=True)
def hands_out_what_is_claimed(patch):
    class Handle:
        def __init__(self, job):
            self.job = job

    ids = iter(range(1, 1000))

    async def claim_one(self, worker_id):
        job = await self.get_job(next(ids))
        return None if job is None else Handle(job)

    patch.setattr(Queue, "claim_one", claim_one)


@mutant(kills=["processes/locks_have_one_holder"], engine="sqlite", in_children=True)
def takes_every_owner_for_the_same(patch):
    right = Store.try_lock

    async def try_lock(self, name, owner, ttl):
        return await right(self, name, "somebody", ttl)

    patch.setattr(Store, "try_lock", try_lock)


@mutant(kills=["processes/writers_wait_their_turn"], engine="sqlite", in_children=True)
def gives_up_at_once(patch):
    right = Store.begin_tx
    asked = []

    def begin_tx(self):
        asked.append(self)
        if len(asked) == 10:
            raise DatabaseError("database is locked")
        return right(self)

    patch.setattr(Store, "begin_tx", begin_tx)


@mutant(kills=["processes/first_openings_may_be_at_once"], engine="sqlite", in_children=True)
def creates_what_is_there(patch):
    from alkstore_sqlite import migrations, setup

    for module in (migrations, setup):
        patch.setattr(module, "schema_version", lambda cursor: 0)


@mutant(kills=["processes/opening_and_closing_disturbs_nobody"], engine="sqlite", in_children=True)
def takes_jobs_along_when_it_closes(patch):
    right = Store.close

    async def close(self):
        for handle in await self.queue("emails").claim_batch("thief", 3):
            await handle.ack()
        await right(self)

    patch.setattr(Store, "close", close)


@mutant(kills=["processes/forked_child_is_refused"], engine="sqlite", in_children=True)
@mutant(kills=["processes/other_loop_is_refused"])
def is_at_home_everywhere(patch):
    patch.setattr(Home, "check", lambda self: None)


@mutant(kills=["processes/forgotten_store_lets_the_process_end"], engine="sqlite", in_children=True)
def says_nothing_of_a_forgotten_store(patch):
    warnings.simplefilter("ignore")
