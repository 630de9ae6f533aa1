"""Opening: awaited it is yours, entered it is closed at the end."""

import asyncio

import pytest
from alkstore_core import Opening


class Door:
    def __init__(self) -> None:
        self.log: list[str] = []

    async def open(self) -> "Door":
        self.log.append("open")
        return self

    async def close(self) -> None:
        self.log.append("close")


def opening(door: Door) -> Opening[Door]:
    async def close(opened: Door) -> None:
        await opened.close()

    return Opening(door.open, close)


async def test_an_awaited_opening_is_left_open() -> None:
    """The caller closes it."""
    door = Door()
    assert await opening(door) is door
    assert door.log == ["open"]


async def test_an_entered_opening_is_closed_at_the_end_whatever_ends_it() -> None:
    """A clean end, an error, a cancellation."""
    for error in (None, ValueError(), asyncio.CancelledError()):
        door = Door()
        try:
            async with opening(door) as opened:
                assert opened is door
                assert door.log == ["open"]
                if error is not None:
                    raise error
        except (ValueError, asyncio.CancelledError) as caught:
            came = caught
        else:
            came = None
        assert came is error
        assert door.log == ["open", "close"]


async def test_what_fails_to_open_is_not_closed() -> None:
    """There is nothing to close."""
    door = Door()

    async def fail() -> Door:
        raise OSError("no door")

    async def close(opened: Door) -> None:
        await opened.close()

    with pytest.raises(OSError, match="no door"):
        async with Opening(fail, close):
            pass
    assert door.log == []


async def test_an_opening_opens_once() -> None:
    """A second use would be a second thing under one name."""
    door = Door()
    once = opening(door)
    await once
    with pytest.raises(RuntimeError, match="opened already"):
        await once
    with pytest.raises(RuntimeError, match="opened already"):
        async with once:
            pass
    assert door.log == ["open"]
