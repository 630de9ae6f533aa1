"""Opening a store by URL: engines are found by entry point, so that core knows none of them."""

from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from alkstore_core.errors import DatabaseError, shown
from alkstore_core.opening import Opening
from alkstore_core.store import Store

ENTRY_POINT_GROUP = "alkstore.engines"
"""An engine registers here, under its URL scheme, a class with ``from_url``."""


class UrlEngine(Protocol):
    """What an entry point of the group names: usually the engine's store class."""

    def from_url(self, url: str, **options: object) -> Opening[Store]:
        """Open the store that `url` names."""
        ...


def open_store(url: str, **options: object) -> Opening[Store]:
    """The store that `url` names, by whichever engine is installed for its scheme: to await, or to enter.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``postgresql://…``, ``mem:``.
        options: those of the engine's own ``open``.

    Raises:
        TypeError: it is not a str.
        DatabaseError: it is not a URL, or no installed engine has its scheme.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str such as 'sqlite:///app.db', not {type(url).__name__}: {shown(url)}")
    scheme, separator, _ = url.partition(":")
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if not separator or scheme not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DatabaseError(  # without the rest of the URL, which may hold a password
            f"no engine is installed for the URL scheme {shown(scheme)} (installed: {known}): install alkstore-sqlite, "
            "alkstore-pg or alkstore-mem, and write sqlite:///app.db, postgresql://... or mem:"
        )
    return _engine(found[scheme]).from_url(url, **options)


def _engine(entry: EntryPoint) -> UrlEngine:
    engine: UrlEngine = entry.load()
    return engine
