"""The child's side of a leg with several processes: runs one body, and stops wherever the parent wants it to.

Bodies are coroutine functions in `legs.child_bodies`; they get a `Child`. Parent and child speak JSON lines: the child
says on stdout what it reached, the parent says on stdin when it may go on. When stdin ends, the parent is gone, and
the child ends too.
"""

import asyncio
import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from alkstore_core import Opening, Store, Transaction, open_store
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness


class Child:
    """What a body is given.

    Attributes:
        clock: this process's clock, set to the parent's time at the start; `children.RunningChild.advance` moves it.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self.clock = ManualClock(task["now"])
        self._task = task
        self._harness: Harness | None = None
        self._released: dict[str, asyncio.Event] = {}

    def open(self) -> Opening[Store]:
        """A store on the leg's data, with this child's clock."""
        return open_store(self._task["url"], clock=self.clock, **self._task["options"])

    async def write(self, tx: Transaction, value: str) -> None:
        """`Harness.write`: insert `value` into the business table through ``tx.connection``."""
        if self._harness is None:
            harness: type[Harness] = _loaded(self._task["harness"])
            self._harness = harness(Path(self._task["directory"]))
        await self._harness.write(tx, value)

    def reached(self, name: str, value: object = None) -> None:
        """Tell the parent that `name` was reached, with any JSON value, and go on."""
        _say({"reached": name, "value": value})

    async def barrier(self, name: str, value: object = None) -> None:
        """Tell the parent that `name` was reached, and block until it releases this barrier: perhaps for ever."""
        released = self._released.setdefault(name, asyncio.Event())
        self.reached(name, value)
        await released.wait()

    async def obey(self) -> None:
        """Follow the parent's lines until there are no more."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            async for line in reader:
                order = json.loads(line)
                if "release" in order:
                    self._released.setdefault(order["release"], asyncio.Event()).set()
                if "advance" in order:
                    self.clock.advance(order["advance"])
                    _say({"advanced": self.clock.now()})
            os._exit(1)
        finally:
            transport.close()


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _loaded(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


class _Patch:
    """Makes an engine wrong for the rest of this process, see `mutation`."""

    def setattr(self, target: object, name: str, value: object) -> None:
        getattr(target, name)
        setattr(target, name, value)


def _set_up(path_and_function: str) -> None:
    path, _, name = path_and_function.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, name)(_Patch())


async def _run(task: dict[str, Any]) -> None:
    child = Child(task)
    obeying = asyncio.create_task(child.obey())
    try:
        body: Callable[..., Awaitable[Any]] = _loaded(task["body"])
        value = await body(child, *task["arguments"])
        _say({"result": value})
    finally:
        obeying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await obeying


def main() -> None:
    """Run the body that the one argument describes."""
    faulthandler.enable()  # on SIGABRT, a leg that failed asks where this child stands
    task = json.loads(sys.argv[1])
    if task["setup"]:
        _set_up(task["setup"])
    asyncio.run(_run(task))


if __name__ == "__main__":
    main()
