"""A TCP proxy in front of a server: it can cut its links, freeze them, refuse new ones, or cut at one message."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pg_waiting import until


class Proxy:
    """Forwards until told otherwise."""

    def __init__(self, target: str, port: int) -> None:
        self._target = (target, port)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refusing = False
        self.on_request: Callable[[bytes], str | None] = lambda _: None
        """Asked about each piece a client sends: None to forward it, "before" to cut instead, "after" to forward it and
        cut at once, "reply" to forward it and cut when the server has answered, keeping the answer back."""

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            upstream = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, reader, writer, *upstream)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def __len__(self) -> int:
        return len(self._links)

    def cut(self) -> None:
        """End every link with a reset."""
        for link in tuple(self._links):
            link.abort()

    def freeze(self) -> None:
        """Forward nothing more, and close nothing: what a silently broken network does. New links freeze too."""
        self._flowing.clear()

    def thaw(self) -> None:
        """The network works again; the links that were frozen stay lost, as a network's state tables are."""
        for link in tuple(self._links):
            link.lost = True
        self._flowing.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.cut()
        await until(lambda: not self._links)
        await self._server.wait_closed()


class _Link:
    def __init__(self, proxy: Proxy, *streams: Any) -> None:
        self._proxy = proxy
        self._client, self._to_client, self._upstream, self._to_upstream = streams
        self.lost = False
        self._cut_at_reply = False
        self._tasks: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        tasks = self._tasks = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._to_client.transport.abort()
        self._to_upstream.transport.abort()

    async def _up(self) -> None:
        while data := await self._client.read(65536):
            await self._proxy._flowing.wait()
            if self.lost:
                await asyncio.get_running_loop().create_future()
            order = self._proxy.on_request(data)
            if order == "before":
                return
            self._cut_at_reply = order == "reply"
            self._to_upstream.write(data)
            await self._to_upstream.drain()
            if order == "after":
                # The server reads what was sent, and then the end of the stream: it finishes what it was told.
                self._to_upstream.write_eof()
                self._to_client.transport.abort()
                await self._upstream.read()
                return

    async def _down(self) -> None:
        while data := await self._upstream.read(65536):
            await self._proxy._flowing.wait()
            if self.lost:
                await asyncio.get_running_loop().create_future()
            if self._cut_at_reply:
                return
            self._to_client.write(data)
            await self._to_client.drain()


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of the server of `dsn`, and the DSN through it."""
    parts = urlsplit(dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    port = await proxy.start()
    netloc = f"{parts.username}@127.0.0.1:{port}"
    try:
        yield proxy, urlunsplit(parts._replace(netloc=netloc))
    finally:
        await proxy.close()
