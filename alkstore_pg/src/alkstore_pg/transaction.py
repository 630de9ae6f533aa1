"""Transactions: begun here, or by the caller and enlisted."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
from alkstore_core.cancellation import unbroken
from alkstore_core.engine import Claim, EngineTransaction, LockGrant
from alkstore_core.errors import AlkstoreError, ClosedError, CommitUnknownError, DatabaseError

from alkstore_pg.connections import Connection, driver_connection, is_alive
from alkstore_pg.failures import DRIVER_ERRORS, database_error, is_loss
from alkstore_pg.mailboxes import MailboxPrimitives
from alkstore_pg.notify import NotifyPrimitives, channel_of, channels_of
from alkstore_pg.outcome import Outcome
from alkstore_pg.patience import Patience
from alkstore_pg.primitives import Orphaned
from alkstore_pg.queues import QueuePrimitives
from alkstore_pg.scheduler import SchedulerPrimitives
from alkstore_pg.sharing import Records, Row, Shared
from alkstore_pg.statements import statements
from alkstore_pg.streams import StreamPrimitives
from alkstore_pg.tasks import Tasks


class InTransaction(
    QueuePrimitives, StreamPrimitives, NotifyPrimitives, SchedulerPrimitives, MailboxPrimitives, EngineTransaction
):
    """What both kinds do: one statement at a time on one connection.

    A statement that has begun is seen through, although its caller is cancelled: cut short on the server, it would take
    the whole transaction with it (T13).
    """

    def __init__(self, schema: str, now: Callable[[], int | None]) -> None:
        self.schema = schema
        self._now = now
        self._turn = asyncio.Lock()
        self.xid: int | None = None

    async def share(
        self, shared: Shared, rows: Sequence[Row], *, topics: Iterable[str] = (), orphaned: Orphaned | None = None
    ) -> list[Any]:
        del orphaned
        channel = self._announced(topics) if shared.announces else None
        records = await self._fetch(*shared.of(rows, self._now(), channel), () if channel else topics)
        if self.xid is None and "xid" in records[0].keys():  # noqa: SIM118 - a record's "in" looks at values
            self.xid = records[0]["xid"]
        return shared.results(rows, records)

    def _announced(self, topics: Iterable[str]) -> str | None:
        """The channel on which the statement itself announces its one topic, or None where it need not."""
        del topics
        return None

    async def run(
        self,
        name: str,
        *arguments: Any,
        writes: bool = True,
        topics: Iterable[str] = (),
        orphaned: Orphaned | None = None,
    ) -> Records:
        del writes, orphaned
        return await self._fetch(name, arguments, topics)

    def now_given(self) -> int | None:
        return self._now()

    async def _fetch(self, name: str, arguments: Row, topics: Iterable[str]) -> Records:
        async with self._turn:
            return await self._fetch_now(name, arguments, topics)

    @abstractmethod
    async def _fetch_now(self, name: str, arguments: Row, topics: Iterable[str]) -> Records:
        """Run the statement `name`, to its end, and see to it that its topics are woken at the commit."""

    async def _fetch_on(self, connection: Any, name: str, arguments: Row) -> Records:
        try:
            records: Records = await connection.fetch(statements(self.schema)[name], *arguments)
        except DRIVER_ERRORS as error:
            raise database_error(error) from error
        return records

    # not on a transaction (T7)
    # ruff: noqa: ARG002 - refused whatever the arguments are

    async def claim_jobs(self, queue: str, worker_id: str, limit: int) -> list[Claim]:
        raise _not_on_a_transaction("a claim")

    async def take_lock(self, name: str, owner: str, ttl: int) -> LockGrant | None:
        raise _not_on_a_transaction("a lock")

    async def renew_lock(self, grant: LockGrant, ttl: int) -> LockGrant | None:
        raise _not_on_a_transaction("a lock")

    async def release_lock(self, grant: LockGrant) -> bool:
        raise _not_on_a_transaction("a lock")


def _not_on_a_transaction(what: str) -> DatabaseError:
    return DatabaseError(f"{what} never hangs on a transaction: use the store itself")


class PgTransaction(InTransaction):
    """A transaction on a connection of the store."""

    def __init__(self, connection: Connection, owner: "TransactionOwner", schema: str, patience: Patience) -> None:
        super().__init__(schema, owner.now)
        self._patience = patience
        self._connection: Connection | None = connection
        self._owner = owner
        self._life = owner.life()
        self._topics: set[str] = set()

    @property
    def connection(self) -> Connection:
        return self._held()

    def wake(self, topics: Iterable[str]) -> None:
        self._topics.update(topics)

    async def _fetch_now(self, name: str, arguments: Row, topics: Iterable[str]) -> Records:
        connection = self._held()
        with self._patience(connection):
            records = await unbroken(self._fetch_on(connection, name, arguments))
        self._topics.update(topics)
        return records

    async def commit(self) -> None:
        await unbroken(self._commit())

    async def rollback(self) -> None:
        await unbroken(self._rollback())

    def abandon(self) -> None:
        self._owner.abandoned(self)

    async def _commit(self) -> None:
        async with self._turn:
            connection = self._taken()
            ended = False
            try:
                await self._prepare(connection)
                ended = await self._committed(connection)
            finally:
                self._owner.ended(self, connection, in_order=ended)
        if self._topics:
            self._owner.woken(self._topics)

    async def _prepare(self, connection: Connection) -> None:
        """Know the transaction's number before its COMMIT is sent: afterwards may be too late (T14)."""
        if self.xid is not None:
            return
        try:
            with self._patience(connection):
                records = await connection.fetch(statements(self.schema)["own_xid"])
        except DRIVER_ERRORS as error:
            raise database_error(error, "this transaction was not committed") from error
        self.xid = records[0][0]

    async def _committed(self, connection: Connection) -> bool:
        """Whether it was committed and the connection is fine; False if the connection was lost on the way."""
        try:
            with self._patience(connection):
                status = await connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            if not is_loss(error):  # a deferred constraint, a serialization failure: the server has rolled back
                raise database_error(error, "this transaction was not committed") from error
            with suppress(*DRIVER_ERRORS):
                connection.terminate()
            await self._resolve(error)
            return False
        forget_transaction(connection)
        if status != "COMMIT":
            raise DatabaseError(
                "this transaction was not committed: an earlier statement of it failed, so the server rolled it back"
            )
        return True

    async def _resolve(self, error: BaseException) -> None:
        if self.xid is None:
            return  # it had written nothing, so that it makes no difference
        outcome = await self._owner.resolve(self.xid, self._life)
        if outcome is Outcome.COMMITTED:
            return
        if outcome is Outcome.ROLLED_BACK:
            raise DatabaseError(
                f"this transaction was not committed: the connection was lost before its COMMIT was done ({error}), "
                "so run it again"
            ) from error
        raise CommitUnknownError(
            f"the connection was lost around COMMIT ({error}), and the server cannot tell what became of "
            f"transaction {self.xid}: look for its rows before you run it again"
        ) from error

    async def _rollback(self) -> None:
        async with self._turn:
            connection = self._taken()
            ended = False
            try:
                if is_alive(connection):
                    with self._patience(connection):
                        await connection.execute("ROLLBACK")
                    forget_transaction(connection)
                    ended = True
            except DRIVER_ERRORS as error:
                if not is_loss(error):
                    raise database_error(error, "the rollback failed, and the connection was ended instead") from error
                # Without its connection it is rolled back all the same.
            finally:
                self._owner.ended(self, connection, in_order=ended)

    def _taken(self) -> Connection:
        connection, self._connection = self._held(), None
        return connection

    def _held(self) -> Connection:
        if self._connection is None:
            raise ClosedError("this transaction has ended: begin another one")
        return self._connection


