"""Child processes of legs: barriers, clocks, results, and kills that leave nothing running."""

import os

import pytest
from alkstore_contract_suite.children import ChildError, Children
from alkstore_contract_suite.legs import child_bodies
from alkstore_sqlite.harness import SqliteHarness


@pytest.fixture
async def children(tmp_path):
    harness = SqliteHarness(tmp_path)
    await harness.start()
    children = Children(harness, None)
    yield children
    await children.kill_all()


async def test_a_barrier_holds_until_it_is_released(children):
    """A child stands at its barrier, goes on when it is released, and hands back what its body returns."""
    child = await children.start(child_bodies.opens_first)
    assert await child.reached("ready") is None
    await child.release("ready")
    assert await child.result() == 1


async def test_a_kill_leaves_no_process(children):
    """A killed child is gone when kill returns, and killing it again does nothing."""
    child = await children.start(child_bodies.enqueues, "emails")
    await child.reached("acknowledged")
    assert await child.kill() == []
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    assert await child.kill() == []


async def test_an_abort_shows_where_a_child_stands(children):
    """A child that is aborted ends with its stacks on stderr."""
    child = await children.start(child_bodies.enqueues, "emails")
    await child.reached("acknowledged")
    told = await children.abort_all()
    assert not child.is_running
    assert "child.py" in told
    assert await children.abort_all() == ""


async def test_a_child_that_fails_says_why(children):
    """A child that ends with an error raises ChildError in the leg, with its traceback."""
    child = await children.start(child_bodies.reads_then_writes, "not a number")
    await child.reached("ready")
    await child.release("ready")
    with pytest.raises(ChildError, match="TypeError"):
        await child.result()


async def test_another_barrier_than_expected(children):
    """A leg that waits for what the child does not say next fails at once, with what it said."""
    child = await children.start(child_bodies.enqueues, "emails")
    with pytest.raises(ChildError, match="acknowledged"):
        await child.reached("something else")


async def test_a_child_does_not_outlive_its_parent(children):
    """A child whose parent is gone, which it sees at the end of its stdin, ends by itself."""
    child = await children.start(child_bodies.enqueues, "emails")
    await child.reached("acknowledged")
    child._process.stdin.close()
    assert await child._process.wait() == 1
