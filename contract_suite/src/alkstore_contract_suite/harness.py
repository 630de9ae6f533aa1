"""What an engine author writes: how the suite drives one engine.

Register the class in the engine's ``pyproject.toml``, under the name that ``alkstore-contract run`` is given::

    [project.entry-points."alkstore.harnesses"]
    sqlite = "alkstore_sqlite.harness:SqliteHarness"

Only the suite loads that module, so it may import this one without making the suite a dependency of the engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from alkstore_core import Opening, Store, Transaction
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.needs import NEEDS, TRAITS

ENTRY_POINT_GROUP = "alkstore.harnesses"


class HarnessError(Exception):
    """The harness contradicts itself, or a leg uses a hook that it did not name in its needs."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The rows of one queue, by state."""

    pending: int = 0
    processing: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class LockRow:
    """The row of one lock, lapsed or not."""

    owner: str
    token: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """The row of one delivery of a mailbox; times as they are stored."""

    id: str
    message_ids: tuple[str, ...]
    generation: int
    created_at: object
    acknowledged_at: object
    fenced: bool


@dataclass(frozen=True, slots=True)
class MailboxRows:
    """What is stored of one mailbox.

    Attributes:
        unread: the ids of its unread messages, in order of sending.
        deliveries: its deliveries, by id.
        outstanding: the ids that the view of outstanding deliveries shows.
    """

    unread: tuple[str, ...]
    deliveries: tuple[DeliveryRow, ...]
    outstanding: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """How a child process opens this leg's data: the arguments of `alkstore_core.open_store`; JSON values only."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Witness(ABC):
    """What is committed, read without any of the engine's code: with the bare driver, on a connection of its own.

    Names are given as they are stored; an unknown one has no rows.
    """

    @abstractmethod
    async def jobs(self, queue: str) -> JobCounts:
        """The rows of a queue."""

    @abstractmethod
    async def events(self, stream: str) -> list[int]:
        """The offsets of a stream's events, ascending."""

    @abstractmethod
    async def offset(self, stream: str, consumer: str) -> int | None:
        """A consumer's saved offset; None without one."""

    @abstractmethod
    async def lock(self, name: str) -> LockRow | None:
        """A lock's row; None where nobody holds it and none is kept."""

    async def mailbox(self, name: str) -> MailboxRows:
        """The rows of a mailbox; asked of engines of contract 1.1 and later."""
        raise HarnessError(f"{type(self).__name__} does not implement 'mailbox', which contract 1.1 brought ({name!r})")

    @abstractmethod
    async def business(self) -> list[str]:
        """The values in the business table, in the order written."""


class NativeTransaction(ABC):
    """A transaction that the caller opened with the driver alone, on a connection of the caller's own (T10)."""

    @property
    @abstractmethod
    def handle(self) -> Any:
        """What the caller hands to ``store.enlist``."""

    @abstractmethod
    async def write(self, value: str) -> None:
        """Insert `value` into the business table."""

    @abstractmethod
    async def commit(self) -> None:
        """Commit, as the caller does."""

    @abstractmethod
    async def rollback(self) -> None:
        """Roll back, as the caller does."""

    @abstractmethod
    async def savepoint(self) -> None:
        """Set a savepoint; at most one is open at a time."""

    @abstractmethod
    async def rollback_to_savepoint(self) -> None:
        """Undo everything since the savepoint, and end it."""


