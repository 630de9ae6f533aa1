"""Transactions as the facade has them: one end, checks before anything, and no silent drop (T4 to T8, T10)."""

import asyncio
import gc
import inspect

import anyio
import pytest
from alkstore_core.errors import ClosedError, CodecError, DatabaseError, InvalidNameError, ReservedNameError


async def test_a_clean_block_commits_and_any_exception_rolls_back(store) -> None:
    """Errors, cancellations by task and by scope (T4)."""
    queue = store.queue("q")
    async with store.transaction() as tx:
        kept = await tx.enqueue("q", 1)
    assert (await queue.get_job(kept)).payload == b"1"

    for error in (ValueError("mine"), asyncio.CancelledError(), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:  # noqa: PT012 - the block is what is tested
            async with store.transaction() as tx:
                gone = await tx.enqueue("q", 2)
                raise error
        assert caught.value is error
        assert await queue.get_job(gone) is None
    with anyio.move_on_after(0):
        async with store.transaction() as tx:
            gone = await tx.enqueue("q", 2)
            await anyio.sleep_forever()
    assert await queue.get_job(gone) is None


async def test_a_block_that_decided_by_itself_is_left_at_that(store) -> None:
    """commit or rollback inside the block."""
    async with store.transaction() as tx:
        kept = await tx.enqueue("q", 1)
        await tx.commit()
    async with store.transaction() as tx:
        gone = await tx.enqueue("q", 1)
        await tx.rollback()
    assert await store.queue("q").get_job(kept) is not None
    assert await store.queue("q").get_job(gone) is None


async def test_an_entered_begin_tx_is_rolled_back_unless_decided(store) -> None:
    """The explicit handle as a context manager (T5)."""
    async with store.begin_tx() as tx:
        gone = await tx.enqueue("q", 1)
    async with store.begin_tx() as tx:
        kept = await tx.enqueue("q", 1)
        await tx.commit()
    assert await store.queue("q").get_job(gone) is None
    assert await store.queue("q").get_job(kept) is not None


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_after_its_end_every_call_raises_closed_error(store, end: str) -> None:
    """A second end too (T8)."""
    tx = await store.begin_tx()
    assert tx.is_open
    await getattr(tx, end)()
    assert not tx.is_open
    for call in (
        lambda: tx.enqueue("q", 1),
        lambda: tx.outbox_enqueue("o", 1),
        lambda: tx.publish("s", 1),
        lambda: tx.notify("c"),
        lambda: tx.save_offset("s", "c", 1),
        lambda: tx.get_job("q", 1),
        lambda: tx.get_offset("s", "c"),
        lambda: tx.read_since("s", 0),
        lambda: tx.read_from_consumer("s", "c"),
        tx.commit,
        tx.rollback,
    ):
        with pytest.raises(ClosedError, match="this transaction has ended"):
            await call()
    with pytest.raises(ClosedError):
        _ = tx.connection


async def test_a_failed_end_is_an_end(store) -> None:
    """What a commit that raised leaves behind is closed, and the next transaction works (T9)."""
    tx = await store.begin_tx()
    session = tx._session
    real = session.commit

    async def fail() -> None:
        await session.rollback()
        raise DatabaseError("the disk is full")

    session.commit = fail
    with pytest.raises(DatabaseError, match="disk"):
        await tx.commit()
    assert not tx.is_open
    with pytest.raises(ClosedError):
        await tx.rollback()
    session.commit = real
    async with store.transaction() as again:
        await again.enqueue("q", 1)


async def test_a_dropped_handle_is_rolled_back_with_a_warning_that_names_its_line(store) -> None:
    """Awaited, or entered by hand; the writer is free again at once (T5)."""

    async def drop() -> int:
        tx = await store.begin_tx()
        await tx.enqueue("q", 1)
        return inspect.currentframe().f_lineno - 2  # type: ignore[union-attr]

    with pytest.warns(ResourceWarning) as caught:
        line = await drop()
    (warning,) = caught
    assert f"a transaction opened at {__file__}:{line} was dropped undecided and is rolled back" in str(warning.message)
    assert "commit it, roll it back, or use 'async with'" in str(warning.message)
    assert await store.queue("q").enqueue(2)
    assert [job.payload for job in [await store.queue("q").get_job(number) for number in (1, 2)] if job] == [b"2"]


async def test_the_line_is_the_caller_s_however_the_transaction_is_made(store) -> None:
    """Not alkstore's, contextlib's or asyncio's."""
    async with store.transaction() as tx:
        assert f"opened at {__file__}:" in repr(tx)
    async with store.begin_tx() as tx:
        assert f"opened at {__file__}:" in repr(tx)
    task = asyncio.ensure_future(_begin(store))
    tx = await task
    assert f"opened at {__file__}:" in repr(tx)
    await tx.rollback()
    assert repr(tx).startswith("<Transaction ended, opened at ")


async def _begin(store):
    return await store.begin_tx()


async def test_an_enlisted_transaction_belongs_to_who_opened_it(store) -> None:
    """Its commit and rollback are refused, dropping it is no news, and it goes with its owner (T10)."""
    async with store.transaction() as owner:
        guest = store.enlist(owner.connection)
        assert repr(guest) == "<Transaction open, enlisted>"
        for end in (guest.commit, guest.rollback):
            with pytest.raises(DatabaseError, match=r"was enlisted, so .* belongs to who opened it"):
                await end()
        job = await guest.enqueue("q", 1)
        del guest
        gc.collect()
    assert await store.queue("q").get_job(job) is not None
    with pytest.raises(DatabaseError):
        store.enlist(object())


async def test_names_and_payloads_are_checked_before_anything_happens(store) -> None:
    """Every entry point's transaction form, by the same rules (V1 to V3, V5, P2)."""
    async with store.transaction() as tx:
        forms = {
            "enqueue": lambda name: tx.enqueue(name, 1),
            "outbox_enqueue": lambda name: tx.outbox_enqueue(name, 1),
            "publish": lambda name: tx.publish(name, 1),
            "notify": tx.notify,
            "save_offset": lambda name: tx.save_offset(name, "c", 1),
            "get_offset": lambda name: tx.get_offset(name, "c"),
            "get_job": lambda name: tx.get_job(name, 1),
            "read_since": lambda name: tx.read_since(name, 0),
            "read_from_consumer": lambda name: tx.read_from_consumer(name, "c"),
        }
        for form in forms.values():
            for name in ("", " \t", "a\0b", "\ud800", 7, None):
                with pytest.raises(InvalidNameError):
                    await form(name)
            with pytest.raises(ReservedNameError):
                await form("__alkstore_x")
        for call in (
            lambda: tx.enqueue("q", b"x"),
            lambda: tx.outbox_enqueue("q", {1: 2}),
            lambda: tx.publish("s", float("nan")),
            lambda: tx.notify("c", object()),
        ):
            with pytest.raises(CodecError):
                await call()
        for call in (
            lambda: tx.enqueue("q", 1, delay=1.0),
            lambda: tx.enqueue("q", 1, priority=False),
            lambda: tx.outbox_enqueue("o", 1, expires="1"),
            lambda: tx.get_job("q", "1"),
            lambda: tx.save_offset("s", "c", True),
            lambda: tx.read_since("s", None),
        ):
            with pytest.raises(TypeError):
                await call()
        for call in (lambda: tx.publish("s", 1, key=""), lambda: tx.save_offset("s", " ", 1)):
            with pytest.raises(InvalidNameError):
                await call()
        assert await tx.read_since("s", 0) == []
        with pytest.raises(TypeError, match="unexpected keyword"):
            await tx.enqueue("q", 1, retries=3)
    assert await store.queue("q").claim_one("w") is None
