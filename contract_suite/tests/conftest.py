"""A suite of a few legs on paper, so that what is said about suites does not hang on the legs of the real one."""

import sys
from collections.abc import Generator

import pytest
from alkstore_contract_suite import catalogue

LEGS = """
from alkstore_contract_suite.leg import leg


@leg(rules="Q1 Q2", since="1.0")
async def test_enqueues(store):
    '''A job is enqueued.'''
    assert await store.queue("emails").enqueue("hello") == 1


@leg(rules="Q1", since="1.0")
async def test_claims(store):
    '''What was enqueued is claimed.'''
    await store.queue("emails").enqueue("hello")
    assert await store.queue("emails").claim_one("worker") is not None


@leg(rules="T3", since="1.0", needs=("child",))
async def test_kills(harness):
    '''A child could open this.'''
    assert harness.address().url
"""

LOCK = """# a comment
paper/claims 1.0 Q1
paper/enqueues 1.0 Q1 Q2
paper/kills 1.0 T3
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a wrong engine logs may be no text, and a report travels between processes."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report


@pytest.fixture
def paper(monkeypatch, tmp_path):
    """The folder of a suite of three legs, which takes the place of the real one."""
    legs = tmp_path / "legs"
    legs.mkdir()
    (legs / "conftest.py").write_text("from alkstore_contract_suite.legs.conftest import *\n")
    (legs / "test_paper.py").write_text(LEGS)
    (tmp_path / "legs.lock").write_text(LOCK)
    for name in ("test_paper", "test_paper_again", "test_broken", "test_strange"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # of another test
    monkeypatch.setattr(catalogue, "LEGS", legs)
    monkeypatch.setattr(catalogue, "LOCK", tmp_path / "legs.lock")
    return legs
