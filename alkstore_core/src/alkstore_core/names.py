"""Which names are allowed (contract section 2).

Names are never trimmed, folded or shortened: what is accepted is kept as it is.
"""

import re

from alkstore_core.errors import InvalidNameError, ReservedNameError, shown

RESERVED_PREFIX = "__alkstore_"
"""Shared names under this prefix belong to alkstore itself."""


def shared_name(kind: str, name: object) -> str:
    """Give back `name` if it may name a channel, stream, queue, outbox, lock or schedule.

    Args:
        kind: what it names, for the message ("queue", "channel", ...).
        name: the name as the caller gave it.

    Raises:
        InvalidNameError: not a str, empty, only whitespace, or with a NUL or a lone surrogate (V1, V3).
        ReservedNameError: it starts with ``__alkstore_`` (V1).
    """
    checked = free_name(kind, name)
    if checked.startswith(RESERVED_PREFIX):
        raise ReservedNameError(
            f"{kind} name {shown(checked)} starts with {RESERVED_PREFIX!r}, which alkstore keeps for itself: "
            "choose a name without this prefix",
            checked,
        )
    return checked


def free_name(kind: str, name: object) -> str:
    """Give back `name` if it may name a consumer, worker or owner: the reserved prefix is allowed.

    Raises:
        InvalidNameError: not a str, empty, only whitespace, or with a NUL or a lone surrogate (V2, V3).
    """
    if not isinstance(name, str):
        raise InvalidNameError(f"{kind} name must be a str, not {type(name).__name__}: {shown(name)}", name)
    text = _exact(name)
    if not text or text.isspace():
        raise InvalidNameError(f"{kind} name {shown(text)} is empty or blank: give it a visible character", text)
    # What nearly every name is, without building the words of an error.
    return text if text.isascii() and "\0" not in text else storable_text(f"{kind} name", text)


def event_key(key: object) -> str | None:
    """Give back `key` if a stream event may carry it: None, or a str that is not empty (S2).

    Raises:
        InvalidNameError: an empty str, not a str, or with a NUL or a lone surrogate.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidNameError(f"event key must be a str or None, not {type(key).__name__}: {shown(key)}", key)
    if not key:
        raise InvalidNameError("event key is empty: leave it out (None) where an event has no key", key)
    return storable_text("event key", _exact(key))


def storable_text(what: str, text: str) -> str:
    """Give back `text` if every engine can store it: no NUL and no lone surrogate (V3).

    Raises:
        InvalidNameError: it cannot be stored.
    """
    found = _UNSTORABLE.search(text)
    if found is None:
        return text
    which = "a NUL" if found[0] == "\0" else "a lone surrogate, which is not valid Unicode,"
    raise InvalidNameError(f"{what} {shown(text)} has {which} at index {found.start()}: remove it", text)


def error_text(text: str) -> str:
    """Give `text` as every engine can store it: NULs and lone surrogates become U+FFFD.

    Errors are reported, not addressed, so a strange one is kept readable rather than refused.
    """
    return _UNSTORABLE.sub("\ufffd", _exact(text))


def failure_text(error: BaseException) -> str:
    """What is stored for a handler that raised: ``str(error)``, or the repr where that is empty (W1)."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return error_text(text or shown(error))


def _exact(text: str) -> str:
    """The plain str in `text`: a member of an enum can be a str too, one that reads otherwise in an f-string."""
    return text if type(text) is str else str.__str__(text)


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
