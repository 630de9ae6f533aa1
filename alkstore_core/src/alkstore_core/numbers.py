"""Numbers: what is an int64, and arithmetic that saturates at its limits (V5)."""

from alkstore_core.errors import DatabaseError, shown

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


def int64(what: str, value: object) -> int:
    """Give back `value` if it is an int within int64.

    Raises:
        TypeError: not an int; a bool and a float are not ints here.
        ValueError: outside -2^63..2^63-1.
    """
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what} must be an int, not {type(value).__name__}: {shown(value)}")
        value = int(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{what} {shown(value)} is outside int64 ({INT64_MIN} to {INT64_MAX})")
    return value


def optional_int64(what: str, value: object) -> int | None:
    """The same as `int64`, where None stands for "not given"."""
    return None if value is None else int64(what, value)


def at_least(minimum: int, what: str, value: object) -> int:
    """Give back `value` if it is an int64 of at least `minimum`, else raise TypeError or ValueError (V6)."""
    checked = int64(what, value)
    if checked < minimum:
        raise ValueError(f"{what} must be at least {minimum}, and is {checked}")
    return checked


def patience(what: str, value: object, *, or_none: bool = False) -> float:
    """Give back `value` as a float if it is a number of seconds above 0, and at most 3600.

    Args:
        what: names it in an error.
        value: what the caller gave.
        or_none: whether 0 will do, too.

    Raises:
        TypeError, ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number of seconds, not {type(value).__name__}: {shown(value)}")
    if not 0 < value <= 3600 and not (or_none and value == 0):
        least = "at least" if or_none else "above"
        raise ValueError(f"{what} must be {least} 0 and at most 3600 seconds, and is {shown(value)}")
    return float(value)


def duration(what: str, value: object) -> int:
    """Give back `value`, in seconds, if it is an int64 above 0.

    Raises:
        TypeError, ValueError: as `int64`.
        DatabaseError: 0 or less, with a ValueError as its cause (V5).
    """
    checked = int64(what, value)
    if checked <= 0:
        message = f"{what} must be at least 1 second, and is {checked}"
        raise DatabaseError(message) from ValueError(message)
    return checked


def saturating_add(left: int, right: int) -> int:
    """The sum of two int64, held within int64."""
    total = left + right
    if total > INT64_MAX:
        return INT64_MAX
    if total < INT64_MIN:
        return INT64_MIN
    return total
