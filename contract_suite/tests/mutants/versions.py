"""Engines that are wrong about versions."""

# ruff: noqa: ARG005 - a wrong engine takes the arguments of the right one

import importlib.metadata

from alkstore_contract_suite.mutation import mutant
from alkstore_mem.harness import MemHarness


@mutant(kills=["versions/one_contract"])
def implements_the_next_contract(patch):
    patch.setattr(MemHarness, "contract", "1.2")


@mutant(kills=["versions/engine_pins_core"])
def takes_any_core(patch):
    patch.setattr(importlib.metadata.Distribution, "requires", property(lambda self: ["alkstore-core"]))


@mutant(kills=["versions/opening_again_changes_nothing"], engine="sqlite")
def forgets_locks_when_it_opens(patch):
    from alkstore_core import Store

    right = Store.close

    async def close(self):
        lock = await self.try_lock("leader", "owner", 60)
        if lock is not None:
            await lock.release()
        await right(self)

    patch.setattr(Store, "close", close)


@mutant(kills=["versions/newer_schema_is_refused"], engine="sqlite")
def opens_whatever_it_finds(patch):
    from alkstore_sqlite import migrations, setup

    for module in (migrations, setup):
        patch.setattr(module, "refuse_newer", lambda *arguments: None)
