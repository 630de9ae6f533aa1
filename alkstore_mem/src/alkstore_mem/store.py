"""The store that users open."""

from typing import Any, Self

from alkstore_core.clock import Clock, SystemClock
from alkstore_core.errors import DatabaseError
from alkstore_core.names import free_name
from alkstore_core.numbers import patience
from alkstore_core.opening import Opening
from alkstore_core.store import Store

from alkstore_mem.connection import Rows
from alkstore_mem.engine import MemEngine
from alkstore_mem.session import MemSession


class MemStore(Store):
    """alkstore in this process's memory: the whole contract, and nothing on disk."""

    @classmethod
    def open(cls, name: str | None = None, *, clock: Clock | None = None, busy_timeout: float = 5.0) -> Opening[Self]:
        """A store on the data called `name`: to await, or to enter.

        Args:
            name: stores of this process that are open with the same name share their data, on any event loop; it is
                gone when the last of them closes. Without a name the store's data is its own.
            clock: what tells the time, instead of the system; for tests.
            busy_timeout: how long a write waits for another task's transaction to end, in seconds, 0 or more (T11).

        Raises:
            TypeError, ValueError: `busy_timeout`.
            InvalidNameError: the name is empty or blank.
        """
        if name is not None:
            free_name("database", name)
        return cls.opening(
            MemEngine(name, clock or SystemClock(), patience("busy_timeout", busy_timeout, or_none=True))
        )

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Opening[Self]:
        """The store of ``mem:`` (data of its own) or ``mem:name``, for ``open_store``. Options are those of `open`.

        Raises:
            DatabaseError: it has slashes, as if it named a file or a host.
            InvalidNameError: the name is blank.
        """
        name = url.partition(":")[2]
        if name.startswith("/"):
            raise DatabaseError(f"{url!r} names no memory store: write 'mem:' or 'mem:name'")
        return cls.open(name or None, **options)

    @property
    def rows(self) -> Rows:
        """The rows that transactions put by ``tx.connection``, as committed.

        Raises:
            ClosedError: the store is closed.
        """
        session = self.session()
        assert isinstance(session, MemSession)
        return Rows(session)
