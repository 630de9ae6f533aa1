"""Engines whose locks are wrong."""

import asyncio
from dataclasses import replace

from alkstore_contract_suite.mutation import mutant
from alkstore_core.engine import LockGrant
from alkstore_core.errors import DatabaseError
from alkstore_core.locks import Lock
from alkstore_core.numbers import saturating_add
from alkstore_mem import locks
from alkstore_mem.locks import LockSession
from alkstore_mem.transaction import MemTransaction
from alkstore_sqlite import locks as sqlite_locks
from alkstore_sqlite.operations import count


def _taking(patch, decide):
    """Let `decide` (held, owner, now) say what an owner that asks gets: the held grant, None, or "new"."""

    async def take_lock(self, name, owner, ttl):
        with await self.writing() as changes:
            database, now = changes.database, self.now()
            answer = decide(changes.get(database.locks, name), owner, now)
            if answer != "new":
                return answer
            grant = LockGrant(name, owner, database.lock_tokens.draw(), saturating_add(now, ttl))
            changes.put(database.locks, name, grant)
            return grant

    patch.setattr(LockSession, "take_lock", take_lock)


def _lasts(held, now):
    return held is not None and now < held.expires_at


# taking


@mutant(
    kills=[
        "locks/one_holder_at_a_time",
        "locks/owners_are_compared_exactly",
        "locks/one_of_many_wins",
        "locks/one_of_many_takes_over",
        "locks/never_two_holders",
    ]
)
def lets_everybody_in(patch):
    _taking(patch, lambda held, owner, now: held if _lasts(held, now) and held.owner == owner else "new")


@mutant(kills=["locks/holding_says_what_it_is", "locks/same_owner_gets_its_holding"])
def says_how_long_instead_of_until_when(patch):
    async def take_lock(self, name, owner, ttl):
        grant = await right(self, name, owner, ttl)
        return None if grant is None else replace(grant, expires_at=ttl)

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["locks/locks_are_independent"])
def folds_names(patch):
    def named(method):
        async def folded(self, name, *arguments):
            if isinstance(name, LockGrant):
                return await method(self, replace(name, name=name.name.strip().lower()[:6]), *arguments)
            return await method(self, name.strip().lower()[:6], *arguments)

        return folded

    for method in ("take_lock", "renew_lock", "release_lock"):
        patch.setattr(LockSession, method, named(getattr(LockSession, method)))


@mutant(kills=["locks/release_is_of_one_lock", "locks/locks_are_independent"])
def releases_all_locks_of_an_owner(patch):
    async def release_lock(self, grant):
        released = await right(self, grant)
        with await self.writing() as changes:
            for name, held in changes.scan(changes.database.locks).items():
                if held.owner == grant.owner:
                    changes.put(changes.database.locks, name, None)
        return released

    right = LockSession.release_lock
    patch.setattr(LockSession, "release_lock", release_lock)


@mutant(kills=["locks/owners_are_compared_exactly"])
def folds_owners(patch):
    _taking(
        patch,
        lambda held, owner, now: (
            "new" if not _lasts(held, now) else held if held.owner.lower().strip() == owner.lower().strip() else None
        ),
    )


def _same(held, owner):
    return held if held.owner == owner else None


@mutant(
    kills=[
        "locks/held_until_it_expires",
        "locks/one_of_many_takes_over",
        "locks/tokens_grow_with_each_holding",
        "locks/same_owner_gets_its_holding",
        "locks/renewal_and_take_over_exclude_each_other",
    ]
)
def holds_one_second_longer(patch):
    _taking(patch, lambda held, owner, now: "new" if held is None or now > held.expires_at else _same(held, owner))


@mutant(kills=["locks/held_until_it_expires", "locks/renewal_keeps_it_for_ever", "locks/renewal_counts_from_now"])
def lets_go_one_second_sooner(patch):
    _taking(patch, lambda held, owner, now: "new" if held is None or now + 1 >= held.expires_at else _same(held, owner))


@mutant(kills=["locks/free_once_released", "locks/no_renewal_after_release", "locks/one_of_many_wins"])
def lets_a_released_lock_lapse(patch):
    async def release_lock(self, grant):
        with await self.writing() as changes:
            return locks.holding(changes, grant, self.now()) is not None

    patch.setattr(LockSession, "release_lock", release_lock)


