"""The state machine: every step is done on all sides, and all that is to be seen is compared after it."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alkstore_core import Job, JobState
from draws import START
from drivers import Driver
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from side import Call, DisagreementError, Raised, Show, Side, Snapshot, outcome


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be done: a method of the machine."""

    name: str
    weight: int
    when: Callable[[Any], bool]
    drawn: st.SearchStrategy["Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """An operation with its arguments."""

    name: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def operation(
    weight: int, when: Callable[[Any], bool], **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a method of the machine something that it does.

    Rules of Hypothesis' own would do, but most of these are switched off in most runs, for variety; with so many, what
    needs several of them to be seen would hardly ever happen.

    Args:
        weight: how often, next to the others.
        when: whether it can be done now.
        arguments: what is drawn for it.
    """

    def mark(method: Callable[..., None]) -> Callable[..., None]:
        name = method.__name__
        drawn = st.fixed_dictionaries(arguments).map(lambda drawn: Step(name, drawn))
        method.operation = Operation(name, weight, when, drawn)  # type: ignore[attr-defined]
        return method

    return mark


class Actor:
    """A task that does one thing after another: the owner of transactions, since it matters whose they are (T11)."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._run())

    async def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Have `work` done by that task; what it returns."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait((work, done))
        del work
        return await done

    async def end(self) -> None:
        """End the task."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            work, done = await self._inbox.get()
            try:
                done.set_result(await work())
            except Exception as error:
                done.set_exception(error)
            del work, done


def _nothing(side: Side, result: Any) -> object:  # noqa: ARG001 - for results that are the same everywhere
    return result


class Machine(RuleBasedStateMachine):
    """What the operations of each mechanism stand on. They are added by subclasses."""

    operations: Sequence[Operation] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        marked = [getattr(getattr(cls, name), "operation", None) for name in sorted(dir(cls))]
        cls.operations = sorted((one for one in marked if one is not None), key=lambda one: -one.weight)

    @rule(step=st.runner().flatmap(lambda machine: machine.possible()))
    def do(self, step: Step) -> None:
        """Do what was drawn."""
        getattr(self, step.name)(**step.arguments)

    def possible(self) -> st.SearchStrategy[Step]:
        """What can be done now."""
        weighted = [one for one in self.operations if one.when(self) for _ in range(one.weight)]
        return st.sampled_from(weighted).flatmap(lambda one: one.drawn)

    def __init__(self, drivers: Sequence[type[Driver]]) -> None:
        super().__init__()
        self.now = self.latest = START
        self.tx_on: int | None = None
        """On which store the open transaction was begun; None without one."""
        self.before: Snapshot | None = None
        """What was to be seen when the transaction began, which nobody else may see change (T3)."""
        self.notified: list[bool] = []
        """Whether the open transaction has notified: one entry for itself, and one for each savepoint."""
        self.waiting: tuple[list[asyncio.Task[Any]], Show] | None = None
        """A write that waits for the open transaction to end."""
        self._steps = 0
        self._loop = asyncio.new_event_loop()
        self._directory = tempfile.TemporaryDirectory(prefix="alkstore-model-")
        self.sides = [Side(driver, Path(self._directory.name) / driver.name) for driver in drivers]
        self.model = self.sides[0]
        self.run(self._start())

    async def _start(self) -> None:
        self.owner = Actor()
        for side in self.sides:
            await side.start()
        self.set_time(START)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` to its end, in a task of its own."""
        return self._loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.run(self._stop())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._directory.cleanup()

    async def _stop(self) -> None:
        try:
            await self.end_quietly()
            snapshots = [await side.snapshot(0) for side in self.sides]
            witnessed = [await side.witnessed(seen) for side, seen in zip(self.sides, snapshots, strict=True)]
            self.compare("the caller's own rows", witnessed)
        finally:
            for side in self.sides:
                await side.stop()
            await self.owner.end()

    async def end_quietly(self) -> None:
        """Roll back what is open, and let go what waits for it."""
        if self.waiting is not None:
            for task in self.waiting[0]:
                task.cancel()
            await asyncio.wait(self.waiting[0])
        for side in self.sides:
            if side.native is not None:
                await self.owner.do(side.native.rollback)
                await self.owner.do(side.native_block.aclose)
            elif side.tx is not None and side.tx.is_open:
                await self.owner.do(side.tx.rollback)
            side.tx = side.native = None
            side.unmade(0)

    # steps

    def step(self, what: str, call: Call, show: Show = _nothing, *, owned: bool = False, same: bool = True) -> Any:
        """Do one thing on every side and compare everything; what it gave.

        Args:
            what: names it in a report.
            call: does it on one side.
            show: puts what that returned into the terms that all sides share.
            owned: whether the task does it that owns the transactions, instead of one of its own.
            same: whether the outcomes are compared here; else a caller that knows better does.
        """
        return self.run(self._step(what, call, show, owned=owned, same=same))

    async def _step(self, what: str, call: Call, show: Show, *, owned: bool, same: bool) -> Any:
        shown = []
        for side in self.sides:
            # A closure that outlived the call would hold on to what a later step drops.
            result = await self.owner.do(lambda side=side: outcome(call(side))) if owned else await outcome(call(side))
            shown.append(result if isinstance(result, Raised) else show(side, result))
        if same:
            self.compare(what, shown)
        await self.check(what)
        return shown[0]

    def expect(self, what: str, given: object, expected: object) -> None:
        """What all sides gave is also what the contract says."""
        if repr(given) != repr(expected):
            raise DisagreementError(f"{what}: every engine gave {given!r}, and the contract says {expected!r}")

    def compare(self, what: str, shown: Sequence[object]) -> None:
        """Raise `DisagreementError` unless all sides show the same."""
        if any(repr(one) != repr(shown[0]) for one in shown):
            lines = [f"  {side.driver.name}: {one!r}" for side, one in zip(self.sides, shown, strict=True)]
            raise DisagreementError("\n".join((f"{what}:", *lines)))

    async def check(self, what: str) -> None:
        """Compare everything that can be observed on all sides."""
        self._steps += 1
        seen = [await side.snapshot(self._steps % 2) for side in self.sides]
        for name in Snapshot.__slots__:
            self.compare(f"{name} after {what}", [getattr(one, name) for one in seen])
        if self.before is not None and not self.waiting:
            for name in ("jobs", "events", "offsets", "mail"):
                self.expect(f"{name} seen by others, after {what}", getattr(seen[0], name), getattr(self.before, name))
        if self.model.tx is not None:
            inside = [await self.owner.do(side.inside) for side in self.sides]
            self.compare(f"inside the transaction, after {what}", inside)

    # what operations ask

    @property
    def one_writer(self) -> bool:
        """Whether all engines let everybody wait while a transaction is open."""
        return all(side.driver.one_writer for side in self.sides)

    def move_to(self, now: int) -> None:
        """Let every side's clock show `now`; earlier than before only where that tells no engine from another."""
        if now < self.now and any(side.driver.settles_time for side in self.sides):
            self.latest = max(self.latest, self.now)
            if any(_passed_by(job, self.latest) for job in self.run(self.model.snapshot(0)).jobs.values()):
                return
        self.set_time(now)
        self.run(self.check(f"the clock shows {now}"))

    def set_time(self, now: int) -> None:
        """Set every side's clock."""
        self.now = now
        for side in self.sides:
            side.harness.clock.set(now)


def _passed_by(job: Job | None, moment: int) -> bool:
    """Whether a claim at that moment would find the job expired, or its claim lapsed."""
    if job is None or job.state is JobState.DEAD:
        return False
    return any(at is not None and at <= moment for at in (job.expires_at, job.claim_expires_at))


def is_deep() -> bool:
    """Whether a long and random run was asked for: ``ALKSTORE_MODEL=deep``."""
    return os.environ.get("ALKSTORE_MODEL") == "deep"


def anytime(machine: Machine) -> bool:  # noqa: ARG001 - one of several that are asked
    """Whatever is open."""
    return True


def free(machine: Machine) -> bool:
    """No transaction is open, so that writes go through."""
    return machine.tx_on is None


def in_tx(machine: Machine) -> bool:
    """A transaction is open, and its handle at hand."""
    return machine.model.tx is not None
