"""TTL locks with fencing tokens (contract section 9)."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from alkstore_core.cancellation import see_through
from alkstore_core.engine import LockGrant
from alkstore_core.errors import AlkstoreError
from alkstore_core.names import free_name, shared_name
from alkstore_core.numbers import duration

if TYPE_CHECKING:
    from alkstore_core.store import Store


async def try_lock(store: "Store", name: str, owner: str, ttl: int) -> "Lock | None":
    """Check, and take the lock if it can be had."""
    session = store.session()
    grant = await session.take_lock(shared_name("lock", name), free_name("owner", owner), duration("ttl", ttl))
    return None if grant is None else Lock(store, grant)


class Lock:
    """One holding of a lock, until it expires, is released, or is not renewed in time (L1, L3).

    As a context manager it releases at the end. Expiry is silent: store `token` beside what the lock protects, and
    refuse a write whose token is lower than the one stored.
    """

    def __init__(self, store: "Store", grant: LockGrant) -> None:
        self._store = store
        self._grant = grant

    def __repr__(self) -> str:
        grant = self._grant
        return f"<Lock {grant.name!r} of {grant.owner!r}, token {grant.token}, until {grant.expires_at}>"

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._grant.name

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self._grant.owner

    @property
    def expires_at(self) -> int:
        """The unix second from which it is not held any more, as of the last successful `renew`."""
        return self._grant.expires_at

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holding of this name, across restarts (L5)."""
        return self._grant.token

    async def renew(self, ttl: int) -> bool:
        """Hold it for `ttl` seconds from now. False, and nothing happens, once this holding has ended (L3).

        Raises:
            DatabaseError: ttl is 0 or less (V5).
        """
        grant = await self._store.session().renew_lock(self._grant, duration("ttl", ttl))
        if grant is None:
            return False
        self._grant = grant
        return True

    async def release(self) -> bool:
        """Let go of it. False, and nothing happens, once this holding has ended (L3)."""
        return await self._store.session().release_lock(self._grant)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await see_through(self.release)  # cancelled, it would be left to lapse
        except AlkstoreError as failure:
            if error is None:
                raise
            error.add_note(f"and its lock {self.name!r} could not be released, so that it lapses: {failure}")
