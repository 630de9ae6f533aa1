"""alkstore on SQLite: `SqliteStore.open("app.db")`."""

from alkstore_sqlite.store import SqliteStore

__version__ = "1.1.0"

__all__ = ["SqliteStore"]