class Harness(ABC):
    """One engine with one leg's data: the suite makes a new one for each leg, on the event loop of that leg.

    `start` prepares an empty place that no other leg sees, with a business table in it; `open` opens a store there, as
    often as asked; `stop` removes it. Stores get `clock`, so that no leg ever waits for time to pass.
    """

    contract: ClassVar[str]
    """The contract version (major.minor) that the engine implements: ``"1.0"`` (X1)."""
    durable: ClassVar[bool]
    """Whether data outlives its stores."""
    multi_process: ClassVar[bool]
    """Whether several processes can open the same data."""
    server: ClassVar[bool]
    """Whether stores reach a server over connections that can be cut."""
    unsupported: ClassVar[Mapping[str, str]] = {}
    """The hooks that are missing, by their name in `needs.NEEDS`, each with the reason."""
    natives: ClassVar[Sequence[str]]
    """The kinds of connection that `store.enlist` takes: ``("aiosqlite", "sqlalchemy-session")``, for `native`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """An empty directory of this leg's, removed after it."""
        self.clock = ManualClock()
        """The clock to open stores with."""

    # the service, once per run

    @classmethod
    @contextmanager
    def service(cls) -> Iterator[None]:
        """Entered once before the first leg and left after the last: start a server here, if the engine needs one.

        Raise if there is none: the engine is then reported as not conformant, with that error.
        """
        yield

    @classmethod
    @abstractmethod
    async def backend(cls) -> str:
        """What stores run on, for the report: ``"SQLite 3.45.1"``. Asked within `service`."""

    # one leg

    async def start(self) -> None:  # noqa: B027 - an engine without anything to prepare has nothing to write
        """Prepare the empty place and its business table."""

    async def stop(self) -> None:  # noqa: B027 - likewise
        """Remove the place; stores are closed by then."""

    @abstractmethod
    def open(self, *, patience_s: float | None = None) -> Opening[Store]:
        """A store on this leg's data with this harness's clock: the first, or one more beside it.

        Args:
            patience_s: how long its operations wait for the database and for other writers before they fail, in
                seconds of real time; without it the engine's default.
        """

    async def advance(self, seconds: int) -> None:
        """Let time pass for every store of this process, and wake what waits for it."""
        self.clock.advance(seconds)

    async def restart(self) -> None:  # noqa: B027 - likewise
        """Restart what stores run on. They are all closed; an engine without a server has nothing to do."""

    # the caller's own writes

    @abstractmethod
    async def write(self, tx: Transaction, value: str) -> None:
        """Insert `value` into the business table through ``tx.connection``."""

    @abstractmethod
    async def read(self, tx: Transaction) -> list[str]:
        """The business table as ``tx.connection`` sees it, in the order written."""

    @abstractmethod
    def native(self, kind: str, *, begun: bool = True) -> AbstractAsyncContextManager[NativeTransaction]:
        """A caller's transaction of one of `natives`; left undecided, it is rolled back and its connection closed.

        Args:
            kind: one of `natives`.
            begun: whether a transaction is open on it; False gives a connection that must be refused.
        """

    @property
    @abstractmethod
    def witness(self) -> Witness:
        """The out-of-band reader of this leg's data."""

    # hooks that an engine may lack

    def address(self) -> Address:
        """How a child process opens the same data (need ``child``)."""
        self._missing("child")

    async def spoil(self, tx: Transaction) -> None:  # noqa: ARG002 - for those that implement it
        """Do something on ``tx.connection`` that makes the driver refuse its COMMIT (need ``spoil``)."""
        self._missing("spoil")

    async def move_schema_version(self, by: int) -> None:  # noqa: ARG002 - likewise
        """Add `by` to the stored schema's version and to nothing else; all stores are closed (need ``schema``)."""
        self._missing("schema")

    async def insert_delivery(self, mailbox: str, message_ids: Sequence[str], *, acknowledged_at: int | None) -> None:  # noqa: ARG002 - likewise
        """Insert a delivery past the engine, with plain SQL, unfenced; or raise what the driver raises (``insert``)."""
        self._missing("insert")

    def outage(self) -> AbstractAsyncContextManager[None]:
        """A time in which no write succeeds: each fails once its store's patience has ended (need ``outage``)."""
        self._missing("outage")

    async def sever(self) -> None:
        """Cut every connection that stores of this leg hold now, without telling them (need ``sever``)."""
        self._missing("sever")

    def _missing(self, need: str) -> NoReturn:
        reason = self.unsupported.get(need)
        raise HarnessError(
            f"{type(self).__name__} does not implement the hook {need!r}, and does not say why in 'unsupported'"
            if reason is None
            else f"this leg uses the hook {need!r} and does not name it in its needs"
        )


def check_declarations(harness: type[Harness]) -> None:
    """Check what a harness class says about itself.

    Raises:
        HarnessError: a declaration is missing, or names a hook that does not exist.
    """
    for name in ("contract", *TRAITS, "natives"):
        if not hasattr(harness, name):
            raise HarnessError(f"{harness.__name__} does not declare {name!r}: see alkstore_contract_suite.harness")
    for need, reason in harness.unsupported.items():
        if need not in NEEDS:
            raise HarnessError(f"{harness.__name__}.unsupported names {need!r}: there is {', '.join(NEEDS)}")
        if not reason.strip():
            raise HarnessError(f"{harness.__name__}.unsupported gives no reason for {need!r}")
