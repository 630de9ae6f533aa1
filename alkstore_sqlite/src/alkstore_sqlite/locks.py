"""Locks on SQLite: the operations behind `Session`'s lock primitives."""

from alkstore_core.engine import LockGrant
from alkstore_core.numbers import saturating_add

from alkstore_sqlite.operations import Operation, Row, Scope, count, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("locks")


def take_lock(scope: Scope, name: str, owner: str, ttl: int) -> Operation[tuple[LockGrant | None, bool]]:
    """The holding, if `owner` has it now, and whether it is a new one (L1, L2, L5)."""
    now = scope.now()
    found: list[Row] = yield rows(SQL.find_lock, name)
    if found:
        holder, token, expires_at = found[0]
        if now < expires_at:
            return (LockGrant(name, owner, token, expires_at) if holder == owner else None), False
    found = yield rows(SQL.next_token)
    grant = LockGrant(name, owner, found[0][0], saturating_add(now, ttl))
    yield count(SQL.hold_lock, name, owner, grant.token, grant.expires_at)
    return grant, True


def renew_lock(scope: Scope, grant: LockGrant, ttl: int) -> Operation[LockGrant | None]:
    """The same holding with a new deadline, if it still lasts (L3)."""
    now = scope.now()
    until = saturating_add(now, ttl)
    changed: int = yield count(SQL.renew_lock, until, grant.name, grant.owner, grant.token, now)
    return LockGrant(grant.name, grant.owner, grant.token, until) if changed else None


def release_lock(scope: Scope, grant: LockGrant) -> Operation[bool]:
    """End this holding, if it still lasts (L3)."""
    changed: int = yield count(SQL.release_lock, grant.name, grant.owner, grant.token, scope.now())
    return changed > 0
