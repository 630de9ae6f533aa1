"""`SqliteStore`: alkstore in one database file."""

import os
from typing import Self
from urllib.parse import unquote_to_bytes

from alkstore_core import Clock, Opening, Store
from alkstore_core.clock import SystemClock
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import patience

from alkstore_sqlite.database import Database, checked_path
from alkstore_sqlite.engine import SqliteEngine

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class SqliteStore(Store):
    """A store in one SQLite file, shared with your own tables, for any number of processes on one machine."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_timeout: float = 5.0,
        poll_interval: float = 0.001,
        readers: int = 2,
        clock: Clock | None = None,
    ) -> Opening[Self]:
        """Open the store in the file at `path`, made and migrated as needed: to await, or to enter.

        Args:
            path: a plain file path; its folder exists. No URI, and not ``:memory:``.
            synchronous: ``FULL`` survives power loss with everything that was acknowledged; ``NORMAL`` may lose the
                latest commits then (not when a process dies) and is faster; ``EXTRA`` and ``OFF`` as SQLite has them.
            busy_timeout: how long a write, a transaction or the opening waits for its turn, in seconds, above 0.
            poll_interval: how often other processes' commits are looked for while somebody listens, in seconds, above
                0. Longer costs less when idle and wakes later.
            readers: how many threads serve reads, 1 to 64.
            clock: replaces the process's clock, for tests.

        Raises:
            TypeError, ValueError: an option is of the wrong kind, or out of its range; at once.
            DatabaseError: the path names no file; at once. When opened: it is no database, cannot be written, has a
                newer schema, or stayed locked.
        """
        if not isinstance(synchronous, str) or synchronous.upper() not in _SYNCHRONOUS:
            raise ValueError(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, and is {synchronous!r}")
        if type(readers) is not int:
            raise TypeError(f"readers must be an int, not {type(readers).__name__}: {readers!r}")
        if not 1 <= readers <= 64:
            raise ValueError(f"readers must be 1 to 64, and is {readers}")
        database = Database(checked_path(path), synchronous.upper(), patience("busy_timeout", busy_timeout))
        engine = SqliteEngine(
            database,
            poll_interval=patience("poll_interval", poll_interval),
            readers=readers,
            clock=SystemClock() if clock is None else clock,
        )
        return cls.opening(engine)

    @classmethod
    def from_url(cls, url: str, **options: object) -> Opening[Self]:
        """Open ``sqlite:///relative/path`` or ``sqlite:////absolute/path``; options are those of `open`.

        Raises:
            DatabaseError: it is not such a URL.
        """
        prefix = "sqlite:///"
        if not url.startswith(prefix) or url == prefix:
            raise DatabaseError(f"{url!r} is no SQLite URL: write sqlite:///relative.db or sqlite:////absolute.db")
        if "?" in url or "#" in url:
            raise DatabaseError(
                f"{url!r} has a part that is no path: give options to open_store itself, and write %3F and %23 for a "
                "question mark and a hash in a file's name"
            )
        path = os.fsdecode(unquote_to_bytes(url[len(prefix) :]))
        return cls.open(path, **options)  # type: ignore[arg-type]  # checked there
