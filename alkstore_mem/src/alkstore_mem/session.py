"""How a primitive reads and writes: the same code, on its own commit or inside a transaction."""

from abc import abstractmethod
from contextlib import AbstractContextManager

from alkstore_core.engine import Session

from alkstore_mem.database import Changes


class MemSession(Session):
    """A session over `Changes`. A primitive is ``with await self.writing() as changes:`` and a block without await.

    All waiting is over when the block begins, so a cancelled caller has either not begun, or is done (T13).
    """

    @abstractmethod
    def now(self) -> int:
        """The current unix second by this session's store."""

    @abstractmethod
    async def reading(self) -> AbstractContextManager[Changes]:
        """A block that sees what this session sees, and waits for no writer."""

    @abstractmethod
    async def writing(self) -> AbstractContextManager[Changes]:
        """A block whose changes are committed, or staged in the transaction, at its end; none if it raises."""
