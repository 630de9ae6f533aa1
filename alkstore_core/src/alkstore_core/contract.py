"""The contract's version, and what an engine of an older one does not have yet (X1, M0)."""

from alkstore_core.errors import DatabaseError

CONTRACT_VERSION = "1.1"
"""The contract that this core speaks: its own version's major and minor (X1)."""


def require(mechanism: str, since: str, implemented: str) -> None:
    """Check that an engine of contract `implemented` has a mechanism that arrived in contract `since`.

    Raises:
        DatabaseError: it has not; the message names both versions.
    """
    if _numbers(implemented) < _numbers(since):
        raise DatabaseError(
            f"{mechanism} arrived in contract {since}, and this store's engine implements contract {implemented}: "
            "upgrade the engine; everything else of the store works as before"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
