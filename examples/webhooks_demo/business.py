"""The example's own table, written through ``tx.connection``: the one part that differs from engine to engine."""

from typing import Protocol

from alkstore_core import Transaction

from webhooks_demo.intake import Webhook


class BusinessTable(Protocol):
    """Where received webhooks are kept, run by run, so that a database can be used again."""

    async def create(self, tx: Transaction) -> None:
        """Make the table if it is not there."""
        ...

    async def insert(self, tx: Transaction, run: str, webhook: Webhook) -> None:
        """Keep one webhook, when the transaction commits."""
        ...

    async def count(self, tx: Transaction, run: str) -> int:
        """How many webhooks of the run are kept."""
        ...


class _SqliteTable:
    async def create(self, tx: Transaction) -> None:
        await tx.connection.execute(
            "CREATE TABLE IF NOT EXISTS webhooks"
            " (run TEXT, line INTEGER, id TEXT, event TEXT, body TEXT, PRIMARY KEY (run, line))"
        )

    async def insert(self, tx: Transaction, run: str, webhook: Webhook) -> None:
        row = (run, webhook.line, webhook.id, webhook.event, webhook.body)
        await tx.connection.execute("INSERT INTO webhooks VALUES (?, ?, ?, ?, ?)", row)

    async def count(self, tx: Transaction, run: str) -> int:
        async with tx.connection.execute("SELECT count(*) FROM webhooks WHERE run = ?", (run,)) as cursor:
            (count,) = await cursor.fetchone()
        return int(count)


class _PostgresTable:
    async def create(self, tx: Transaction) -> None:
        await tx.connection.execute(
            "CREATE TABLE IF NOT EXISTS webhooks"
            " (run text, line integer, id text, event text, body text, PRIMARY KEY (run, line))"
        )

    async def insert(self, tx: Transaction, run: str, webhook: Webhook) -> None:
        row = (run, webhook.line, webhook.id, webhook.event, webhook.body)
        await tx.connection.execute("INSERT INTO webhooks VALUES ($1, $2, $3, $4, $5)", *row)

    async def count(self, tx: Transaction, run: str) -> int:
        return int(await tx.connection.fetchval("SELECT count(*) FROM webhooks WHERE run = $1", run))


class _MemoryTable:
    async def create(self, tx: Transaction) -> None:
        pass  # a memory store's rows need no table

    async def insert(self, tx: Transaction, run: str, webhook: Webhook) -> None:
        await tx.connection.put((run, webhook.line), (webhook.id, webhook.event, webhook.body))

    async def count(self, tx: Transaction, run: str) -> int:
        return sum(key[0] == run for key in await tx.connection.items())


def business_table(url: str) -> BusinessTable:
    """The table in the dialect of the store that `url` names."""
    scheme = url.partition(":")[0]
    if scheme == "mem":
        return _MemoryTable()
    return _SqliteTable() if scheme == "sqlite" else _PostgresTable()
