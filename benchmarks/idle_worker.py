"""A worker in a process of its own that says, for each job, how many milliseconds ago it was made."""

import asyncio
import sys
import time

from alkstore_core import JobHandle, StopToken, Worker, open_store


async def main(url: str) -> None:
    """Work until killed."""

    async def handler(handle: JobHandle) -> None:
        late = (time.time() - handle.job.payload_as(float)) * 1000
        sys.stdout.write(f"{late}\n")
        sys.stdout.flush()

    async with open_store(url) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await Worker(store.queue("q"), handler, concurrency=8).run(StopToken())


asyncio.run(main(sys.argv[1]))
