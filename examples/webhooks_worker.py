"""One worker process of ``webhooks.py``, which starts it: it delivers until its input ends."""

import asyncio
import signal
import sys

import anyio
from alkstore_core import StopToken, open_store

from webhooks_demo.delivery import deliver
from webhooks_demo.hurried import clock_options


async def work(url: str, outbox: str, sink: str, hurried_since: str, name: str) -> None:
    """Say that it is ready, and deliver from the outbox to the sink until the input ends."""
    stop = StopToken()
    async with open_store(url, **clock_options(float(hurried_since))) as store, anyio.create_task_group() as group:
        group.start_soon(until_input_ends, stop)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await deliver(store, outbox, sink, name, stop)


async def until_input_ends(stop: StopToken) -> None:
    """Stop when whoever started this process closes the pipe, or dies and so closes it."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    stop.cancel()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent decides
    asyncio.run(work(*sys.argv[1:]))
