"""Locks: one holder at a time, for a while, with fencing tokens (contract section 9)."""

import asyncio
from random import Random

import pytest
from alkstore_core import Lock, Store
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, LockRow, Witness
from alkstore_contract_suite.leg import leg


async def taken(store: Store, owner: str, ttl: int = 60) -> Lock:
    """The lock "leader", which must be free or this owner's."""
    lock = await store.try_lock("leader", owner, ttl)
    assert lock is not None, f"{owner!r} did not get the lock"
    return lock


def facts(lock: Lock) -> tuple[str, str, int, int]:
    """All that a lock says of itself."""
    return lock.name, lock.owner, lock.token, lock.expires_at


# taking


@leg(rules="L1 L5", since="1.0")
async def test_holding_says_what_it_is(store: Store, clock: ManualClock, witness: Witness) -> None:
    """Taking a free lock gives a holding with its name, its owner, a token and the second at which it expires."""
    lock = await store.try_lock("leader", "a", 60)
    assert lock is not None
    assert facts(lock) == ("leader", "a", lock.token, clock.now() + 60)
    assert type(lock.token) is int
    assert await witness.lock("leader") == LockRow("a", lock.token, clock.now() + 60)


@leg(rules="L1 L4", since="1.0")
async def test_one_holder_at_a_time(store: Store, second_store: Store, witness: Witness) -> None:
    """While somebody holds a lock, others get None, by whatever store, and the holding stays as it is."""
    lock = await taken(store, "a")
    before = await witness.lock("leader")
    for either in (store, second_store):
        for ttl in (1, 60, 10**9):
            assert await either.try_lock("leader", "b", ttl) is None
    assert await witness.lock("leader") == before
    assert await lock.release() is True


@leg(rules="L1", since="1.0")
async def test_locks_are_independent(store: Store) -> None:
    """Locks of other names are free, also for the same owner, and releasing one leaves the others held."""
    locks = {name: await store.try_lock(name, "a", 60) for name in ("leader", "Leader", " leader", "leader2")}
    assert None not in locks.values()
    leader = locks["leader"]
    assert leader is not None
    assert await leader.release() is True
    assert [name for name in locks if await store.try_lock(name, "b", 60) is not None] == ["leader"]


@leg(rules="L1", since="1.0")
async def test_owners_are_compared_exactly(store: Store) -> None:
    """An owner that differs in case, in blanks or in its form of a letter is somebody else."""
    await taken(store, "é a")
    for owner in ("É a", "é A", "é a ", " é a", "éa", "e\u0301 a", "__alkstore_a"):
        assert await store.try_lock("leader", owner, 60) is None


