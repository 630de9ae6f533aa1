"""Versions: of the contract, and of what is stored (contract section 12)."""

from importlib.metadata import requires

import alkstore_core
import pytest
from alkstore_core import Store
from alkstore_core.errors import DatabaseError
from packaging.requirements import Requirement

from alkstore_contract_suite import CONTRACT_VERSION
from alkstore_contract_suite.engines import EngineUnderTest
from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg


@leg(rules="X1", since="1.0")
async def test_one_contract(engine: EngineUnderTest, store: Store) -> None:
    """Core and this suite speak one contract version, and the engine itself says which one its harness declares."""
    assert {alkstore_core.CONTRACT_VERSION, CONTRACT_VERSION} == {CONTRACT_VERSION}
    assert store.engine.contract == engine.harness.contract
    assert alkstore_core.__version__.split(".")[:2] == CONTRACT_VERSION.split(".")


@leg(rules="X1", since="1.0")
async def test_engine_pins_core(engine: EngineUnderTest) -> None:
    """The engine's distribution admits this contract's core, and neither an older one nor the next major version."""
    pins = [Requirement(line) for line in requires(engine.distribution) or ()]
    [core] = [pin for pin in pins if pin.name == "alkstore-core"]
    major = int(CONTRACT_VERSION.partition(".")[0])
    candidates = [alkstore_core.__version__, "0.9", f"{major + 1}.0"]
    assert list(core.specifier.filter(candidates)) == [alkstore_core.__version__]


@leg(rules="X2", since="1.0", needs=("durable",))
async def test_opening_again_changes_nothing(harness: Harness, witness: Witness) -> None:
    """A database that is opened again, also after a restart, is as it was left."""
    async with harness.open() as store:
        job_id = await store.queue("emails").enqueue("kept")
        offset = await store.stream("orders").publish("kept")
        await store.stream("orders").save_offset("reader", offset)
        lock = await store.try_lock("leader", "owner", 60)
        assert lock is not None
        job = await store.queue("emails").get_job(job_id)
        events = await store.stream("orders").read_since(0)
        row = await witness.lock("leader")
    for _ in range(2):
        await harness.restart()
        async with harness.open() as store:
            assert await store.queue("emails").get_job(job_id) == job
            assert await store.stream("orders").read_since(0) == events
            assert await store.stream("orders").get_offset("reader") == offset
            assert await witness.lock("leader") == row
            again = await store.try_lock("leader", "owner", 60)
            assert again is not None
            assert (again.token, again.expires_at) == (lock.token, lock.expires_at)


@leg(rules="X2", since="1.0", needs=("schema",))
async def test_newer_schema_is_refused(harness: Harness, witness: Witness) -> None:
    """A database with a newer schema than the engine knows is refused and left as it is."""
    async with harness.open() as store:
        job_id = await store.queue("emails").enqueue("kept")
    await harness.move_schema_version(1)
    for _ in range(2):
        with pytest.raises(DatabaseError):
            async with harness.open():
                pass
        assert await witness.jobs("emails") == JobCounts(pending=1)
    await harness.move_schema_version(-1)
    async with harness.open() as store:
        assert await store.queue("emails").get_job(job_id) is not None
