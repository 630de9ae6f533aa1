"""What engines run on, for as long as the tests last."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from drivers import DRIVERS


@pytest.fixture(scope="session", autouse=True)
def services() -> Iterator[None]:
    """A server for each engine that needs one."""
    with ExitStack() as running:
        for driver in DRIVERS:
            running.enter_context(driver.harness.service())
        yield
