"""Stores that nobody closed (T15)."""

import asyncio
import gc
import sys

import pytest
from alkstore_core.testing import running_tasks
from alkstore_pg import PgStore
from pg_waiting import query, until

BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

FORGETFUL = """
import asyncio, sys
from alkstore_pg import PgStore

async def main():
    store = await PgStore.open(sys.argv[1])
    await store.listen("c")
    tx = await store.begin_tx()
    await tx.enqueue("work", 1)
    print("done", flush=True)
    globals()["kept"] = (store, tx) if sys.argv[2] == "kept" else None

asyncio.run(main())
"""


@pytest.mark.parametrize("reference", ["kept", "dropped"])
async def test_a_process_that_forgets_to_close_exits_and_says_so(dsn, plain, reference):
    """It ends by itself within seconds, with a ResourceWarning, and leaves no connection and no job."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "always::ResourceWarning",
        "-c",
        FORGETFUL,
        dsn,
        reference,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        out, errors = await process.communicate()
    assert (process.returncode, out) == (0, b"done\n")
    assert b"was never closed" in errors
    await until(query(plain, BACKENDS, 0))
    assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs") == 0


async def test_a_dropped_store_ends(dsn, plain):
    """In a process that goes on, a store that was dropped ends its tasks and connections."""
    before = running_tasks()
    stores = [await PgStore.open(dsn)]
    await (await stores[0].listen("c")).close()
    with pytest.warns(ResourceWarning, match="never closed"):
        _let_go_of(stores)
    await until(lambda: running_tasks() == before)
    await until(query(plain, BACKENDS, 0))


def _let_go_of(stores: list[PgStore]) -> None:
    stores.clear()
    gc.collect()
