"""Ready times, retry delays, specs and boundaries, over the int64 edges (Q1, Q7, H1, H4, H5)."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from alkstore_core.errors import InvalidSpecError
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.timing import FIRE_CAP, deadline, due_boundaries, interval_seconds, ready_time, retry_delay
from hypothesis import example, given, settings
from hypothesis import strategies as st

EDGES = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, 63, 64, 65, 2**31, 2**32, INT64_MAX - 1, INT64_MAX]
INT64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(EDGES)
NATURAL = st.integers(1, INT64_MAX) | st.sampled_from([edge for edge in EDGES if edge > 0])


def clamp(value: int) -> int:
    """`value` held within int64."""
    return max(INT64_MIN, min(value, INT64_MAX))


@given(INT64, st.none() | INT64, st.none() | INT64)
def test_the_ready_time_is_the_delay_else_run_at_else_now(now: int, delay: int | None, run_at: int | None) -> None:
    """A delay wins, and the sum saturates (Q1)."""
    wanted = clamp(now + delay) if delay is not None else run_at if run_at is not None else now
    assert ready_time(now, delay, run_at) == wanted


@given(INT64, st.none() | INT64)
def test_a_deadline_is_relative_and_saturates(now: int, seconds: int | None) -> None:
    """None stays None."""
    assert deadline(now, seconds) == (None if seconds is None else clamp(now + seconds))


def property_of_retry_delays(delay: Callable[[int, int, Callable[[int, int], int]], int]) -> None:
    @settings(database=None, report_multiple_bugs=False)
    @given(st.integers(0, INT64_MAX) | st.sampled_from([0, 1, 5, INT64_MAX]), NATURAL, st.randoms())
    @example(5, 3, random.Random(0))
    @example(1, 64, random.Random(0))
    @example(INT64_MAX, 2, random.Random(0))
    def run(base: int, attempts: int, source: random.Random) -> None:
        asked: list[tuple[int, int]] = []

        def draw(low: int, high: int) -> int:
            asked.append((low, high))
            return source.randint(low, high)

        got = delay(base, attempts, draw)
        cap = min(base * 2 ** min(attempts - 1, 64), INT64_MAX)
        assert asked == [(cap // 2, cap)]
        assert cap // 2 <= got <= cap

    run()


def test_a_retry_delay_is_one_draw_between_half_the_cap_and_the_cap() -> None:
    """The cap doubles with each attempt and saturates; one draw decides, so every engine agrees on it (Q7)."""
    property_of_retry_delays(retry_delay)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda base, attempts, draw: retry_delay(base, attempts + 1, draw), id="doubles-once-too-often"),
        pytest.param(lambda base, attempts, draw: draw(0, base << min(attempts - 1, 62)), id="full-jitter"),
        pytest.param(
            lambda base, attempts, draw: draw(*[base * 2 ** min(attempts - 1, 64) // n for n in (2, 1)]), id="unbounded"
        ),
    ],
)
def test_the_property_of_retry_delays_finds_a_wrong_one(wrong: Callable[..., int]) -> None:
    """The negative control of the property above."""
    with pytest.raises(AssertionError):
        property_of_retry_delays(wrong)


def test_retry_delays_are_spread_evenly_over_all_their_seconds() -> None:
    """With a uniform draw each second of [cap // 2, cap] comes, about as often as every other."""
    source = random.Random(7)
    rounds = 11_000
    counts = Counter(retry_delay(5, 3, source.randint) for _ in range(rounds))
    assert set(counts) == set(range(10, 21))
    assert all(abs(count - rounds / 11) < 5 * (rounds / 11) ** 0.5 for count in counts.values())


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@given(st.integers(0, 10**22), st.sampled_from("smhd"))
@example(INT64_MAX, "s")
@example(INT64_MAX // 60 + 1, "m")
def test_a_spec_is_its_number_times_its_unit(number: int, unit: str) -> None:
    """From one second up to int64; beyond, it is refused (H1)."""
    spec = f"@every {number}{unit}"
    if 1 <= number * UNITS[unit] <= INT64_MAX:
        assert interval_seconds(spec) == number * UNITS[unit]
    else:
        with pytest.raises(InvalidSpecError) as caught:
            interval_seconds(spec)
        assert caught.value.spec == spec


@given(st.text() | st.integers() | st.none() | st.from_regex("@every ?-?[0-9\u0660-\u0669]*[a-zA-Z]?", fullmatch=True))
@example("* * * * *")
@example("@every 1.5s")
@example("@every 5s\n")
@example(" @every 5s")
@example("@every 5S")
@example("@every \u0663s")
@example("@every " + "9" * 5000 + "s")
def test_anything_but_a_spec_is_refused_with_its_own_error(spec: object) -> None:
    """Cron, fractions, signs, other digits, spaces: InvalidSpecError and never another error (H1)."""
    try:
        seconds = interval_seconds(spec)
    except InvalidSpecError as error:
        seconds, refused = 0, error.spec
    if seconds == 0:
        assert refused == spec
    else:
        assert isinstance(spec, str)
        assert spec.isascii()
        assert seconds == int(spec.removeprefix("@every ")[:-1]) * UNITS[spec[-1]]


def property_of_boundaries(due: Callable[[int, int, int], tuple[list[int], int]]) -> None:
    @settings(database=None, report_multiple_bugs=False)
    @given(INT64, NATURAL, INT64)
    @example(0, 1, 63)
    @example(0, 1, 64)
    @example(0, 10, 645)
    @example(INT64_MAX, 1, INT64_MAX)
    @example(INT64_MIN, 1, INT64_MAX)
    def run(next_fire: int, interval: int, now: int) -> None:
        fires, following = due(next_fire, interval, now)
        if now < next_fire or next_fire == INT64_MAX:
            assert (fires, following) == ([], next_fire)
            return
        elapsed = (now - next_fire) // interval + 1
        assert fires == [next_fire + number * interval for number in range(min(elapsed, FIRE_CAP))]
        assert fires[-1] <= now
        assert following > now or following == INT64_MAX
        assert following == clamp(next_fire + elapsed * interval)

    run()


def test_elapsed_boundaries_fire_oldest_first_and_the_next_is_after_now() -> None:
    """At most 64 after a gap; the rest are skipped (H4), and a boundary at the limit is never reached (H5)."""
    property_of_boundaries(due_boundaries)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda n, i, now: (due_boundaries(n, i, now)[0], now + i), id="drifts"),
        pytest.param(
            lambda n, i, now: (due_boundaries(n, i, now)[0][: FIRE_CAP - 1], due_boundaries(n, i, now)[1]), id="63"
        ),
        pytest.param(lambda n, i, now: due_boundaries(n, i, now - 1), id="late"),
    ],
)
def test_the_property_of_boundaries_finds_a_wrong_one(wrong: Callable[..., tuple[list[int], int]]) -> None:
    """The negative control of the property above."""
    with pytest.raises(AssertionError):
        property_of_boundaries(wrong)
