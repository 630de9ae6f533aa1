"""When things are due: ready times, retry delays, schedule boundaries. Pure functions.

Engines that must do this arithmetic in SQL against their server's clock are held to these
functions by a test over the int64 edges.
"""

import re
from collections.abc import Callable

from alkstore_core.errors import InvalidSpecError, shown
from alkstore_core.numbers import INT64_MAX, saturating_add

FIRE_CAP = 64
"""The most boundaries of one schedule that fire after a gap; the rest are skipped (H4)."""

_SPEC = re.compile(r"@every ([0-9]+)([smhd])", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def ready_time(now: int, delay: int | None, run_at: int | None) -> int:
    """The unix second from which a job may be claimed: now + delay if given, else run_at, else now (Q1)."""
    if delay is not None:
        return saturating_add(now, delay)
    return now if run_at is None else run_at


def deadline(now: int, seconds: int | None) -> int | None:
    """The unix second `seconds` from now, saturating; None stays None."""
    return None if seconds is None else saturating_add(now, seconds)


def retry_delay(backoff_base_s: int, attempts: int, draw: Callable[[int, int], int]) -> int:
    """The seconds to wait before the next attempt, when the handler named none (Q7).

    Args:
        backoff_base_s: the row's base, 0 or more.
        attempts: how often the job was handed out, 1 or more.
        draw: gives a uniform whole number between its two arguments, both included (``random.randint``).

    Returns:
        A number in [cap // 2, cap], where cap is ``backoff_base_s * 2**(attempts - 1)`` held within int64.
    """
    doublings = attempts - 1
    if backoff_base_s == 0:
        cap = 0
    elif doublings >= 63:
        cap = INT64_MAX
    else:
        cap = min(backoff_base_s << max(doublings, 0), INT64_MAX)
    return draw(cap // 2, cap)


def interval_seconds(spec: object) -> int:
    """The seconds between two boundaries of a spec such as ``@every 5m`` (H1).

    Raises:
        InvalidSpecError: anything but ``@every <n><unit>`` with a unit of s, m, h or d, n of at least 1, and a
            product within int64.
    """
    match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    # Twenty digits are always beyond int64; longer ones are refused before int() is asked to read them.
    if match is None or len(match[1]) > 20:
        raise InvalidSpecError(
            f"schedule spec {shown(spec)} is not understood: write '@every <n><unit>' with a whole number of at "
            "least 1 and a unit of s, m, h or d, such as '@every 30s'",
            spec,
        )
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    if not 1 <= seconds <= INT64_MAX:
        raise InvalidSpecError(
            f"schedule spec {shown(spec)} is {seconds} seconds: an interval is at least 1 second and within int64", spec
        )
    return seconds


def due_boundaries(next_fire: int, interval_s: int, now: int) -> tuple[list[int], int]:
    """The boundaries that have elapsed by `now` and are to fire, and the boundary to wait for next (H4).

    At most `FIRE_CAP` boundaries are given, the oldest; the next one is always after `now`. A boundary at the
    int64 limit is never reached, so that a far-future schedule cannot spin (H5).
    """
    if now < next_fire or next_fire == INT64_MAX:
        return [], next_fire
    elapsed = (now - next_fire) // interval_s + 1
    fires = [next_fire + number * interval_s for number in range(min(elapsed, FIRE_CAP))]
    return fires, min(next_fire + elapsed * interval_s, INT64_MAX)
