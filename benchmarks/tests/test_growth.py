"""Each axis of growth gives points that the page can show."""

import asyncio
import json
import sys

import pytest
from benchmarks.running import ROOT

OPERATIONS = {
    "live": {"enqueue", "cancel", "claim 32", "ack 31", "retry", "get_job", "lock and release", "sweep, nothing to do"},
    "events": {"publish", "read 100 in the middle", "save_offset", "trim 10"},
    "subscribers": {"publish", "publish until all have it"},
    "workers": {"drain by so many workers"},
    "churn": {"size after churn"},
}


@pytest.mark.parametrize(("axis", "operations"), OPERATIONS.items(), ids=OPERATIONS)
async def test_an_axis_gives_a_figure_for_each_operation_at_each_number(axis, operations, tmp_path):
    """Every operation, at the same numbers, in one unit."""
    command = ("-m", "benchmarks.growth", "alkstore-sqlite", axis, str(tmp_path), "", "1000")
    child = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    points = [json.loads(line) for line in out.splitlines()]
    assert {(point["engine"], point["axis"]) for point in points} == {("alkstore-sqlite", axis)}
    numbers = {point["at"] for point in points}
    assert {(point["operation"], point["at"]) for point in points} == {(o, n) for o in operations for n in numbers}
    assert all((point.get("ms") or point.get("rate") or point.get("mb")) > 0 for point in points)
