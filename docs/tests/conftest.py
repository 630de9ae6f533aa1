"""A Postgres server for those tests that need one."""

import pytest
from alkstore_pg.servers import any_server


@pytest.fixture(scope="session")
def dsn():
    """Where it is; it is there until the last test has ended."""
    with any_server() as (dsn, _):
        yield dsn
