"""The layers of a call add up to the whole."""

import asyncio
import json
import sys
import time
from collections import defaultdict

import pytest
from benchmarks.databases import served
from benchmarks.profiling import Clock, layers_of
from benchmarks.running import ROOT


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


async def test_every_call_on_postgres_is_seen_to_ask_the_server():
    """What one call waits for is mostly the server, whatever its statement says: nothing of it counts as the engine."""
    with served() as databases:
        async with databases.place() as place:
            command = ("-m", "benchmarks.profiling", "alkstore-pg", str(place.folder), place.dsn, "0.1")
            child = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate()
    layers: dict[str, dict[str, float]] = defaultdict(dict)
    for line in map(json.loads, out.splitlines()):
        layers[line["operation"]][line["layer"]] = line["us"]
    assert layers.pop("transaction with a row and a job").keys() == {"own row", "job", "begin and commit"}
    asked = {"round trip", "statement", "flush"}
    shares = {
        operation: sum(us for layer, us in found.items() if layer in asked) / sum(found.values())
        for operation, found in layers.items()
    }
    assert len(shares) == 6
    assert {operation for operation, share in shares.items() if share < 0.25} == set()
