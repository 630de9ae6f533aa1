"""What can go wrong, as types (contract section 3).

A subclass exists only where a caller can act on it; everything an engine's driver
reports is a `DatabaseError` with the driver's own exception as its ``__cause__`` (E1).
"""

__all__ = [
    "AlkstoreError",
    "ClosedError",
    "CodecError",
    "CommitUnknownError",
    "ConsumerFencedError",
    "DatabaseError",
    "InvalidNameError",
    "InvalidSpecError",
    "LeadershipLostError",
    "PayloadTooLargeError",
    "ReservedNameError",
    "StaleDeliveryError",
]


class AlkstoreError(Exception):
    """The root of every error that alkstore raises."""


class InvalidNameError(AlkstoreError):
    """A name is empty, blank, or holds what no engine may store (V1, V2, V3).

    Attributes:
        name: the name as it was given.
    """

    def __init__(self, message: str, name: object = None) -> None:
        super().__init__(message)
        self.name = name


class ReservedNameError(AlkstoreError):
    """A shared name starts with ``__alkstore_``, which belongs to alkstore (V1).

    Attributes:
        name: the name as it was given.
    """

    def __init__(self, message: str, name: object = None) -> None:
        super().__init__(message)
        self.name = name


class PayloadTooLargeError(AlkstoreError):
    """A payload is over the size that this engine's notify can carry (P4).

    Attributes:
        limit: the largest size allowed, in bytes.
        size: the size of the encoded payload, in bytes.
    """

    def __init__(self, limit: int, size: int) -> None:
        super().__init__(
            f"the encoded payload has {size} bytes and notify carries at most {limit}: "
            "store it (a stream, a queue, a row of yours) and notify its id"
        )
        self.limit = limit
        self.size = size

    def __reduce__(self) -> tuple[type["PayloadTooLargeError"], tuple[int, int]]:
        return type(self), (self.limit, self.size)


class CodecError(AlkstoreError):
    """A payload cannot be encoded without loss, or does not decode to the type asked for (P2, P3)."""


class InvalidSpecError(AlkstoreError):
    """A schedule's spec is not ``@every <n><unit>`` (H1).

    Attributes:
        spec: the spec as it was given.
    """

    def __init__(self, message: str, spec: object = None) -> None:
        super().__init__(message)
        self.spec = spec


class ClosedError(AlkstoreError):
    """The store, transaction or receiver has ended; open a new one (T8, T12, N4)."""


class LeadershipLostError(AlkstoreError):
    """Another runner has, or may have, the scheduler's lock, so this one fires nothing more (H3)."""


class ConsumerFencedError(AlkstoreError):
    """A mailbox's consumer was replaced or settled, or its delivery taken over; nothing was handed out or read (M7).

    Attributes:
        holder: the consumer that was refused.
    """

    def __init__(self, message: str, holder: object = None) -> None:
        super().__init__(message)
        self.holder = holder


class StaleDeliveryError(AlkstoreError):
    """What was to be acknowledged is no delivery of this mailbox; nothing was read (M7).

    Attributes:
        delivery_id: the id as it was given.
    """

    def __init__(self, message: str, delivery_id: object = None) -> None:
        super().__init__(message)
        self.delivery_id = delivery_id


class DatabaseError(AlkstoreError):
    """The engine could not do it; the driver's error, if there is one, is the ``__cause__`` (E1)."""


class CommitUnknownError(DatabaseError):
    """The connection died around COMMIT and the outcome could not be found out (T14)."""


_SHOWN_CHARACTERS = 200


def shown(value: object) -> str:
    """`value` for a message: its repr, cut where it is long, and never an error of its own.

    ``repr`` of an integer of thousands of digits raises, and so does that of anything which holds one.
    """
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__} that has no repr>"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
