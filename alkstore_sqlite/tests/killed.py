"""What the processes of the kill test do; a module of its own, so that a fork server can have it loaded."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from typing import Any

from alkstore_core import JobHandle, StopToken, Worker
from alkstore_sqlite import SqliteStore


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run it until it is killed, or nobody listens to it any more."""
    logging.disable()
    try:
        asyncio.run(body)
    except* OSError:  # the test has ended, and with it the pipe
        os._exit(0)


def produce(path: str, name: int, report: Connection) -> None:
    """Commit business rows with their job and event, half of them by group commit, and say each that is durable."""
    run(_produce(path, name, report))


async def _produce(path: str, name: int, report: Connection) -> None:
    async with SqliteStore.open(path, busy_timeout=30) as store:
        queue = store.queue("q", visibility_timeout_s=1, max_attempts=1000)

        async def by_itself(number: int) -> None:
            await queue.enqueue(number)
            report.send(("stored", number))

        number = name * 1_000_000
        while True:
            async with store.transaction() as tx:
                await tx.connection.execute("INSERT INTO business (number) VALUES (?)", (number,))
                await tx.enqueue("q", number, max_attempts=1000)
                await tx.publish("s", number)
            report.send(("stored", number))
            async with asyncio.TaskGroup() as group:
                for extra in range(1, 9):
                    group.create_task(by_itself(number + extra))
            number += 10


def consume(path: str, name: int, report: Connection) -> None:
    """Work jobs off, and say each before it is acknowledged."""
    run(_consume(path, name, report))


async def _consume(path: str, name: int, report: Connection) -> None:
    async def handle(handle: JobHandle) -> None:
        report.send(("done", handle.job.payload_as(int)))

    async with SqliteStore.open(path, busy_timeout=30) as store:
        await Worker(store.queue("q"), handle, concurrency=8, worker_id=f"{name}-{os.getpid()}").run(StopToken())


def write_until(path: str, name: int, last: int, report: Connection) -> None:
    """Enqueue one by one until the id `last` is given out, to whomever; then say how many were this process's."""
    asyncio.run(_write_until(path, name, last, report))


async def _write_until(path: str, name: int, last: int, report: Connection) -> None:
    async with SqliteStore.open(path, busy_timeout=60) as store:
        queue = store.queue("q")
        report.send("ready")
        report.recv()
        count = 0
        while await queue.enqueue(name) < last:
            count += 1
        report.send(count)
