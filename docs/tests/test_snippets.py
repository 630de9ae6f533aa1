"""Every Python block on a page runs: a whole program as it stands, on each engine; a fragment with a store at hand."""

import ast
import inspect
import subprocess
import sys
import textwrap

import pytest
from alkstore_core import open_store
from pages import ENGINES, blocks

PYTHON = blocks("python")
PROGRAMS = [block for block in PYTHON if "asyncio.run(" in block.code]
FRAGMENTS = [block for block in PYTHON if block not in PROGRAMS]


def test_there_is_a_hello_world_of_eight_lines():
    """The README's first program, which says the same on every engine."""
    assert [len(block.code.splitlines()) for block in PROGRAMS if block.page == "README.md"] == [8]


@pytest.fixture(params=ENGINES)
def url(request):
    if request.param == "alkstore_pg":
        return request.getfixturevalue("dsn")
    return {"alkstore_mem": "mem:", "alkstore_sqlite": "sqlite:///hello.db"}[request.param]


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs_on_every_engine(block, url, tmp_path):
    """Its text is not touched: the store's URL is its argument. It says what was put in, and nothing on stderr."""
    program = tmp_path / "hello.py"
    program.write_text(block.code, "utf-8")
    command = [sys.executable, "-W", "error", str(program), url]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "{'hello': 'world'} True\n", "")


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
async def test_a_fragment_runs(block, dsn, tmp_path, monkeypatch):
    """With `store` open, a table of orders as a service might have one, and `dsn` leading to a Postgres."""
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///fragment.db") as store:
        async with store.transaction() as tx:
            await tx.connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        names = {"store": store, "dsn": dsn}
        code = compile(block.code, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if inspect.iscoroutine(running := eval(code, names)):
            await running


def test_fragments_are_indented_as_programs_are():
    """Four spaces, nothing that a copy would have to undo."""
    assert [block for block in PYTHON if textwrap.dedent(block.code) != block.code] == []