@mutant(
    kills=["locks/expiry_is_silent", "locks/no_renewal_after_expiry", "locks/stale_holder_leaves_the_new_one_alone"]
)
def raises_where_a_holding_has_ended(patch):
    async def release_lock(self, grant):
        if not await right(self, grant):
            raise DatabaseError(f"{grant.name!r} is not held any more")
        return True

    right = LockSession.release_lock
    patch.setattr(LockSession, "release_lock", release_lock)


@mutant(kills=["locks/locks_are_not_transactional"])
def releases_locks_with_a_transaction(patch):
    async def rollback(self):
        await right(self)
        with await self._engine.autocommit().writing() as changes:
            for name in changes.scan(changes.database.locks):
                changes.put(changes.database.locks, name, None)

    right = MemTransaction.rollback
    patch.setattr(MemTransaction, "rollback", rollback)


@mutant(kills=["locks/block_releases_at_its_end"])
def releases_after_an_orderly_end_only(patch):
    async def leave(self, _, error, __):
        if error is None:
            await self.release()

    patch.setattr(Lock, "__aexit__", leave)


@mutant(kills=["locks/block_releases_at_its_end"])
def leaves_a_cancelled_block_to_lapse(patch):
    async def leave(self, _, error, __):
        if not isinstance(error, asyncio.CancelledError):
            await self.release()

    patch.setattr(Lock, "__aexit__", leave)


# the same owner again


@mutant(kills=["locks/same_owner_gets_its_holding", "locks/same_owner_at_once", "locks/release_is_of_one_lock"])
def refreshes_the_ttl_of_its_owner(patch):
    async def take_lock(self, name, owner, ttl):
        grant = await right(self, name, owner, ttl)
        return None if grant is None else await self.renew_lock(grant, ttl)

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["locks/same_owner_gets_its_holding", "locks/same_owner_at_once", "locks/release_is_of_one_lock"])
def refuses_its_owner_too(patch):
    _taking(patch, lambda held, _, now: None if _lasts(held, now) else "new")


@mutant(
    kills=[
        "locks/same_owner_gets_its_holding",
        "locks/same_owner_shares_its_holding",
        "locks/same_owner_at_once",
        "locks/tokens_are_of_holdings",
    ]
)
def gives_its_owner_a_new_holding(patch):
    _taking(patch, lambda held, owner, now: None if _lasts(held, now) and held.owner != owner else "new")


@mutant(
    kills=[
        "locks/same_owner_begins_anew_after_expiry",
        "locks/stale_holding_of_the_same_owner",
        "locks/no_renewal_after_release",
    ]
)
def keeps_the_token_of_an_owner(patch):
    async def take_lock(self, name, owner, ttl):
        grant = await right(self, name, owner, ttl)
        if grant is None:
            return None
        tokens = self._engine.database.__dict__.setdefault("tokens", {})
        kept = replace(grant, token=tokens.setdefault((name, "" if name == "leader" else owner), grant.token))
        with await self.writing() as changes:
            changes.put(changes.database.locks, name, kept)
        return kept

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


# renewing and releasing


def _holding(patch, lasts):
    """Let `lasts` (held, grant, now) say whether a stored row is still the holding of a grant."""

    def holding(changes, grant, now):
        held = changes.get(changes.database.locks, grant.name)
        return held if held is not None and lasts(held, grant, now) else None

    patch.setattr(locks, "holding", holding)


@mutant(kills=["locks/renewal_counts_from_now"])
def adds_to_the_deadline(patch):
    async def renew_lock(self, grant, ttl):
        return await right(self, grant, grant.expires_at - self.now() + ttl)

    right = LockSession.renew_lock
    patch.setattr(LockSession, "renew_lock", renew_lock)


@mutant(kills=["locks/renewal_counts_from_now"])
def never_shortens_a_deadline(patch):
    async def renew_lock(self, grant, ttl):
        return await right(self, grant, max(grant.expires_at - self.now(), ttl))

    right = LockSession.renew_lock
    patch.setattr(LockSession, "renew_lock", renew_lock)


