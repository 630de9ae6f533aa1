"""The layers of a call add up to the whole."""

import asyncio
import time

import pytest
from benchmarks.profiling import Clock, layers_of


@pytest.mark.parametrize(
    ("engine", "durable", "fast", "expected"),
    [
        ("alkstore-mem", {"whole": 5.0, "session": 4.0}, {}, {"facade": 1.0, "engine": 4.0}),
        (
            "alkstore-sqlite",
            {"whole": 10.0, "session": 9.0, "begin": 1.0, "statements": 2.0, "commit": 3.0},
            {},
            {"facade": 1.0, "engine": 3.0, "begin": 1.0, "statements": 2.0, "commit": 3.0},
        ),
        (
            "alkstore-pg",
            {"whole": 10.0, "session": 9.0, "statement": 8.0},
            {"statement": 5.0},
            {"facade": 1.0, "engine": 1.0, "round trip": 2.0, "statement": 3.0, "flush": 3.0},
        ),
    ],
)
def test_layers_add_up_to_the_whole(engine, durable, fast, expected):
    """Each engine's own."""
    layers = layers_of(durable, fast, 2.0, engine)
    assert layers == expected
    assert sum(layers.values()) == durable["whole"]


def test_what_a_timed_layer_calls_is_its_own():
    """A statement within BEGIN counts as BEGIN, and not twice."""
    clock = Clock()
    inner = clock.around("statements", lambda: time.monotonic())
    clock.around("begin", inner)()
    assert set(clock.seconds) == {"begin"}


async def test_an_awaited_layer_is_timed_to_its_end():
    """Also when it raises."""
    clock = Clock()

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("as expected")

    with pytest.raises(ValueError, match="as expected"):
        await clock.awaiting("session", fail)()
    assert clock.seconds["session"] > 0
