"""Transactions, begun or enlisted, and who waits for them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import draws
from alkstore_core import Holder, Transaction
from alkstore_core.outbox import backing_queue
from draws import CHANNEL, OUTBOX
from hypothesis import strategies as st
from machine import Machine, free, in_tx, operation
from side import DisagreementError, Raised, Side, outcome

WRITES: dict[str, Callable[[Side, int], Awaitable[object]]] = {
    "enqueue": lambda side, on: side.stores[on].queue("a").enqueue(1),
    "claim_one": lambda side, on: side.stores[on].queue("a").claim_one("w"),
    "sweep_expired": lambda side, on: side.stores[on].queue("a").sweep_expired(),
    "cancel": lambda side, on: side.stores[on].queue("a").cancel(0),
    "publish": lambda side, on: side.stores[on].stream("s").publish(1),
    "save_offset": lambda side, on: side.stores[on].stream("s").save_offset("c", 0),
    "trim_to": lambda side, on: side.stores[on].stream("s").trim_to(-1),
    "try_lock": lambda side, on: side.stores[on].try_lock("l", "w", 10),
    "schedule": lambda side, on: side.stores[on].schedule("x", "@every 1h", "a", 1),
    "notify": lambda side, on: side.stores[on].notify(CHANNEL),
    "send": lambda side, on: side.stores[on].mailbox("m").send(1),
    "check": lambda side, on: side.stores[on].mailbox("m").check(Holder("run", "7", 1)),
    "mark_read": lambda side, on: side.stores[on].mailbox("m").mark_read(["x"]),
    "begin_tx": lambda side, on: side.stores[on].begin_tx(),
}
"""Writes outside of the transaction, for the task that holds it."""


class TransactionOperations(Machine):
    """Begin, write, read, set savepoints, end in every way."""

    def _begun(self, on: int) -> None:
        self.before = self.run(self.model.snapshot(on))
        self.tx_on = on
        self.notified = [False]

    @operation(6, free, on=draws.stores)
    def begin(self, on):
        self._begun(on)

        async def call(side: Side) -> None:
            side.tx = await side.stores[on].begin_tx()

        self.step("begin_tx", call, owned=True)

    @operation(4, free, on=draws.stores)
    def enlist(self, on):
        """Join a transaction that the caller began with the driver alone."""
        self._begun(on)

        async def call(side: Side) -> None:
            side.native_block = AsyncExitStack()
            native = side.harness.native(side.harness.natives[0])
            side.native = await side.native_block.enter_async_context(native)
            side.tx = side.stores[on].enlist(side.native.handle)

        self.step("enlist", call, owned=True)

    # in it

    @operation(6, in_tx, queue=draws.queues, payload=draws.payloads, options=draws.enqueue_options)
    def tx_enqueue(self, queue, payload, options):
        self.step(
            "tx.enqueue",
            lambda side: _tx(side).enqueue(queue, payload, **options),
            lambda side, job_id: side.made_job(job_id, queue, in_tx=True),
            owned=True,
        )

    @operation(2, in_tx, payload=draws.payloads, options=draws.enqueue_options)
    def tx_outbox_enqueue(self, payload, options):
        self.step(
            "tx.outbox_enqueue",
            lambda side: _tx(side).outbox_enqueue(OUTBOX, payload, **options),
            lambda side, job_id: side.made_job(job_id, backing_queue(OUTBOX), in_tx=True),
            owned=True,
        )

    @operation(4, in_tx, stream=draws.streams, payload=draws.payloads, key=draws.keys)
    def tx_publish(self, stream, payload, key):
        self.step(
            "tx.publish",
            lambda side: _tx(side).publish(stream, payload, key=key),
            lambda side, offset: side.made_event(stream, offset, in_tx=True),
            owned=True,
        )

    @operation(4, in_tx, stream=draws.streams, consumer=draws.consumers, offset=draws.places)
    def tx_save_offset(self, stream, consumer, offset):
        self.step(
            "tx.save_offset",
            lambda side: _tx(side).save_offset(stream, consumer, side.offset(stream, offset)),
            owned=True,
        )

    @operation(1, in_tx, payload=draws.payloads)
    def tx_notify(self, payload):
        self.notified[-1] = True
        self.step("tx.notify", lambda side: _tx(side).notify(CHANNEL, payload), owned=True)

    @operation(2, lambda machine: in_tx(machine) and machine.model.native is None, value=st.sampled_from(("1", "2")))
    def tx_write(self, value):
        self.step("the caller's own write", lambda side: side.harness.write(_tx(side), value), owned=True)

    @operation(
        2, lambda machine: in_tx(machine) and machine.model.native is not None, value=st.sampled_from(("1", "2"))
    )
    def native_write(self, value):
        async def call(side: Side) -> None:
            assert side.native is not None
            await side.native.write(value)

        self.step("the caller's own write", call, owned=True)

    @operation(1, in_tx, queue=draws.queues, which=draws.newest | draws.unknown_ids)
    def tx_get_job(self, queue, which):
        self.step(
            "tx.get_job",
            lambda side: _tx(side).get_job(queue, side.job_id(which)),
            lambda side, job: side.job(job),
            owned=True,
        )

    @operation(1, in_tx, stream=draws.streams, after=draws.places, limit=draws.limits)
    def tx_read_since(self, stream, after, limit):
        self.step(
            "tx.read_since",
            lambda side: _tx(side).read_since(stream, side.offset(stream, after), limit),
            lambda side, events: side.seen_events(events),
            owned=True,
        )

    @operation(1, in_tx, stream=draws.streams, consumer=draws.consumers, limit=draws.limits)
    def tx_read_from_consumer(self, stream, consumer, limit):
        self.step(
            "tx.read_from_consumer",
            lambda side: _tx(side).read_from_consumer(stream, consumer, limit),
            lambda side, events: side.seen_events(events),
            owned=True,
        )

    # savepoints

    @operation(7, lambda machine: in_tx(machine) and len(machine.model.savepoints) < (1 if machine.model.native else 3))
    def savepoint(self):
        self.notified.append(False)

        async def call(side: Side) -> None:
            token: object = None
            if side.native is None:
                token = await side.driver.savepoint(_tx(side), len(side.savepoints))
            else:
                await side.native.savepoint()
            side.savepoints.append((token, side.mark()))

        self.step("savepoint", call, owned=True)

    @operation(6, lambda machine: in_tx(machine) and machine.model.savepoints)
    def undo_savepoint(self):
        self.notified.pop()

        async def call(side: Side) -> None:
            token, mark = side.savepoints.pop()
            if side.native is None:
                await side.driver.undo(_tx(side), token)
            else:
                await side.native.rollback_to_savepoint()
            side.unmade(mark)

        self.step("roll back to the savepoint", call, owned=True)

    @operation(3, lambda machine: in_tx(machine) and machine.model.savepoints and machine.model.native is None)
    def keep_savepoint(self):
        notified = self.notified.pop()
        self.notified[-1] |= notified

        async def call(side: Side) -> None:
            token, _ = side.savepoints.pop()
            await side.driver.keep(_tx(side), token)

        self.step("release the savepoint", call, owned=True)

    # beside it

    @operation(2, lambda machine: in_tx(machine) and machine.one_writer, what=st.sampled_from(sorted(WRITES)))
    def owner_writes_outside(self, what):
        """The task that holds the writer and asks for it again is told so, and does not hang (T11)."""
        given = self.step(f"{what} by the transaction's owner", lambda side: WRITES[what](side, self.tx_on), owned=True)
        self.expect(f"{what} by the transaction's owner", given, Raised("DatabaseError", ""))

    @operation(
        4,
        lambda machine: machine.tx_on is not None and machine.one_writer and machine.waiting is None,
        on=draws.stores,
        what=st.sampled_from(("enqueue", "publish", "claim_one", "save_offset")),
    )
    def another_waits(self, on, what):
        """Somebody else's write waits for the transaction to end, and then goes through (T11)."""
        self.run(self._wait(on, what))

    async def _wait(self, on: int, what: str) -> None:
        def show(side: Side, result) -> object:
            match what:
                case "enqueue":
                    return side.made_job(result, "a")
                case "publish":
                    return side.made_event("s", result)
                case "claim_one":
                    return None if result is None else side.claim(result.claim)
            return result

        tasks = [asyncio.ensure_future(outcome(WRITES[what](side, on))) for side in self.sides]
        self.waiting = tasks, show
        for _ in range(5):
            await asyncio.sleep(0)
        await self.check(f"{what} that waits")
        for side, task in zip(self.sides, tasks, strict=True):
            if task.done():
                raise DisagreementError(
                    f"{side.driver.name}: {what} did not wait for the transaction: {task.result()!r}"
                )

    # its end

    @operation(4, lambda machine: machine.tx_on is not None)
    def commit(self):
        async def call(side: Side) -> object:
            ended, enlisted = side.tx, side.native is not None
            if side.native is None:
                await _tx(side).commit()
            else:
                await side.native.commit()
                await _leave_native(side)
            side.tx = None
            side.kept()
            return await refusal_of(ended, enlisted=enlisted)

        self._end("commit", call, committed=True)

    @operation(2, lambda machine: machine.tx_on is not None)
    def rollback(self):
        async def call(side: Side) -> object:
            ended, enlisted = side.tx, side.native is not None
            if side.native is None:
                await _tx(side).rollback()
            else:
                await side.native.rollback()
                await _leave_native(side)
            side.tx = None
            side.unmade(0)
            return await refusal_of(ended, enlisted=enlisted)

        self._end("rollback", call, committed=False)

    @operation(1, lambda machine: in_tx(machine) and machine.model.native is None)
    def drop(self):
        """A handle that nobody holds any more is rolled back, with a warning (T5)."""

        async def call(side: Side) -> object:
            told = side.drop_transaction()
            side.unmade(0)
            return told

        self._end("drop", call, committed=False, owned=False)

    def _end(
        self, what: str, call: Callable[[Side], Awaitable[object]], *, committed: bool, owned: bool = True
    ) -> None:
        self.run(self._ended(what, call, committed=committed, owned=owned))

    async def _ended(self, what, call, *, committed: bool, owned: bool) -> None:
        seen_inside = await self.owner.do(self.model.inside) if in_tx(self) else None
        before, self.before = self.before, None
        shown = []
        for side in self.sides:
            work = outcome(call(side))
            shown.append(await (self.owner.do(lambda work=work: work) if owned else work))
            side.savepoints.clear()
        self.tx_on = None
        self.compare(what, shown)
        waited = self.waiting is not None
        if self.waiting is not None:
            (tasks, show), self.waiting = self.waiting, None
            results = [await task for task in tasks]
            self.compare(
                f"what waited for the {what}",
                [
                    result if isinstance(result, Raised) else show(side, result)
                    for side, result in zip(self.sides, results, strict=True)
                ],
            )
        if committed and any(self.notified):
            for side in self.sides:
                await side.heard()
        await self.check(what)
        await self._account(what, None if waited else seen_inside if committed else before, committed=committed)

    async def _account(self, what: str, promised, *, committed: bool) -> None:
        """Hold the rows themselves to what is seen; and what is seen to what was promised, before or inside."""
        seen = [await side.snapshot(0) for side in self.sides]
        witnessed = [await side.witnessed(one) for side, one in zip(self.sides, seen, strict=True)]
        self.compare(f"the caller's own rows, after {what}", witnessed)
        if promised is None:
            return
        if not committed:
            for name in ("jobs", "events", "offsets", "mail"):
                self.expect(f"{name} after {what}", getattr(seen[0], name), getattr(promised, name))
            return
        shown = {
            **{f"job {place}": seen[0].jobs.get(place) for place, _ in enumerate(self.model.queue_of)},
            **{f"events of {stream}": events for stream, events in seen[0].events.items()},
            **{f"{consumer} of {stream}": offset for (stream, consumer), offset in seen[0].offsets.items()},
            "rows": witnessed[0],
        }
        self.expect(f"what is seen after {what}", {name: shown[name] for name in promised}, promised)


def _tx(side: Side) -> Transaction:
    assert side.tx is not None
    return side.tx


async def _leave_native(side: Side) -> None:
    block, side.native = side.native_block, None
    await block.aclose()


async def refusal_of(ended: Transaction | None, *, enlisted: bool) -> object:
    """What the handle of a transaction that has ended says (T8); where its owner ended it, either of two errors."""
    refusal = None if ended is None else await outcome(ended.enqueue("a", 1))
    if enlisted and isinstance(refusal, Raised) and refusal.kind in ("ClosedError", "DatabaseError"):
        return "refused"
    return refusal
