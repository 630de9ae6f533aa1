"""The store: what a user opens, and the way to everything else (contract sections 0 and 1)."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from alkstore_core.cancellation import outcome, own_task
from alkstore_core.engine import Engine, Session
from alkstore_core.errors import AlkstoreError, ClosedError
from alkstore_core.home import Home
from alkstore_core.locks import Lock, try_lock
from alkstore_core.mailboxes import Mailbox, mailbox_handle
from alkstore_core.names import shared_name
from alkstore_core.notify import WakeReceiver, notify, open_receiver
from alkstore_core.opening import Opening
from alkstore_core.options import DEFAULT_QUEUE_OPTIONS, QueueOptions
from alkstore_core.outbox import Outbox
from alkstore_core.pages import Pages
from alkstore_core.queues import Queue, default_draw, queue_handle
from alkstore_core.scheduler import run_schedules, schedule, unschedule
from alkstore_core.stopping import StopToken
from alkstore_core.streams import Stream
from alkstore_core.transaction import Transaction
from alkstore_core.values import Schedule


class Store:
    """Notify, streams, queues, mailboxes, locks and schedules in one database, commit-atomic with your own writes.

    Open one with an engine's ``open``, or with `open_store`. It belongs to the event loop and the process that opened
    it (T15); any number of tasks may use it at once. Every method that does something raises `ClosedError` once the
    store is closed (T12), and `DatabaseError` for what the engine's driver reports (E1).
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        """The engine below; for core's own parts and for engine authors."""
        self.draw: Callable[[int, int], int] = default_draw
        """The random source of retry delays: gives a whole number between its two arguments, both included."""
        self.pages = Pages()
        """What the followers of its streams read; for core's own parts."""
        self._session: Session | None = None
        self.home = Home()
        """The event loop and the process that it belongs to (T15)."""
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "open" if self._session is not None else "closed" if self._closing is not None else "not open"
        return f"<{type(self).__name__} {self.engine!r} {state}>"

    # open and close

    @classmethod
    def opening(cls, engine: Engine) -> "Opening[Self]":
        """What an engine's ``open`` returns: a store on `engine`, to await or to enter."""

        async def opened() -> Self:
            store = cls(engine)
            await engine.open()
            store._session = engine.autocommit()
            return store

        return Opening(opened, Store.close)

    async def close(self) -> None:
        """End the store: receivers end, open transactions are rolled back, nothing of it keeps running (T12).

        Operations under way finish or fail with `ClosedError`. Idempotent; a second call waits for the first.
        Cancelled, it is still seen through, and the cancellation then goes on.
        """
        if self._closing is None and self._session is None:
            return
        self.home.check()
        if self._closing is None:
            self._session = None
            self._closing = own_task(self.engine.close())
        await outcome(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is None or self.home.is_forked:
            return
        self.engine.forget()
        warnings.warn(f"{self!r} was never closed: close it, or use 'async with'", ResourceWarning, stacklevel=1)

    def session(self) -> Session:
        """The auto-commit session, for core's own parts.

        Raises:
            ClosedError: the store is closed.
            DatabaseError: this is another event loop, or a forked child of the process that opened it (T15).
        """
        session = self._session
        if session is None:
            raise ClosedError("this store is closed: open another one")
        self.home.check()
        return session

    # mechanisms

    async def notify(self, channel: str, payload: object = None) -> None:
        """Wake the listeners of `channel`: fire and forget, nothing is stored or repeated (N1).

        Args:
            channel: a shared name.
            payload: any JSON value, checked and otherwise for the engine's own tools: a wake carries none (N3).

        Raises:
            InvalidNameError, ReservedNameError: the channel's name (V1).
            CodecError: the payload has no JSON form (P2).
            PayloadTooLargeError: on Postgres, over 7,999 bytes encoded (P4).
        """
        await notify(self.session(), channel, payload)

    def listen(self, channel: str) -> Opening[WakeReceiver]:
        """A receiver of the channel's wakes, from now on (N2): to await, or to enter.

        Raises:
            InvalidNameError, ReservedNameError: at once.
        """
        name = shared_name("channel", channel)

        async def opened() -> WakeReceiver:
            self.session()
            return await open_receiver(self, name)

        return Opening(opened, WakeReceiver.close)

    def stream(self, name: str) -> Stream:
        """A handle on the stream `name` (T1).

        Raises:
            InvalidNameError, ReservedNameError: at once.
        """
        return Stream(self, name)

    def queue(
        self,
        name: str,
        *,
        visibility_timeout_s: int = DEFAULT_QUEUE_OPTIONS.visibility_timeout_s,
        max_attempts: int = DEFAULT_QUEUE_OPTIONS.max_attempts,
        backoff_base_s: int = DEFAULT_QUEUE_OPTIONS.backoff_base_s,
        dead_letter_retention_s: int | None = DEFAULT_QUEUE_OPTIONS.dead_letter_retention_s,
    ) -> Queue:
        """A handle on the queue `name`, which stamps these options on what it enqueues (T1, Q2).

        Raises:
            InvalidNameError, ReservedNameError: the name (V1).
            TypeError, ValueError: an option, see `QueueOptions` (V6).
        """
        options = QueueOptions(visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s)
        return queue_handle(self, name, options)

    def outbox(self, name: str) -> Outbox:
        """A handle on the outbox `name` (T1, O1).

        Raises:
            InvalidNameError, ReservedNameError: at once.
        """
        return Outbox(self, name)

    def mailbox(self, name: str) -> Mailbox:
        """A handle on the mailbox `name` (T1).

        Raises:
            InvalidNameError, ReservedNameError: at once.
            DatabaseError: the engine implements a contract before 1.1, which has no mailboxes; at once (M0).
        """
        return mailbox_handle(self, name)

    async def try_lock(self, name: str, owner: str, ttl: int) -> Lock | None:
        """Hold the lock `name` for `ttl` seconds, or None if somebody else holds it (L1, L4).

        The same owner asking again gets the holding as it stands (L2).

        Raises:
            InvalidNameError, ReservedNameError: the name or the owner (V1, V2).
            TypeError, ValueError: ttl is not an int64.
            DatabaseError: ttl is 0 or less (V5).
        """
        return await try_lock(self, name, owner, ttl)

    async def schedule(
        self,
        name: str,
        spec: str,
        queue: str,
        payload: object,
        *,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: int | None = None,
    ) -> Schedule:
        """Register or replace a schedule: every `spec`, `payload` goes into `queue` (H1, H2).

        Nothing fires unless somebody runs `run_schedules` on this database (H3).

        Args:
            name: a shared name; registering it again replaces it.
            spec: ``@every <n><unit>`` with a unit of s, m, h or d.
            queue: a shared name.
            payload: any JSON value.
            priority: stamped on the jobs, as for an enqueue.
            max_attempts: stamped on the jobs; without it the queue defaults'.
            expires: seconds from each fire until its job expires.

        Raises:
            InvalidNameError, ReservedNameError, InvalidSpecError, CodecError, TypeError, ValueError: as named.
        """
        return await schedule(
            self.session(), name, spec, queue, payload, priority=priority, max_attempts=max_attempts, expires=expires
        )

    async def unschedule(self, name: str) -> bool:
        """Drop a schedule; whether there was one."""
        return await unschedule(self.session(), name)

    async def run_schedules(self, stop: StopToken) -> None:
        """Fire what is due until `stop` is cancelled; one runner per database leads, the others stand by (H3).

        While the database cannot be reached it tries again, with growing pauses (H5).

        Raises:
            LeadershipLostError: this runner led and lost the lock; it fired nothing after that.
            ClosedError: the store was closed.
        """
        await run_schedules(self, stop)

    # transactions

    def begin_tx(self) -> Opening[Transaction]:
        """An explicit transaction: to await and decide yourself, or to enter (T5).

        Entered, it is rolled back at the end of the block if it is still undecided then.
        """

        async def opened() -> Transaction:
            self.session()
            return Transaction(await self.engine.begin(), self.home, self.engine.contract)

        return Opening(opened, _roll_back_undecided)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction around a block: commits on a clean exit, rolls back on any exception, cancellation too (T4)."""
        tx = await self.begin_tx()
        try:
            yield tx
        except BaseException as error:
            try:
                await _roll_back_undecided(tx)
            except AlkstoreError as failure:  # its connection or its store has gone, and the transaction with it (T9)
                error.add_note(f"and its transaction could not be rolled back in order: {failure}")
            raise
        if tx.is_open:
            await tx.commit()

    def enlist(self, connection: object) -> Transaction:
        """Join a transaction that you opened on your own connection or SQLAlchemy session (T10).

        You commit or roll back as ever; what was done on the returned `Transaction` goes with it, savepoints included,
        and the wakes come after your commit.

        Raises:
            DatabaseError: this engine cannot join such a thing, or no transaction is open on it; before any SQL.
        """
        self.session()
        return Transaction(self.engine.enlist(connection), self.home, self.engine.contract, enlisted=True)


async def _roll_back_undecided(tx: Transaction) -> None:
    if tx.is_open:
        await tx.rollback()