@leg(rules="L1", since="1.0")
async def test_held_until_it_expires(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """A lock is held until the second at which it expires, and free from that second on."""
    first = await taken(store, "a", 30)
    await harness.advance(29)
    assert await second_store.try_lock("leader", "b", 60) is None
    await harness.advance(1)
    second = await taken(second_store, "b")
    assert facts(second) == ("leader", "b", second.token, first.expires_at + 60)
    assert second.token > first.token
    assert await witness.lock("leader") == LockRow("b", second.token, second.expires_at)


@leg(rules="L1 L3", since="1.0")
async def test_free_once_released(store: Store, second_store: Store) -> None:
    """A released lock is free at once, for everybody."""
    first = await taken(store, "a")
    assert await first.release() is True
    second = await taken(second_store, "b")
    assert second.owner == "b"
    assert await store.try_lock("leader", "a", 60) is None
    assert await second.release() is True
    assert (await taken(store, "a")).owner == "a"


@leg(rules="L1", since="1.0")
async def test_expiry_is_silent(harness: Harness, store: Store, second_store: Store) -> None:
    """A holding that has expired is told nothing and raises nothing: its calls are False, its block ends in order."""
    async with await taken(store, "a", 30) as lock:
        before = facts(lock)
        await harness.advance(30)
        assert facts(lock) == before
        assert await lock.renew(60) is False
        assert await lock.release() is False
        other = await taken(second_store, "b")
    assert await other.renew(60) is True


@leg(rules="L1 T7", since="1.0")
async def test_locks_are_not_transactional(store: Store, second_store: Store) -> None:
    """A rollback releases no lock, and a commit neither."""
    lock = await taken(store, "a")
    async with store.begin_tx() as tx:
        await tx.publish("orders", "undone")
    assert await second_store.try_lock("leader", "b", 60) is None
    async with store.transaction() as tx:
        await tx.publish("orders", "done")
    assert await second_store.try_lock("leader", "b", 60) is None
    assert await lock.release() is True


@leg(rules="L1 L3", since="1.0")
async def test_block_releases_at_its_end(store: Store, second_store: Store) -> None:
    """A lock that is entered is released at the end of its block: in order, by an error, or by a cancellation."""
    async with await taken(store, "a") as lock:
        assert await second_store.try_lock("leader", "b", 60) is None
    assert await lock.release() is False
    assert await (await taken(second_store, "b")).release() is True
    with pytest.raises(ZeroDivisionError):
        async with await taken(store, "a"):
            raise ZeroDivisionError
    assert await (await taken(second_store, "b")).release() is True
    entered = asyncio.Event()

    async def hold() -> None:
        async with await taken(store, "a"):
            entered.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await entered.wait()
    holding.cancel()
    await asyncio.wait((holding,))
    assert holding.cancelled()
    assert await (await taken(second_store, "b")).release() is True


# the same owner again


@leg(rules="L2", since="1.0")
async def test_same_owner_gets_its_holding(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """The owner that asks again while holding gets the holding as it stands, whatever ttl it asks for."""
    first = await taken(store, "a", 60)
    await harness.advance(20)
    for either in (store, second_store):
        for ttl in (1, 60, 1000):
            assert facts(await taken(either, "a", ttl)) == facts(first)
    assert await witness.lock("leader") == LockRow("a", first.token, first.expires_at)
    await harness.advance(40)
    assert (await taken(second_store, "b")).token > first.token


@leg(rules="L2 L3", since="1.0")
async def test_same_owner_shares_its_holding(store: Store, second_store: Store) -> None:
    """Both locks of an owner that asked twice are one holding: either renews it, either ends it."""
    first, second = await taken(store, "a"), await taken(second_store, "a")
    assert await second.renew(90) is True
    assert await first.renew(120) is True
    assert await second.release() is True
    assert await first.release() is False
    assert await first.renew(60) is False
    assert await store.try_lock("leader", "b", 60) is not None


@leg(rules="L2 L5", since="1.0")
async def test_same_owner_begins_anew_after_expiry(harness: Harness, store: Store, clock: ManualClock) -> None:
    """The owner that asks again once its holding has expired, or was released, gets a new one with a greater token."""
    first = await taken(store, "a", 30)
    await harness.advance(30)
    second = await taken(store, "a", 45)
    assert facts(second) == ("leader", "a", second.token, clock.now() + 45)
    assert second.token > first.token
    assert await second.release() is True
    third = await taken(store, "a")
    assert third.token > second.token


# renewing and releasing


@leg(rules="L3", since="1.0")
async def test_renewal_counts_from_now(
    harness: Harness, store: Store, second_store: Store, clock: ManualClock, witness: Witness
) -> None:
    """A renewal sets the deadline to now + ttl, sooner or later than before, and keeps the token."""
    lock = await taken(store, "a", 60)
    token = lock.token
    for ttl in (60, 300, 10):
        await harness.advance(7)
        assert await lock.renew(ttl) is True
        assert facts(lock) == ("leader", "a", token, clock.now() + ttl)
        assert await witness.lock("leader") == LockRow("a", token, clock.now() + ttl)
    await harness.advance(9)
    assert await second_store.try_lock("leader", "b", 60) is None
    await harness.advance(1)
    assert (await taken(second_store, "b")).token > token


@leg(rules="L3", since="1.0")
async def test_renewal_keeps_it_for_ever(harness: Harness, store: Store, second_store: Store) -> None:
    """A lock that is renewed before each deadline is never anybody else's."""
    lock = await taken(store, "a", 10)
    token = lock.token
    for _ in range(20):
        await harness.advance(9)
        assert await second_store.try_lock("leader", "b", 60) is None
        assert await lock.renew(10) is True
    assert lock.token == token


@leg(rules="L3", since="1.0")
async def test_no_renewal_after_expiry(harness: Harness, store: Store, second_store: Store) -> None:
    """From the second at which it expires, a holding cannot be renewed or released, even if nobody has taken it."""
    for seconds in (30, 31, 10**6):
        lock = await taken(store, "a", 30)
        expires_at = lock.expires_at
        await harness.advance(seconds)
        assert await lock.renew(60) is False
        assert await lock.release() is False
        assert lock.expires_at == expires_at
        other = await taken(second_store, "b", 1)
        assert other.token > lock.token
        await harness.advance(1)


@leg(rules="L3", since="1.0")
async def test_no_renewal_after_release(store: Store, witness: Witness) -> None:
    """A released holding cannot be renewed or released again, and does not come back."""
    lock = await taken(store, "a")
    assert await lock.release() is True
    for _ in range(2):
        assert await lock.renew(60) is False
        assert await lock.release() is False
    assert await witness.lock("leader") is None
    assert (await taken(store, "b")).token > lock.token


@leg(rules="L3", since="1.0")
async def test_stale_holder_leaves_the_new_one_alone(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """A holder whose lock was taken over gets False for renew and release, and the new holder keeps it."""
    stale = await taken(store, "a", 30)
    await harness.advance(30)
    lock = await taken(second_store, "b", 60)
    before = await witness.lock("leader")
    assert await stale.renew(600) is False
    assert await stale.release() is False
    assert await witness.lock("leader") == before == LockRow("b", lock.token, lock.expires_at)
    assert await store.try_lock("leader", "a", 60) is None
    assert await lock.renew(90) is True
    assert await lock.release() is True
    assert await stale.renew(600) is False
    assert await stale.release() is False


@leg(rules="L3 L5", since="1.0")
async def test_stale_holding_of_the_same_owner(harness: Harness, store: Store, witness: Witness) -> None:
    """An owner's earlier holding, expired or released, neither renews nor ends its later one."""
    expired = await taken(store, "a", 30)
    await harness.advance(30)
    released = await taken(store, "a", 30)
    assert await released.release() is True
    lock = await taken(store, "a", 60)
    before = await witness.lock("leader")
    for stale in (expired, released):
        assert await stale.renew(600) is False
        assert await stale.release() is False
    assert await witness.lock("leader") == before == LockRow("a", lock.token, lock.expires_at)
    assert await lock.release() is True


@leg(rules="L3", since="1.0")
async def test_release_is_of_one_lock(store: Store) -> None:
    """Renewing or releasing one lock does nothing to another one of the same owner."""
    leader = await taken(store, "a", 30)
    other = await store.try_lock("follower", "a", 30)
    assert other is not None
    assert await other.renew(600) is True
    assert await other.release() is True
    again = await taken(store, "a", 1)
    assert facts(again) == facts(leader)


# contention


@leg(rules="L4 L1 L5", since="1.0")
async def test_one_of_many_wins(store: Store, second_store: Store) -> None:
    """Of many that ask at the same moment one gets the lock, the others None, and each winner a greater token."""
    tokens = []
    for _ in range(25):
        asked = [(store, second_store)[n % 2].try_lock("leader", f"owner {n}", 60) for n in range(10)]
        winners = [lock for lock in await asyncio.gather(*asked) if lock is not None]
        assert len(winners) == 1
        tokens.append(winners[0].token)
        assert await winners[0].release() is True
    assert tokens == sorted(set(tokens))


@leg(rules="L4 L1", since="1.0")
async def test_one_of_many_takes_over(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """Of many that ask at the second at which a lock expires, the old holder among them, one gets it."""
    await taken(store, "nobody", 5)
    for _ in range(20):
        await harness.advance(5)
        asked = [(store, second_store)[n % 2].try_lock("leader", f"owner {n}", 5) for n in range(6)]
        winners = [lock for lock in await asyncio.gather(*asked) if lock is not None]
        assert len(winners) == 1
        winner = winners[0]
        assert await witness.lock("leader") == LockRow(winner.owner, winner.token, winner.expires_at)


@leg(rules="L2 L4", since="1.0")
async def test_same_owner_at_once(store: Store, second_store: Store) -> None:
    """An owner that asks many times at the same moment gets one holding, every time."""
    for _ in range(15):
        asked = [(store, second_store)[n % 2].try_lock("leader", "a", 60 + n) for n in range(6)]
        locks = await asyncio.gather(*asked)
        assert None not in locks
        assert len({facts(lock) for lock in locks if lock is not None}) == 1
        assert sorted(await asyncio.gather(*(lock.release() for lock in locks if lock is not None))) == [False] * 5 + [
            True
        ]


@leg(rules="L1 L3 L4", since="1.0")
async def test_never_two_holders(store: Store, second_store: Store) -> None:
    """However owners take, hold, renew and release a lock side by side, never two hold it at once."""
    holders: list[str] = []
    seen: list[int] = []

    async def contend(number: int) -> None:
        random, which = Random(number), (store, second_store)[number % 2]
        owner = f"owner {number}"
        for _ in range(4):
            while (lock := await which.try_lock("leader", owner, 60)) is None:  # noqa: ASYNC110 - a lock that comes free tells nobody
                await asyncio.sleep(0)
            holders.append(owner)
            seen.append(lock.token)
            for _ in range(random.randrange(3)):
                assert await lock.renew(60) is True
            assert holders == [owner]
            holders.remove(owner)
            assert await lock.release() is True

    await asyncio.gather(*map(contend, range(6)))
    assert seen == sorted(set(seen))
    assert len(seen) == 24


@leg(rules="L3 L4", since="1.0")
async def test_renewal_and_take_over_exclude_each_other(harness: Harness, store: Store, second_store: Store) -> None:
    """At its last second a holder's renewal wins over a take-over, and from its expiry on the take-over wins."""
    for _ in range(10):
        lock = await taken(store, "a", 5)
        await harness.advance(4)
        other, renewed = await asyncio.gather(second_store.try_lock("leader", "b", 5), lock.renew(5))
        assert (other, renewed) == (None, True)
        await harness.advance(5)
        other, renewed = await asyncio.gather(second_store.try_lock("leader", "b", 5), lock.renew(5))
        assert renewed is False
        assert other is not None
        assert await other.release() is True


@leg(rules="T13 L1", since="1.0")
async def test_cancelled_asking_leaves_the_lock_whole(store: Store, second_store: Store, witness: Witness) -> None:
    """Asking that is cancelled at any moment either has taken effect or has not: the lock goes on to work."""
    for round in range(24):
        asking = asyncio.create_task(store.try_lock("leader", "a", 60))
        for _ in range(round % 8):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait((asking,))
        if not asking.cancelled():
            assert asking.result() is not None
        # Whatever came of it, the owner can have the lock, and whoever comes next.
        mine = await taken(store, "a")
        row = await witness.lock("leader")
        assert row is not None
        assert (row.owner, row.token) == ("a", mine.token)
        assert await mine.release() is True
        assert await (await taken(second_store, "b")).release() is True


# tokens


@leg(rules="L5", since="1.0")
async def test_tokens_grow_with_each_holding(harness: Harness, store: Store, second_store: Store) -> None:
    """Each new holding of a name has a greater token than all before: after release, expiry, by whatever owner."""
    tokens = []
    for number in range(12):
        lock = await taken((store, second_store)[number % 2], "abc"[number % 3], 30)
        tokens.append(lock.token)
        if number % 4:
            assert await lock.release() is True
        else:
            await harness.advance(30)
        other = await store.try_lock("another", "a", 30)
        if other is not None and number % 5 == 0:
            await other.release()
    assert tokens == sorted(set(tokens))


@leg(rules="L5", since="1.0")
async def test_tokens_are_of_holdings(store: Store) -> None:
    """A refused attempt and a renewal draw no token for anybody: the holding keeps the one it has."""
    lock = await taken(store, "a")
    token = lock.token
    for _ in range(3):
        assert await store.try_lock("leader", "b", 60) is None
        assert await lock.renew(60) is True
        assert lock.token == token
        assert (await taken(store, "a")).token == token


@leg(rules="L5", since="1.0", needs=("durable",))
async def test_tokens_grow_across_restarts(harness: Harness) -> None:
    """Tokens go on growing after everything was closed and restarted, of locks released, held or expired."""
    tokens = []
    for outcome in ("released", "held", "expired", "released"):
        async with harness.open() as store:
            lock = await taken(store, "a", 30)
            tokens.append(lock.token)
            if outcome == "released":
                assert await lock.release() is True
        await harness.restart()
        if outcome == "held":
            async with harness.open() as store:
                assert await store.try_lock("leader", "b", 30) is None
                assert facts(await taken(store, "a", 30)) == facts(lock)
        await harness.advance(30)
    assert tokens == sorted(set(tokens))
