"""The caller's own rows: a key/value table that commits and rolls back with alkstore's writes (T3, T10)."""

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from alkstore_mem.session import MemSession

if TYPE_CHECKING:
    from alkstore_mem.transaction import MemTransaction


class Rows:
    """Rows of the caller's, by any hashable key, as committed. Made by ``MemStore.rows``.

    Values are kept as they are and not copied: put immutable ones, or ones that you leave alone.
    """

    def __init__(self, session: MemSession) -> None:
        self._session = session

    async def get(self, key: Hashable, default: Any = None) -> Any:
        """The value under `key`, or `default`."""
        with await self._session.reading() as changes:
            row = changes.get(changes.database.rows, key)
            return default if row is None else row[0]

    async def items(self) -> dict[Hashable, Any]:
        """All rows, in a dict of your own."""
        with await self._session.reading() as changes:
            return {key: row[0] for key, row in changes.scan(changes.database.rows).items()}


class Connection(Rows):
    """What ``tx.connection`` is here: the rows as the transaction sees them, its own changes included (T6).

    Every method raises `ClosedError` once the transaction has ended. Other stores on the same data join the
    transaction with ``enlist(connection)``.
    """

    def __init__(self, transaction: "MemTransaction") -> None:
        super().__init__(transaction)
        self.transaction = transaction
        """The transaction that this connection belongs to; for the engine."""

    async def put(self, key: Hashable, value: Any) -> None:
        """Insert or replace a row at the commit."""
        with await self._session.writing() as changes:
            changes.put(changes.database.rows, key, (value,))

    async def delete(self, key: Hashable) -> bool:
        """Delete a row at the commit; whether there was one."""
        with await self._session.writing() as changes:
            known = changes.get(changes.database.rows, key)
            changes.put(changes.database.rows, key, None)
            return known is not None

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A part of the transaction that an exception undoes alone, alkstore's writes and wakes in it too.

        The exception goes on. Savepoints nest; as in SQL, ending one ends those opened since.
        """
        with await self._session.writing() as changes:
            depth = len(changes.layers) - 1
            changes.layers.append({})
        try:
            yield
        except BaseException:
            with changes.database.exclusive():
                changes.discard(depth)
            raise
        with changes.database.exclusive():
            changes.merge(depth)
