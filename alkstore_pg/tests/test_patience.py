"""How long the server may take: what is late for want of an event loop is not the server's."""

import asyncio
import time

from alkstore_pg import PgStore


async def test_who_blocks_the_event_loop_loses_no_connection(dsn):
    """The server answered in time, and nobody could look: the answer counts, and the listener goes on listening."""
    async with PgStore.open(dsn, operation_timeout=0.2) as store, await store.listen("c"):
        queue = store.queue("work")
        await queue.enqueue(0)
        enqueueing = asyncio.create_task(queue.enqueue(1))
        await asyncio.sleep(0)  # now it is at the server
        time.sleep(0.5)  # noqa: ASYNC251 - the fault itself
        await enqueueing
        listener = store.engine.listener
        asking = asyncio.create_task(listener._ask(listener._connection, listener._patience_of_signs, "sign_of_life"))
        await asyncio.sleep(0)
        time.sleep(1.5)  # noqa: ASYNC251 - likewise
        await asking
        await store.listen("d")
        assert listener.reconnections == 0