def forget_transaction(connection: Connection) -> None:
    """Tell asyncpg that the transaction it began has ended.

    Its own ``commit()`` does not tell when the server answers COMMIT with a rollback, so the engine sends it itself.
    """
    with suppress(asyncpg.InterfaceError):  # lost right after, and it makes no difference
        driver_connection(connection)._top_xact = None  # noqa: SLF001 - see above; a test holds asyncpg to it


class TransactionOwner:
    """What a transaction needs from its engine, and the set of those that are open."""

    def __init__(
        self,
        tasks: Tasks,
        now: Callable[[], int | None],
        woken: Callable[[Iterable[str]], None],
        release: Callable[[Connection, bool], None],
        resolve: Callable[[int, str], Any],
        life: Callable[[], str],
    ) -> None:
        self.now = now
        self.woken = woken
        self.resolve = resolve
        self.life = life
        self._tasks = tasks
        self._release = release
        self._open: set[PgTransaction] = set()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._open)

    def begun(self, transaction: PgTransaction) -> PgTransaction:
        """Remember `transaction` until it has ended."""
        self._open.add(transaction)
        return transaction

    def ended(self, transaction: PgTransaction, connection: Connection, *, in_order: bool) -> None:
        """`transaction` has ended; its connection goes back, or away if it is not known to be fine (T9)."""
        self._open.discard(transaction)
        self._release(connection, in_order)

    def abandoned(self, transaction: PgTransaction) -> None:
        """Nobody can decide `transaction` any more: roll it back. From any thread, never raises (T5)."""
        with suppress(RuntimeError):  # the loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(self._roll_back_soon, transaction)

    def _roll_back_soon(self, transaction: PgTransaction) -> None:
        if transaction in self._open:
            self._tasks.start(self._roll_back(transaction))

    async def _roll_back(self, transaction: PgTransaction) -> None:
        with suppress(AlkstoreError):
            await transaction.rollback()

    def roll_back_all(self) -> None:
        """The store closes: roll back whatever is open (T12)."""
        for transaction in self._open:
            self._tasks.start(self._roll_back(transaction))


