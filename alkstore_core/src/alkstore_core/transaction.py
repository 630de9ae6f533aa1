"""The transaction: alkstore's operations and the caller's own writes, committed together (contract section 1)."""

import sys
import warnings
from collections.abc import Iterable
from typing import Any

from alkstore_core.engine import EngineTransaction
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.home import Home
from alkstore_core.mailboxes import Mailbox, mailbox_name, mark_read, send
from alkstore_core.names import free_name, shared_name
from alkstore_core.notify import notify
from alkstore_core.numbers import int64
from alkstore_core.options import DEFAULT_QUEUE_OPTIONS, OUTBOX_QUEUE_OPTIONS, QueueOptions, job_stamp
from alkstore_core.outbox import backing_queue
from alkstore_core.payload import encode_payload
from alkstore_core.streams import get_offset, publish, read_from_consumer, read_since, save_offset
from alkstore_core.values import Job, StreamEvent


class Transaction:
    """Everything done here is seen by others exactly when it commits, and leaves no trace when it does not (T3).

    Made by `Store.transaction`, `Store.begin_tx` and `Store.enlist`. Reads see the transaction's own writes (T6).
    After `commit` or `rollback` every call raises `ClosedError` (T8). What the database refuses of a write is said by
    that call, or by a later one, `commit` at the latest; then nothing of the transaction is committed.
    """

    def __init__(self, session: EngineTransaction, home: Home, contract: str, *, enlisted: bool = False) -> None:
        self._session: EngineTransaction | None = session
        self._home = home
        self._contract = contract
        self._enlisted = enlisted
        self._opened_at = "" if enlisted else _caller()

    def __repr__(self) -> str:
        kind = "enlisted" if self._enlisted else f"opened at {self._opened_at}"
        return f"<Transaction {'ended' if self._session is None else 'open'}, {kind}>"

    @property
    def connection(self) -> Any:
        """The driver's connection, for your own writes: aiosqlite's, asyncpg's, or the memory engine's table store.

        Raises:
            ClosedError: the transaction has ended.
        """
        return self._live().connection

    @property
    def is_open(self) -> bool:
        """Whether it is still undecided."""
        return self._session is not None

    async def enqueue(
        self,
        queue: str,
        payload: object,
        *,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
    ) -> int:
        """Add a job at the commit; its id. It is stamped with the queue defaults (Q2).

        Options and errors are those of `Queue.enqueue`, and `InvalidNameError` or `ReservedNameError` for the name.
        """
        session = self._live()
        name = shared_name("queue", queue)
        return await self._insert(
            session, name, DEFAULT_QUEUE_OPTIONS, payload, delay, run_at, expires, max_attempts, priority
        )

    async def outbox_enqueue(
        self,
        outbox: str,
        payload: object,
        *,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
    ) -> int:
        """Add a delivery to an outbox at the commit; its id (O1). Options and errors are those of `enqueue`."""
        session = self._live()
        name = backing_queue(outbox)
        return await self._insert(
            session, name, OUTBOX_QUEUE_OPTIONS, payload, delay, run_at, expires, max_attempts, priority
        )

    @staticmethod
    async def _insert(
        session: EngineTransaction,
        queue: str,
        options: QueueOptions,
        payload: object,
        delay: int | None,
        run_at: int | None,
        expires: int | None,
        max_attempts: int | None,
        priority: int,
    ) -> int:
        if (
            (delay is None and run_at is None and expires is None and max_attempts is None)
            and priority == 0
            and type(priority) is int
        ):
            stamp = _STAMPS[options]
        else:
            stamp = job_stamp(
                options, delay=delay, run_at=run_at, expires=expires, max_attempts=max_attempts, priority=priority
            )
        return (await session.insert_jobs(queue, (encode_payload(payload),), stamp))[0]

    async def publish(self, stream: str, payload: object, *, key: str | None = None) -> int:
        """Append an event at the commit; its offset (S1). Arguments and errors are those of `Stream.publish`."""
        return await publish(self._live(), shared_name("stream", stream), payload, key)

    async def send(self, mailbox: str | Mailbox, payload: object, type: str | None = None) -> str:
        """Add a message to a mailbox at the commit; its id (M15).

        Args:
            mailbox: its name, or a handle on it.
            payload: any JSON value.
            type: as for `Mailbox.send`.

        Raises:
            DatabaseError: the engine's contract has no mailboxes (M0).
            InvalidNameError, ReservedNameError, CodecError: as for `Mailbox.send`, and the name.
        """
        session = self._live()
        return await send(session, mailbox_name(mailbox, self._contract), payload, type)

    async def mark_read(self, mailbox: str | Mailbox, message_ids: Iterable[str]) -> int:
        """Suppress messages of a mailbox at the commit; how many were unread. As `Mailbox.mark_read` (M6, M15)."""
        session = self._live()
        return await mark_read(session, mailbox_name(mailbox, self._contract), message_ids)

    async def notify(self, channel: str, payload: object = None) -> None:
        """Wake the channel's listeners at the commit (N1). Errors are those of `Store.notify`."""
        await notify(self._live(), channel, payload)

    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        """Save a consumer's offset at the commit: with the work, or not at all (S5)."""
        await save_offset(self._live(), shared_name("stream", stream), consumer, offset)

    async def get_offset(self, stream: str, consumer: str) -> int:
        """The consumer's offset as this transaction sees it."""
        return await get_offset(self._live(), shared_name("stream", stream), consumer)

    async def get_job(self, queue: str, job_id: int) -> Job | None:
        """The job of this queue as this transaction sees it, live or dead; None if there is none (Q8)."""
        session = self._live()
        return await session.find_job(int64("job id", job_id), shared_name("queue", queue))

    async def read_since(self, stream: str, offset: int, limit: int = 100) -> list[StreamEvent]:
        """Events above `offset` as this transaction sees them (S3, T6)."""
        return await read_since(self._live(), shared_name("stream", stream), offset, limit)

    async def read_from_consumer(self, stream: str, consumer: str, limit: int = 100) -> list[StreamEvent]:
        """Events after the consumer's offset, both as this transaction sees them."""
        session = self._live()
        return await read_from_consumer(session, shared_name("stream", stream), free_name("consumer", consumer), limit)

    async def commit(self) -> None:
        """Make it durable and visible, and wake who waits. The transaction has ended, also when this raises (T9).

        Raises:
            CommitUnknownError: whether it was committed could not be found out (T14).
            DatabaseError: it was not committed; or the transaction is enlisted, and its owner commits.
            ClosedError: it had ended already.
        """
        await self._take("commit").commit()

    async def rollback(self) -> None:
        """Undo everything. The transaction has ended, also when this raises (T9).

        Raises:
            DatabaseError: the transaction is enlisted, and its owner rolls back.
            ClosedError: it had ended already.
        """
        await self._take("rollback").rollback()

    def _live(self) -> EngineTransaction:
        if self._session is None:
            raise ClosedError("this transaction has ended: begin another one")
        self._home.check()
        return self._session

    def _take(self, verb: str) -> EngineTransaction:
        session = self._live()
        if self._enlisted:
            raise DatabaseError(
                f"this transaction was enlisted, so {verb} belongs to who opened it: call {verb} on that connection"
            )
        self._session = None
        return session

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is None or self._enlisted or self._home.is_forked:
            return
        session.abandon()
        warnings.warn(
            f"a transaction opened at {self._opened_at} was dropped undecided and is rolled back: "
            "commit it, roll it back, or use 'async with'",
            ResourceWarning,
            stacklevel=1,
            source=self,
        )


_STAMPS = {options: job_stamp(options) for options in (DEFAULT_QUEUE_OPTIONS, OUTBOX_QUEUE_OPTIONS)}
"""The stamps of an enqueue without options, which is nearly every one."""


def _caller() -> str:
    """Where the transaction was asked for: the nearest frame outside alkstore and asyncio."""
    frame = sys._getframe(1)  # noqa: SLF001 - the public inspect.stack() reads source files
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_OWN = {"alkstore_core", "alkstore_mem", "alkstore_sqlite", "alkstore_pg", "contextlib", "asyncio"}
