"""A Postgres of the run's own, for those who have none."""

from collections.abc import Iterator
from contextlib import contextmanager

EMBEDDED = "embedded-pg"
"""What is given as the store to have one."""


class NoPostgresError(Exception):
    """There is none to start, and what to do about it."""


@contextmanager
def embedded_postgres() -> Iterator[str]:
    """Where it is; it is stopped at the end, and nothing of it is left.

    Raises:
        NoPostgresError: what it is made of is not installed, or it does not start.
    """
    try:
        from alkstore_pg.servers import NoServerError, embedded_server
    except ImportError as error:
        raise NoPostgresError("it needs alkstore-pg and a Postgres: pip install 'alkstore-pg[testing]'") from error
    try:
        with embedded_server() as server:
            yield server.dsn
    except NoServerError as error:
        raise NoPostgresError(str(error)) from error
