"""Who shares a statement, and who has one to himself."""

import asyncio

from alkstore_pg import PgStore


async def test_a_caller_by_himself_is_spared_the_task_of_those_who_share(dsn):
    """Once the others of a crowd have gone, the last one's jobs run in his own task again."""
    async with PgStore.open(dsn) as store:
        queue = store.queue("work")
        served_by_the_task: list[bool] = []

        async def stays() -> None:
            for number in range(20):
                await queue.enqueue(number)
                served_by_the_task.append(store.engine._dispatcher._lines["insert_jobs"].running)

        await asyncio.gather(stays(), *(queue.enqueue(number) for number in range(63)))
        assert served_by_the_task[-10:] == [False] * 10
