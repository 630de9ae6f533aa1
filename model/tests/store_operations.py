"""Stores that crash and close, and time."""

import draws
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from machine import Machine, anytime, in_tx, operation
from side import Side, outcome
from transaction_operations import WRITES, refusal_of


class StoreOperations(Machine):
    """Stores that crash and close, and are opened again."""

    @operation(1, lambda machine: machine.waiting is None, on=draws.stores)
    def crash(self, on):
        """A store that ends without a word leaves what was committed, and what was not decided is rolled back."""
        ends = self.tx_on == on and self.model.tx is not None and self.model.native is None
        handle_goes = self.tx_on == on
        if ends:
            self.tx_on = self.before = None

        async def call(side: Side) -> object:
            told = await side.crash(on, undecided=handle_goes)
            if ends:
                side.unmade(0)
                side.savepoints.clear()
            return told

        given = self.step("crash", call)
        self.expect("crash", given, ["dropped undecided", "never closed"] if ends else ["never closed"])

    @operation(
        1, lambda machine: (machine.tx_on is None or in_tx(machine)) and machine.waiting is None, on=draws.stores
    )
    def close_and_open(self, on):
        """Everything of a closed store refuses; another one finds what was committed, and nothing undecided (T12)."""
        if self.tx_on not in (None, on):
            return  # who closes a store waits for the writer, to leave the file in order
        ends = self.tx_on == on and self.model.native is None
        handle_goes = self.tx_on == on
        if ends:
            self.tx_on = self.before = None

        async def call(side: Side) -> object:
            store, tx, receivers = side.stores[on], side.tx, [one for at, one in side.receivers if at == on]
            side.receivers[:] = [entry for entry in side.receivers if entry[0] != on]
            await store.close()
            refusals = [await outcome(write(side, on)) for write in WRITES.values()]
            refusals += [await outcome(one.try_recv()) for one in receivers]
            refusals.append([await one.recv() for one in receivers])
            refusals.append(await side.ears[on].recv())
            if ends:
                refusals += [await refusal_of(tx, enlisted=False), await outcome(tx.get_offset("s", "c"))]
                refusals.append(await outcome(tx.rollback()))
                side.unmade(0)
                side.savepoints.clear()
            side.tx = None if handle_goes else side.tx
            await side.open(on)
            return refusals

        self.step("close", call)


class TimeOperations(Machine):
    """Time passes, and clocks are set."""

    @operation(5, anytime, seconds=draws.steps)
    def advance(self, seconds):
        self.move_to(max(min(self.now + seconds, INT64_MAX), INT64_MIN))

    @operation(1, anytime, now=draws.jumps)
    def jump(self, now):
        self.move_to(now)
