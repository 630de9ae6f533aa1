"""Which names are allowed (contract section 2).

Names are never trimmed, folded or shortened: what is accepted is kept as it is.
"""

from alkstore_core.errors import InvalidNameError, ReservedNameError

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
            f"{kind} name {checked!r} starts with {RESERVED_PREFIX!r}, which alkstore keeps for itself: "
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
        raise InvalidNameError(f"{kind} name must be a str, not {type(name).__name__}: {name!r}", name)
    if not name or name.isspace():
        raise InvalidNameError(f"{kind} name {name!r} is empty or blank: give it a visible character", name)
    return storable_text(f"{kind} name", name)


def event_key(key: object) -> str | None:
    """Give back `key` if a stream event may carry it: None, or a str that is not empty (S2).

    Raises:
        InvalidNameError: an empty str, not a str, or with a NUL or a lone surrogate.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidNameError(f"event key must be a str or None, not {type(key).__name__}: {key!r}", key)
    if not key:
        raise InvalidNameError("event key is empty: leave it out (None) where an event has no key", key)
    return storable_text("event key", key)


def storable_text(what: str, text: str) -> str:
    """Give back `text` if every engine can store it: no NUL and no lone surrogate (V3).

    Raises:
        InvalidNameError: it cannot be stored.
    """
    if text.isascii():
        if "\0" not in text:
            return text
    else:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidNameError(
                f"{what} {text!r} has a lone surrogate at index {error.start}, which is not valid Unicode: remove it",
                text,
            ) from error
        if "\0" not in text:
            return text
    raise InvalidNameError(f"{what} {text!r} has a NUL at index {text.index(chr(0))}: remove it", text)


def error_text(text: str) -> str:
    """Give `text` as every engine can store it: NULs and lone surrogates become U+FFFD.

    Errors are reported, not addressed, so a strange one is kept readable rather than refused.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if _has_surrogate(text) else text
    return text


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
