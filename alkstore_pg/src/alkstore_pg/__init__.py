"""alkstore on Postgres: ``async with PgStore.open("postgresql://…") as store``."""

from alkstore_pg.store import PgStore

__version__ = "1.1.0"

__all__ = ["PgStore"]
