"""How the contract suite drives the memory engine. Only the suite imports this module."""

import platform
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from alkstore_contract_suite.harness import (
    DeliveryRow,
    Harness,
    JobCounts,
    LockRow,
    MailboxRows,
    NativeTransaction,
    Witness,
)
from alkstore_core import JobState, Opening, Store, Transaction

from alkstore_mem.connection import Connection
from alkstore_mem.database import Database
from alkstore_mem.engine import MemEngine
from alkstore_mem.store import MemStore


class MemWitness(Witness):
    """Reads the tables themselves; no other process could."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def jobs(self, queue: str) -> JobCounts:
        states = [row.job.state for row in self._database.jobs.rows.values() if row.job.queue == queue]
        return JobCounts(*(states.count(state) for state in (JobState.PENDING, JobState.PROCESSING, JobState.DEAD)))

    async def events(self, stream: str) -> list[int]:
        return [event.offset for event in self._database.events.streams.get(stream, ())]

    async def offset(self, stream: str, consumer: str) -> int | None:
        return self._database.offsets.rows.get((stream, consumer))

    async def lock(self, name: str) -> LockRow | None:
        row = self._database.locks.rows.get(name)
        return None if row is None else LockRow(row.owner, row.token, row.expires_at)

    async def mailbox(self, name: str) -> MailboxRows:
        messages = self._database.messages.rows
        mail = sorted((row for row in messages.values() if row.message.mailbox == name), key=lambda row: row.number)
        rows = [row for row in self._database.deliveries.rows.values() if row.mailbox == name]
        return MailboxRows(
            tuple(row.message.id for row in mail if not row.read),
            tuple(
                DeliveryRow(
                    row.id, row.message_ids, row.holder.generation, row.created_at, row.acknowledged_at, row.fenced
                )
                for row in sorted(rows, key=lambda row: row.id)
            ),
            tuple(
                row.id
                for row in rows
                if row.acknowledged_at is None
                and not row.fenced
                and not all(messages[id].read for id in row.message_ids)
            ),
        )

    async def business(self) -> list[str]:
        return [str(value) for _, (value,) in sorted(self._database.rows.rows.items(), key=lambda row: str(row[0]))]


class MemNative(NativeTransaction):
    """A transaction of a store of the caller's own: ``store.enlist`` takes its connection."""

    def __init__(self, harness: "MemHarness", tx: Transaction) -> None:
        self._harness = harness
        self._tx = tx
        self._savepoint = AsyncExitStack()
        self._connection: Connection = tx.connection

    @property
    def handle(self) -> Connection:
        return self._connection

    async def write(self, value: str) -> None:
        await self._harness.write(self._tx, value)

    async def commit(self) -> None:
        await self._tx.commit()

    async def rollback(self) -> None:
        await self._tx.rollback()

    async def savepoint(self) -> None:
        await self._savepoint.enter_async_context(self._connection.savepoint())

    async def rollback_to_savepoint(self) -> None:
        with suppress(_Undo):
            await self._savepoint.__aexit__(_Undo, _Undo(), None)


class _Undo(Exception):  # noqa: N818 - no error: it ends a savepoint
    pass


class MemHarness(Harness):
    """Stores of one name, which no other leg knows."""

    contract: ClassVar[str] = "1.1"
    durable: ClassVar[bool] = False
    multi_process: ClassVar[bool] = False
    server: ClassVar[bool] = False
    natives: ClassVar[Sequence[str]] = ("connection",)
    unsupported: ClassVar[Mapping[str, str]] = {
        "child": "the data lives in one process",
        "durable": "the data ends with the last store on it",
        "schema": "nothing is stored that a later version could find",
        "spoil": "nothing refuses a commit in memory",
        "insert": "there is no SQL to go past the engine with",
        "outage": "memory is never away",
        "sever": "there is no connection to cut",
    }

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._name = uuid4().hex
        self._numbers = count()

    @classmethod
    async def backend(cls) -> str:
        return f"Python {platform.python_version()} dicts"

    async def start(self) -> None:
        self._keeper = await self.open()  # so that the data outlives the stores of the leg, for the witness
        assert isinstance(self._keeper.engine, MemEngine)
        self._database = self._keeper.engine.database

    async def stop(self) -> None:
        await self._keeper.close()

    def open(self, *, patience_s: float | None = None) -> Opening[Store]:
        options: dict[str, Any] = {} if patience_s is None else {"busy_timeout": patience_s}
        return MemStore.open(self._name, clock=self.clock, **options)

    async def write(self, tx: Transaction, value: str) -> None:
        await tx.connection.put(f"{next(self._numbers):09}", value)

    async def read(self, tx: Transaction) -> list[str]:
        return [str(value) for _, value in sorted((await tx.connection.items()).items())]

    def native(self, kind: str, *, begun: bool = True) -> AbstractAsyncContextManager[NativeTransaction]:
        assert kind in self.natives
        return self._native(begun=begun)

    @asynccontextmanager
    async def _native(self, *, begun: bool) -> AsyncIterator[NativeTransaction]:
        async with self.open() as callers_store, callers_store.begin_tx() as tx:
            native = MemNative(self, tx)
            if not begun:
                await tx.rollback()
            yield native

    @property
    def witness(self) -> Witness:
        return MemWitness(self._database)
