"""alkstore in memory: the whole contract in plain Python, for tests and single-process services."""

from alkstore_mem.connection import Connection, Rows
from alkstore_mem.store import MemStore

__version__ = "1.1.0"

__all__ = ["Connection", "MemStore", "Rows"]
