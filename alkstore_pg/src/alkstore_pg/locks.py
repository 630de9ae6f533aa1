"""TTL locks with fencing tokens, on the server's time (contract section 9)."""

from typing import Any

from alkstore_core.engine import LockGrant

from alkstore_pg.names import key_of
from alkstore_pg.primitives import Primitives


class LockPrimitives(Primitives):
    """Locks; called on the auto-commit session only (T7)."""

    async def take_lock(self, name: str, owner: str, ttl: int) -> LockGrant | None:
        async def give_back(records: Any) -> None:
            for token, _, fresh in records:
                if fresh:
                    await self.run("give_back_lock", key_of(name), owner, token)

        records = await self.run("take_lock", key_of(name), owner, ttl, self.now_given(), orphaned=give_back)
        if not records:
            return None
        token, expires_at, _ = records[0]
        return LockGrant(name, owner, token, expires_at)

    async def renew_lock(self, grant: LockGrant, ttl: int) -> LockGrant | None:
        records = await self.run("renew_lock", key_of(grant.name), grant.owner, grant.token, ttl, self.now_given())
        return LockGrant(grant.name, grant.owner, grant.token, records[0][0]) if records else None

    async def release_lock(self, grant: LockGrant) -> bool:
        return bool(await self.run("release_lock", key_of(grant.name), grant.owner, grant.token, self.now_given()))
