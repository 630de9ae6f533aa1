"""``faulty_worker.py FAULT …``, as ``webhooks_worker.py …``: with a fault that the example must notice."""

import asyncio
import sys

from alkstore_core import JobHandle, Worker

import webhooks_worker
from webhooks_demo import delivery

ONE_IN = 7


class LosingWorker(Worker):
    """Acknowledges one delivery in seven unsent."""

    def __init__(self, queue, handler, **options):
        async def lose(handle):
            await (handle.ack() if handle.job.id % ONE_IN == 0 else handler(handle))

        super().__init__(queue, lose, **options)


async def forgetful_ack(handle):
    """Delivered, and not acknowledged, the first time: so it is delivered again although nobody died."""
    return await (handle.heartbeat(0) if handle.job.attempts == 1 and handle.job.id % ONE_IN == 0 else ack(handle))


if __name__ == "__main__":
    fault = sys.argv[1]
    if fault == "loses":
        delivery.Worker = LosingWorker
    elif fault == "forgets":
        ack, JobHandle.ack = JobHandle.ack, forgetful_ack
    else:
        sys.exit(3)
    asyncio.run(webhooks_worker.work(*sys.argv[2:]))
