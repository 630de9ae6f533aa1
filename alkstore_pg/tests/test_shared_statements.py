"""Who shares a statement, and who has one to himself."""

import asyncio

from alkstore_pg import PgStore


async def test_a_caller_by_himself_is_spared_the_task_of_those_who_share(dsn):
    """After a crowd has enqueued, one caller's next jobs run in his own task again."""
    async with PgStore.open(dsn) as store:
        queue = store.queue("work")
        await asyncio.gather(*(queue.enqueue(number) for number in range(64)))
        line = store.engine._dispatcher._lines["insert_jobs"]
        for number in range(3):
            await queue.enqueue(number)
        assert line.task is not None
        assert line.task.done()
