"""Where deliveries go: a real HTTP server on the loopback, which writes down every one that arrives."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from webhooks_demo.verdict import Arrival, fingerprint

_LONGEST_ANSWER_S = 0.02
"""A receiver takes its time: up to so long between writing a delivery down and answering."""


class Sink:
    """The receiver's side of the story: what arrived, from whom, when. Made by `open_sink`."""

    def __init__(self, arrived: Callable[[int], None]) -> None:
        self.arrivals: list[Arrival] = []
        self.url = ""
        self._arrived = arrived
        self._changed = asyncio.Event()

    async def receive(self, request: web.Request) -> web.Response:
        """Write one delivery down, then answer."""
        body = await request.text()
        self.arrivals.append(
            Arrival(
                line=int(request.headers["X-Delivery"]),
                worker=request.headers["X-Worker"],
                slot=int(request.headers["X-Slot"]),
                at=asyncio.get_running_loop().time(),
                fingerprint=fingerprint(body),
            )
        )
        self._arrived(len(self.arrivals))
        self._changed.set()
        self._changed = asyncio.Event()
        await asyncio.sleep(random.uniform(0, _LONGEST_ANSWER_S))
        return web.Response(status=204)

    async def wait_for(self, count: int) -> None:
        """Return once `count` deliveries have arrived."""
        while len(self.arrivals) < count:
            await self._changed.wait()


@asynccontextmanager
async def open_sink(arrived: Callable[[int], None]) -> AsyncIterator[Sink]:
    """A sink that listens, at its `url`; `arrived` is called with the number of arrivals after each."""
    sink = Sink(arrived)
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/", sink.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        sink.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield sink
    finally:
        await runner.cleanup()
