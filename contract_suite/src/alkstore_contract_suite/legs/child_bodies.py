"""What child processes of legs run. Each body says what it reached; see `child.Child`."""

from alkstore_contract_suite.child import Child


async def enqueues(child: Child, queue: str) -> None:
    """Enqueue one job, and block once it is acknowledged."""
    async with child.open() as store:
        job_id = await store.queue(queue).enqueue({"from": "child"})
        await child.barrier("acknowledged", job_id)
