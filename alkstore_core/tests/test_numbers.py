"""Numbers: what is an int64, and arithmetic that saturates (V5, V6)."""

from collections.abc import Callable
from enum import IntEnum

import pytest
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import (
    INT64_MAX,
    INT64_MIN,
    at_least,
    duration,
    int64,
    optional_int64,
    saturating_add,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

EDGES = [INT64_MIN, INT64_MIN + 1, -(2**31), -1, 0, 1, 2**31, INT64_MAX - 1, INT64_MAX]
INT64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(EDGES)
ANY_INT = st.integers() | st.sampled_from([INT64_MIN - 1, INT64_MAX + 1, 10**5000])


@given(ANY_INT)
@example(10**5000)
def test_an_int_is_given_back_or_is_a_value_error(value: int) -> None:
    """Within int64 it is itself; outside, the error is a ValueError however long the number is."""
    if INT64_MIN <= value <= INT64_MAX:
        assert int64("delay", value) == value
    else:
        with pytest.raises(ValueError, match=r"^delay .* is outside int64"):
            int64("delay", value)


@pytest.mark.parametrize("value", [True, False, 1.0, float("nan"), "1", b"1", None, [10**5000]])
def test_what_is_no_int_is_a_type_error(value: object) -> None:
    """A bool and a float are not ints here (V5)."""
    with pytest.raises(TypeError, match=r"^delay must be an int, not "):
        int64("delay", value)


class Level(IntEnum):
    HIGH = 3


def test_a_member_of_an_int_enum_becomes_its_number() -> None:
    """Engines bind plain ints."""
    assert type(int64("priority", Level.HIGH)) is int
    assert int64("priority", Level.HIGH) == 3


def test_none_stands_for_not_given() -> None:
    """Where an option can be left out."""
    assert optional_int64("delay", None) is None
    assert optional_int64("delay", 5) == 5


@given(INT64, INT64)
def test_at_least_gives_back_what_is_high_enough(minimum: int, value: int) -> None:
    """Below the minimum: ValueError (V6)."""
    if value >= minimum:
        assert at_least(minimum, "max_attempts", value) == value
    else:
        with pytest.raises(ValueError, match=r"must be at least"):
            at_least(minimum, "max_attempts", value)


@given(INT64)
def test_a_duration_of_zero_or_less_is_a_database_error_with_a_cause(ttl: int) -> None:
    """A lock's ttl is refused as by the engine (V5)."""
    if ttl > 0:
        assert duration("ttl", ttl) == ttl
    else:
        with pytest.raises(DatabaseError, match=r"^ttl must be at least 1 second") as caught:
            duration("ttl", ttl)
        assert isinstance(caught.value.__cause__, ValueError)


def property_of_saturation(add: Callable[[int, int], int]) -> None:
    @settings(database=None, report_multiple_bugs=False)
    @given(INT64, INT64)
    @example(INT64_MAX, 1)
    @example(INT64_MIN, -1)
    def run(left: int, right: int) -> None:
        assert add(left, right) == sorted((INT64_MIN, left + right, INT64_MAX))[1]

    run()


def test_sums_saturate_at_the_int64_limits() -> None:
    """The sum of two int64, held within int64 (V5)."""
    property_of_saturation(saturating_add)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda left, right: left + right, id="grows"),
        pytest.param(lambda left, right: (left + right + 2**63) % 2**64 - 2**63, id="wraps"),
        pytest.param(lambda left, right: min(left + right, INT64_MAX), id="one-side-only"),
    ],
)
def test_the_property_of_saturation_finds_a_wrong_sum(wrong: Callable[[int, int], int]) -> None:
    """The negative control of the property above."""
    with pytest.raises(AssertionError):
        property_of_saturation(wrong)