class Enlisted(InTransaction):
    """A transaction that the caller opened on a connection of the caller's (T10).

    Its commit is not seen here, so what it wakes is announced inside it. The server drops the announcements of a
    savepoint that is rolled back, and keeps one of each.
    """

    def __init__(
        self,
        handle: object,
        connect: Callable[[], Any],
        schema: str,
        now: Callable[[], int | None],
    ) -> None:
        super().__init__(schema, now)
        self._handle = handle
        self._connect = connect

    @property
    def connection(self) -> Any:
        return self._handle

    def _announced(self, topics: Iterable[str]) -> str | None:
        (topic,) = topics
        return channel_of(self.schema, topic)

    def wake(self, topics: Iterable[str]) -> None:
        raise NotImplementedError  # only claims and schedules wake so, and they are never enlisted

    async def announce(self, topic: str) -> None:
        for channel in channels_of(self.schema, (topic,)):
            await self._fetch("notify", (channel, ""), ())

    async def _fetch_now(self, name: str, arguments: Row, topics: Iterable[str]) -> Records:
        try:
            connection = await self._connect()
        except DRIVER_ERRORS as error:
            raise database_error(error) from error
        return await unbroken(self._fetch_and_announce(connection, name, arguments, topics))

    async def _fetch_and_announce(self, connection: Any, name: str, arguments: Row, topics: Iterable[str]) -> Records:
        records = await self._fetch_on(connection, name, arguments)
        for channel in channels_of(self.schema, topics):
            await self._fetch_on(connection, "notify", (channel, ""))
        return records

    async def commit(self) -> None:
        raise DatabaseError("an enlisted transaction is committed by who opened it")

    async def rollback(self) -> None:
        raise DatabaseError("an enlisted transaction is rolled back by who opened it")

    def abandon(self) -> None:
        """Nothing to do: it is the caller's."""
