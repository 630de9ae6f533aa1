"""The parent's side of a leg with several processes: start children, wait for their barriers, kill them."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from alkstore_contract_suite.child import Child
from alkstore_contract_suite.harness import Harness

P = ParamSpec("P")


class ChildError(Exception):
    """A child ended, or said something else than what the leg waits for; with what it wrote to stderr."""


class RunningChild:
    """One child process. Made by `Children.start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stderr: Path) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process
        self._stderr = stderr

    def __repr__(self) -> str:
        state = "running" if self._process.returncode is None else f"ended with {self._process.returncode}"
        return f"<RunningChild {self._name} {self.pid} {state}>"

    async def reached(self, name: str) -> Any:
        """Wait until the child reaches `name`, the next thing it says; the value it gives there."""
        line = await self._next()
        if line.get("reached") != name:
            raise ChildError(f"{self!r} said {line} where the leg waits for {name!r}")
        return line["value"]

    async def release(self, name: str) -> None:
        """Let the child go on from the barrier `name`, now or when it comes there."""
        await self._order({"release": name})

    async def advance(self, seconds: int) -> None:
        """Move the child's clock, and wait until it has moved."""
        await self._order({"advance": seconds})
        line = await self._next()
        if "advanced" not in line:
            raise ChildError(f"{self!r} said {line} where the leg moves its clock")

    async def result(self) -> Any:
        """Wait for the child's end; what its body returned.

        Raises:
            ChildError: it failed, or ended with another code than 0.
        """
        line = await self._next()
        if "result" not in line:
            raise ChildError(f"{self!r} said {line} where the leg waits for its result")
        if await self._process.wait() != 0:
            raise self._ended()
        return line["result"]

    async def kill(self) -> list[Any]:
        """End it with SIGKILL, and wait until it is gone. Idempotent.

        Returns:
            The values of what it had reached and nobody had asked for.
        """
        await self._end(signal.SIGKILL)
        stdout = self._process.stdout
        assert stdout is not None
        whole = (await stdout.read()).split(b"\n")[:-1]  # it may have died in the middle of a line
        return [line["value"] for line in map(json.loads, whole) if "reached" in line]

    @property
    def stderr(self) -> str:
        """What it wrote to stderr until now."""
        return self._stderr.read_text("utf-8", "replace")

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def abort(self) -> None:
        """End it with SIGABRT, on which it writes its stacks to stderr."""
        await self._end(signal.SIGABRT)

    async def _end(self, how: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):  # it has ended by itself, and that was not noticed yet
                self._process.send_signal(how)
        await self._process.wait()

    async def _order(self, order: dict[str, object]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(order).encode() + b"\n")
        await stdin.drain()

    async def _next(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            await self._process.wait()
            raise self._ended()
        said: dict[str, Any] = json.loads(line)
        return said

    def _ended(self) -> ChildError:
        return ChildError(f"{self!r}; its stderr:\n{self.stderr}")


class Children:
    """Starts child processes that open the leg's data. The fixture ``children`` kills those that are left."""

    def __init__(self, harness: Harness, setup: str | None) -> None:
        self._harness = harness
        self._setup = setup
        self._running: list[RunningChild] = []

    async def start(
        self, body: Callable[Concatenate[Child, P], Awaitable[Any]], *args: P.args, **_: P.kwargs
    ) -> RunningChild:
        """Start a child that runs `body`, a coroutine function of `legs.child_bodies`, and go on at once.

        Args:
            body: runs in the child with a `Child` and `args`.
            args: positional, JSON values.
        """
        address = self._harness.address()
        task = {
            "url": address.url,
            "options": dict(address.options),
            "now": self._harness.clock.now(),
            "harness": f"{type(self._harness).__module__}:{type(self._harness).__qualname__}",
            "directory": str(self._harness.directory),
            "body": f"{body.__module__}:{body.__name__}",
            "arguments": args,
            "setup": self._setup,
        }
        stderr = self._harness.directory / f"child-{len(self._running)}.stderr"
        with stderr.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "always::ResourceWarning",
                "-m",
                "alkstore_contract_suite.child",
                json.dumps(task),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        child = RunningChild(body.__name__, process, stderr)
        self._running.append(child)
        return child

    async def kill_all(self) -> None:
        """Kill those that still run."""
        for child in self._running:
            await child.kill()

    async def abort_all(self) -> str:
        """End those that still run with SIGABRT; where each of them stood, thread by thread."""
        running = [child for child in self._running if child.is_running]
        for child in running:
            await child.abort()
        return "\n".join(f"{child!r}:\n{child.stderr}" for child in running)
