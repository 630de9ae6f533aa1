"""Locks (contract section 9)."""

from dataclasses import replace

from alkstore_core.engine import LockGrant
from alkstore_core.numbers import saturating_add

from alkstore_mem.database import Changes
from alkstore_mem.session import MemSession


def holding(changes: Changes, grant: LockGrant, now: int) -> LockGrant | None:
    """The stored row of this very holding while it lasts, else None."""
    held = changes.get(changes.database.locks, grant.name)
    lasts = held is not None and held.token == grant.token and held.owner == grant.owner and now < held.expires_at
    return held if lasts else None


class LockSession(MemSession):
    """The lock primitives."""

    async def take_lock(self, name: str, owner: str, ttl: int) -> LockGrant | None:
        with await self.writing() as changes:
            database, now = changes.database, self.now()
            held = changes.get(database.locks, name)
            if held is not None and now < held.expires_at:
                return held if held.owner == owner else None
            grant = LockGrant(name, owner, database.lock_tokens.draw(), saturating_add(now, ttl))
            changes.put(database.locks, name, grant)
            return grant

    async def renew_lock(self, grant: LockGrant, ttl: int) -> LockGrant | None:
        with await self.writing() as changes:
            now = self.now()
            held = holding(changes, grant, now)
            if held is None:
                return None
            renewed = replace(held, expires_at=saturating_add(now, ttl))
            changes.put(changes.database.locks, grant.name, renewed)
            return renewed

    async def release_lock(self, grant: LockGrant) -> bool:
        with await self.writing() as changes:
            if holding(changes, grant, self.now()) is None:
                return False
            changes.put(changes.database.locks, grant.name, None)
            return True
