"""The README shows code that works."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet: str):
    """Every snippet of the README runs as it stands, and what it asserts holds."""
    names: dict = {}
    exec(snippet, names)
    [function] = [value for value in names.values() if inspect.iscoroutinefunction(value)]
    asyncio.run(function())