@mutant(kills=["locks/renewal_counts_from_now", "locks/renewal_keeps_it_for_ever"])
def forgets_to_store_a_renewal(patch):
    async def renew_lock(self, grant, ttl):
        with await self.writing() as changes:
            held = locks.holding(changes, grant, self.now())
            return None if held is None else replace(held, expires_at=self.now() + ttl)

    patch.setattr(LockSession, "renew_lock", renew_lock)


@mutant(kills=["locks/no_renewal_after_expiry", "locks/expiry_is_silent"])
def renews_what_nobody_has_taken_since(patch):
    _holding(patch, lambda held, grant, _: held.token == grant.token)


@mutant(kills=["locks/no_renewal_after_release"])
def brings_a_released_holding_back(patch):
    async def renew_lock(self, grant, ttl):
        with await self.writing() as changes:
            renewed = replace(grant, expires_at=saturating_add(self.now(), ttl))
            if changes.get(changes.database.locks, grant.name) is None:
                changes.put(changes.database.locks, grant.name, renewed)
                return renewed
        return await right(self, grant, ttl)

    right = LockSession.renew_lock
    patch.setattr(LockSession, "renew_lock", renew_lock)


@mutant(kills=["locks/stale_holder_leaves_the_new_one_alone"])
def releases_by_name(patch):
    _holding(patch, lambda held, _, now: now < held.expires_at)


@mutant(kills=["locks/stale_holding_of_the_same_owner"])
def tells_holdings_apart_by_owner_only(patch):
    _holding(patch, lambda held, grant, now: held.owner == grant.owner and now < held.expires_at)


# contention


@mutant(
    kills=[
        "locks/one_of_many_wins",
        "locks/one_of_many_takes_over",
        "locks/same_owner_at_once",
        "locks/never_two_holders",
    ]
)
def looks_before_its_turn_to_write(patch):
    async def take_lock(self, name, owner, ttl):
        with await self.reading() as changes:
            held = changes.get(changes.database.locks, name)
        if _lasts(held, self.now()):
            return _same(held, owner)
        with await self.writing() as changes:
            grant = LockGrant(name, owner, changes.database.lock_tokens.draw(), saturating_add(self.now(), ttl))
            changes.put(changes.database.locks, name, grant)
            return grant

    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["locks/one_of_many_wins", "locks/one_holder_at_a_time"])
def raises_for_the_losers(patch):
    async def take_lock(self, name, owner, ttl):
        grant = await right(self, name, owner, ttl)
        if grant is None:
            raise DatabaseError(f"{name!r} is taken")
        return grant

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["locks/cancelled_asking_leaves_the_lock_whole"])
def gives_a_cancelled_holding_back_too_late(patch):
    async def take_lock(self, name, owner, ttl):
        unclaimed = self._engine.__dict__.pop("unclaimed", None)
        grant = await right(self, name, owner, ttl)
        if unclaimed is not None:
            await self.release_lock(unclaimed)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._engine.unclaimed = grant
            raise
        return grant

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


# tokens


@mutant(
    kills=[
        "locks/tokens_grow_with_each_holding",
        "locks/same_owner_begins_anew_after_expiry",
        "locks/one_of_many_wins",
        "locks/no_renewal_after_release",
        "locks/stale_holding_of_the_same_owner",
    ]
)
def counts_tokens_in_the_row_that_a_release_deletes(patch):
    async def take_lock(self, name, owner, ttl):
        with await self.writing() as changes:
            held = changes.get(changes.database.locks, name)
            if _lasts(held, self.now()):
                return _same(held, owner)
            token = 1 if held is None else held.token + 1
            grant = LockGrant(name, owner, token, saturating_add(self.now(), ttl))
            changes.put(changes.database.locks, name, grant)
            return grant

    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["locks/tokens_grow_across_restarts"], engine="sqlite")
def counts_tokens_by_the_rows_that_are_there(patch):
    def take_lock(scope, name, owner, ttl):
        yield count(
            "UPDATE alkstore_meta SET value = (SELECT coalesce(max(token), 0) FROM alkstore_locks) "
            "WHERE key = 'lock_token'"
        )
        return (yield from right(scope, name, owner, ttl))

    right = sqlite_locks.take_lock
    patch.setattr(sqlite_locks, "take_lock", take_lock)
