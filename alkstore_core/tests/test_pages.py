"""Followers of one stream share reads, and none of them misses an event for that (S7, S8)."""

import asyncio
import gc

import pytest
from alkstore_core.errors import DatabaseError
from alkstore_core.pages import Pages


class Reads:
    """A session whose reads end when they are told to, each with its own number."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[list[int]]] = []

    async def read_settled_events(self, stream: str, after: int, limit: int) -> list[int]:
        del stream, after, limit
        self.sent.append(asyncio.get_running_loop().create_future())
        return await self.sent[-1]

    def end(self) -> None:
        for number, read in enumerate(self.sent):
            if not read.done():
                read.set_result([number])


def ask(pages: Pages, reads: Reads, after: int = 0) -> "asyncio.Task[list[int]]":
    return asyncio.create_task(pages.read(reads, "orders", after, 16))  # type: ignore[arg-type]


async def turns() -> None:
    """Everything that can run has run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_followers_at_one_place_that_are_woken_together_share_a_read() -> None:
    """The first reads for himself, the others together; who is at another place reads there."""
    pages, reads = Pages(), Reads()
    asking = [ask(pages, reads) for _ in range(50)]
    elsewhere = ask(pages, reads, 7)
    await turns()
    assert len(reads.sent) == 3
    reads.end()
    assert [await one for one in asking] == [[0]] + [[2]] * 49
    assert await elsewhere == [1]


async def test_who_was_woken_after_a_read_was_sent_does_not_share_it() -> None:
    """It may not see the commit that woke him."""
    pages, reads = Pages(), Reads()
    asking = []
    for number in range(4):
        asking.append(ask(pages, reads))
        await turns()
        assert len(reads.sent) == number + 1
    reads.end()
    assert [await one for one in asking] == [[0], [1], [2], [3]]


async def test_a_cancelled_follower_leaves_the_others_their_read() -> None:
    """Whoever of them it is (S7)."""
    for cancelled in range(3):
        pages, reads = Pages(), Reads()
        asking = [ask(pages, reads) for _ in range(4)]
        await turns()
        asking[1 + cancelled].cancel()
        await turns()
        reads.end()
        got = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(got.pop(1 + cancelled), asyncio.CancelledError)
        assert got == [[0], [1], [1]]


async def test_each_follower_gets_an_error_of_its_own() -> None:
    """With the same cause; and the next who asks reads again."""
    pages, reads = Pages(), Reads()
    asking = [ask(pages, reads) for _ in range(4)]
    await turns()
    failure = DatabaseError("as expected")
    failure.__cause__ = OSError("gone")
    for read in reads.sent:
        read.set_exception(failure)
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert len({id(error) for error in errors}) == 4
    assert [str(error) for error in errors] == ["as expected"] * 4
    assert {type(error.__cause__) for error in errors if isinstance(error, DatabaseError)} == {OSError}
    again = ask(pages, reads)
    await turns()
    reads.end()
    assert await again == [2]


async def test_an_error_that_nobody_waits_for_any_more_is_not_reported() -> None:
    """All who shared the read were cancelled before it failed."""
    pages, reads, reported = Pages(), Reads(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    asking = [ask(pages, reads) for _ in range(3)]
    await turns()
    for one in asking[1:]:
        one.cancel()
    await turns()
    for read in reads.sent:
        read.set_exception(DatabaseError("as expected"))
    with pytest.raises(DatabaseError):
        await asking[0]
    del asking, one, read
    reads.sent.clear()
    await turns()
    gc.collect()
    assert reported == []


async def test_many_followers_of_one_store_each_get_every_event_in_order(store) -> None:
    """However reads fall together while events are published one by one."""
    stream, count = store.stream("orders"), 50
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:

        async def follow(name: str) -> list[int]:
            async with stream.subscribe(name) as events:
                ready.release()
                return [(await events.recv()).payload_as(int) for _ in range(count)]

        ready = asyncio.Semaphore(0)
        following = [group.create_task(follow(f"follower {number}")) for number in range(20)]
        for _ in following:
            await ready.acquire()
        for number in range(count):
            await stream.publish(number)
            if number % 3 == 0:
                await asyncio.sleep(0)
    assert [await one for one in following] == [list(range(count))] * 20
