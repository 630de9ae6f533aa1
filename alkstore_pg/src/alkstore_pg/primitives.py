"""What the mechanisms are written on: running a named statement, on a transaction or by itself."""

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from alkstore_core.engine import Session

from alkstore_pg.sharing import Records, Row, Shared

Orphaned = Callable[[Any], Coroutine[Any, Any, object]]


class Primitives(Session):
    """How a session of this engine reaches the server. The mechanisms add what it can do there."""

    schema: str

    @abstractmethod
    async def share(
        self, shared: Shared, rows: Sequence[Row], *, topics: Iterable[str] = (), orphaned: Orphaned | None = None
    ) -> list[Any]:
        """One result for each of `rows`; at the commit the topics are woken.

        Args:
            shared: the statement.
            rows: its arguments, row by row.
            topics: what is woken.
            orphaned: what to do with the results if they came about and the caller was cancelled.
        """

    @abstractmethod
    async def run(
        self,
        name: str,
        *arguments: Any,
        writes: bool = True,
        topics: Iterable[str] = (),
        orphaned: Orphaned | None = None,
    ) -> Records:
        """The records that the statement `name` returns; at the commit the topics are woken.

        Args:
            name: the statement's.
            *arguments: its arguments.
            writes: whether it may change anything.
            topics: what is woken.
            orphaned: what to do with the records if they came about and the caller was cancelled.
        """

    @abstractmethod
    def wake(self, topics: Iterable[str]) -> None:
        """Wake `topics`: what was done for them has been committed, or is going to be with this transaction."""

    @abstractmethod
    def now_given(self) -> int | None:
        """The time for statements: None for the server's, or what the store's clock shows."""

    async def announce(self, topic: str) -> None:
        """Wake `topic`, of which only the statement's answer told that it must be."""
        self.wake((topic,))
