"""Payloads: the same value back, or a CodecError, and never anything else (P1 to P3)."""

import dataclasses
import datetime as dt
import decimal
import json
import math
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import pytest
from alkstore_core.errors import CodecError
from alkstore_core.payload import MAX_DEPTH, _is_plain, _pieces, decode_payload, encode_payload
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer

INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**63, 2**64 - 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1e22, 1e16, 0.1, 1.5e300])
TEXT = st.text(st.characters(exclude_categories=("Cs",))) | st.sampled_from(['"\\\n\x00\x1f\x7f', "é\u2028\U0001f600"])
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)
BAD = (
    st.sampled_from([math.nan, math.inf, -math.inf, 2**64, -(2**63) - 1, "\ud800", b"x", {1}, object(), int])
    | st.sampled_from([dt.datetime(2020, 1, 1), decimal.Decimal(1), uuid.UUID(int=1), 1j, range(3), Exception])
    | st.sampled_from([{1: 1}, {None: 1}, {True: 1}, {b"k": 1}, {"\udfff": 1}, {(1,): 1}])
)
ANYTHING = st.recursive(
    SCALARS | BAD, lambda inner: st.lists(inner) | st.dictionaries(TEXT | st.integers(), inner), max_leaves=10
)


def careful(value: object) -> bytes:
    """What the encoder that defines what is right says."""
    return "".join(_pieces(value)).encode()


def as_read_back(value: object) -> object:
    """Tuples come back as lists, and that is all that changes."""
    if isinstance(value, list | tuple):
        return [as_read_back(member) for member in value]
    if isinstance(value, dict):
        return {key: as_read_back(member) for key, member in value.items()}
    return value


def same(left: object, right: object) -> bool:
    """Equal in type and value, the sign of zero and the order of keys included."""
    return type(left) is type(right) and repr(left) == repr(right)


def result(encode: Callable[[object], bytes], value: object) -> bytes | type[CodecError]:
    """The bytes, or that it was refused. Any other error goes on."""
    try:
        return encode(value)
    except CodecError:
        return CodecError


def property_of_round_trips(encode: Callable[[object], bytes]) -> None:
    @settings(database=None, report_multiple_bugs=False)
    @given(VALUES)
    @example({"b": 1, "a": [1.0, -0.0, True, None, "ü"]})
    @example(2**64 - 1)
    def run(value: object) -> None:
        encoded = encode(value)
        read = as_read_back(value)
        assert same(json.loads(encoded), read)
        assert same(decode_payload(encoded, object), read)
        # Compact, unescaped, in order: what the standard library writes with the same settings.
        assert encoded == json.dumps(read, ensure_ascii=False, separators=(",", ":")).encode()

    run()


def test_a_json_value_comes_back_as_it_was() -> None:
    """Compact UTF-8 in the order given, and every float and integer to the bit (P1)."""
    property_of_round_trips(encode_payload)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda value: json.dumps(value).encode(), id="spaces-and-escapes"),
        pytest.param(lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), id="sorts"),
        pytest.param(lambda value: careful(value).replace(b"-0.0", b"0.0"), id="loses-a-sign"),
    ],
)
def test_the_property_of_round_trips_finds_a_wrong_encoder(wrong: Callable[[object], bytes]) -> None:
    """The negative control of the property above."""
    with pytest.raises((AssertionError, UnicodeEncodeError)):
        property_of_round_trips(wrong)


def property_of_agreement(fast: Callable[[object], bytes]) -> None:
    @settings(database=None, report_multiple_bugs=False, max_examples=400)
    @given(VALUES | ANYTHING)
    @example([2**64])
    @example({1: 1})
    @example([math.nan])
    @example(["\ud800"])
    @example([[[{"a": {"b": [b""]}}]]])
    def run(value: object) -> None:
        assert result(fast, value) == result(careful, value)

    run()


def test_the_fast_encoder_and_the_careful_one_agree() -> None:
    """The same bytes, or both refuse; and neither ever raises anything but CodecError (P2)."""
    property_of_agreement(encode_payload)


@pytest.mark.parametrize("value", [10**5000, [-(10**5000)], {10**5000: 1}, {"k": (10**5000,)}], ids="abcd")
def test_an_integer_too_long_to_be_shown_is_refused_like_any_other(value: object) -> None:
    """``str`` of it raises, but the refusal does not (P2)."""
    assert result(encode_payload, value) is result(careful, value) is CodecError


def unchecked(value: object) -> bytes:
    """The C encoder alone, as if `_is_plain` always agreed."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise CodecError from error


def test_the_property_of_agreement_finds_an_unchecked_encoder() -> None:
    """The negative control: alone it lets integers and keys through that would not come back."""
    with pytest.raises(AssertionError):
        property_of_agreement(unchecked)


def nested(depth: int, container: str) -> object:
    """`depth` containers in one another."""
    value: object = 1
    for level in range(depth):
        kind = container if container != "mixed" else ("list", "dict", "tuple")[level % 3]
        value = [value] if kind == "list" else (value,) if kind == "tuple" else {"k": value}
    return value


@pytest.mark.parametrize("container", ["list", "tuple", "dict", "mixed"])
def test_exactly_127_nested_containers_round_trip_and_128_do_not(container: str) -> None:
    """On both encoders, and through the decoder (P2)."""
    deep = nested(MAX_DEPTH, container)
    assert encode_payload(deep) == careful(deep)
    assert same(decode_payload(encode_payload(deep), object), as_read_back(deep))
    for encode in (encode_payload, careful):
        with pytest.raises(CodecError, match="nested more than 127 containers deep"):
            encode(nested(MAX_DEPTH + 1, container))
    with pytest.raises(CodecError, match="nested more than 127 containers deep"):
        encode_payload(nested(200_000, container))
    empty: object = []
    for _ in range(MAX_DEPTH - 1):
        empty = [empty]
    assert encode_payload(empty) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


def test_a_cycle_is_refused_with_the_path_to_it() -> None:
    """Through lists, dicts and models (P2)."""
    ring: dict[str, Any] = {"a": [1, {}]}
    ring["a"][1]["b"] = ring
    with pytest.raises(CodecError, match=r"at \$\.a\[1\]\.b contains itself"):
        encode_payload(ring)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError, match=r"at \$\[0\] contains itself"):
        encode_payload(loop)
    box = Box(x=[])
    box.x.append(box)
    with pytest.raises(CodecError):
        encode_payload(box)


def test_a_value_that_is_shared_is_no_cycle() -> None:
    """A graph without cycles is written out, as often as it is referred to."""
    leaf = {"n": 1}
    shared = [leaf, leaf, {"again": leaf}]
    assert encode_payload(shared) == careful(shared) == b'[{"n":1},{"n":1},{"again":{"n":1}}]'
    doubling: object = 1
    for _ in range(12):
        doubling = [doubling, doubling]
    assert encode_payload(doubling) == careful(doubling)


def test_a_wide_payload_is_encoded_all_the_same() -> None:
    """Beyond what the fast check looks at, the careful encoder goes on."""
    wide: list[Any] = [[] for _ in range(100_001)]
    assert not _is_plain(wide)
    assert encode_payload(wide) == b"[" + b",".join([b"[]"] * 100_001) + b"]"
    assert _is_plain(list(range(200_000)))


def test_a_caller_deep_in_the_stack_gets_the_bytes_or_a_codec_error() -> None:
    """However little of the stack is left, no RecursionError comes out of it (P2)."""
    deep = nested(MAX_DEPTH, "mixed")
    wanted = encode_payload(deep)
    got: list[object] = []

    def descend() -> None:
        with suppress(RecursionError):
            descend()
        # At first only a frame or two are left here; one level up a few more, and so on.
        if len(got) < 150:
            try:
                got.append(result(encode_payload, deep))
            except RecursionError:
                got.append("the call itself did not fit")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1200)
    try:
        descend()
    finally:
        sys.setrecursionlimit(limit)
    assert wanted in got
    fitted = [one for one in got if one != "the call itself did not fit"]
    assert all(one in (wanted, CodecError) for one in fitted)
    assert len(got) - len(fitted) <= 3


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [0, {"b": b"x"}]}, r"\$\.a\[1\]\.b is a bytes"),
        ([dt.date(2020, 1, 1)], r"\$\[0\] is a date"),
        ({"d": decimal.Decimal(1)}, r"\$\.d is a Decimal"),
        ({"u": uuid.UUID(int=0)}, r"\$\.u is a UUID"),
        ({"s": {1}}, r"\$\.s is a set"),
        ([[math.nan]], r"\$\[0\]\[0\] is nan"),
        ({"i": 2**64}, r"\$\.i is the integer 18446744073709551616, outside"),
        ({"t": "a\ud800"}, r"\$\.t is a str with a lone surrogate at index 1"),
        ({"k": {7: 1}}, r"\$\.k has the key 7 of type int"),
        (object, r"\$ is a type"),
    ],
)
def test_a_refusal_says_where_what_and_what_to_do(value: object, path: str) -> None:
    """The path to the value, and the remedy (P2, E3)."""
    with pytest.raises(CodecError, match=path + ".*: "):
        encode_payload(value)


# Models and dataclasses


class Box(BaseModel):
    x: Any


class Typed(BaseModel):
    at: dt.datetime
    cost: decimal.Decimal
    tags: set[str]
    raw: bytes


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Broken(BaseModel):
    @computed_field
    @property
    def total(self) -> int:
        raise KeyError("total")


class Strange:
    pass


@dataclasses.dataclass
class Point:
    x: int
    y: float | None = None


@dataclasses.dataclass
class Holder:
    strange: Strange


class Pair(NamedTuple):
    left: int
    right: str


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (Point(1, 2.5), b'{"x":1,"y":2.5}'),
        ({"p": [Point(1)]}, b'{"p":[{"x":1,"y":null}]}'),
        (RootModel[int](5), b"5"),
        ([RootModel[str]("a")], b'["a"]'),
        (Box(x=Box(x=Point(1))), b'{"x":{"x":{"x":1,"y":null}}}'),
        (Aliased(orderId=7), b'{"orderId":7}'),
        (Pair(1, "a"), b'[1,"a"]'),
        ([Level.HIGH, Colour.RED, {Colour.RED: Level.HIGH}], b'[3,"red",{"red":3}]'),
        (
            Typed(at=dt.datetime(2020, 1, 1), cost=decimal.Decimal("1.10"), tags={"a"}, raw=b"x"),
            b'{"at":"2020-01-01T00:00:00","cost":"1.10","tags":["a"],"raw":"x"}',
        ),
    ],
)
def test_models_dataclasses_and_subclasses_are_written_as_what_they_hold(value: object, encoded: bytes) -> None:
    """A model anywhere, dumped in JSON mode under its aliases; enums and named tuples as plain values (P1)."""
    assert encode_payload(value) == encoded == careful(value)


@pytest.mark.parametrize(
    "value",
    [
        Typed(at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), cost=decimal.Decimal("1.10"), tags={"a"}, raw=b"x"),
        Aliased(orderId=7),
        Point(1, 2.5),
        Box(x={"a": [1, None, 2.5]}),
    ],
)
def test_a_model_comes_back_by_its_own_type(value: object) -> None:
    """What encode_payload wrote of it, payload_as reads (P3)."""
    assert decode_payload(encode_payload(value), type(value)) == value


class Custom(BaseModel):
    x: float

    @field_serializer("x", when_used="json")
    def as_text(self, x: float) -> str:
        return repr(x)


class Failing(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: Any = None

    @field_serializer("x")
    def fail(self, _: object) -> object:
        raise OSError("no")


@pytest.mark.parametrize(
    "value",
    [
        Box(x=math.inf),
        Box(x={"k": [1, math.nan]}),
        Box(x=Box(x=-math.inf)),
        [Point(1, math.nan)],
        Box(x=b"\xff"),
        Box(x="\ud800"),
        Box(x=2**64),
        Box(x=Strange()),
        Point("not an int"),  # type: ignore[arg-type]
        Point.__new__(Point),
        Holder(Strange()),
        Broken(),
        Failing(),
        {"deep": [Broken()]},
    ],
)
def test_a_model_that_would_not_come_back_is_a_codec_error(value: object) -> None:
    """Also where pydantic would write null for an infinity, or the model's own code raises (P2)."""
    assert result(encode_payload, value) is CodecError
    assert result(careful, value) is CodecError


def test_a_model_that_says_how_it_is_written_may_hold_an_infinity() -> None:
    """Its serializer made a str of it."""
    assert encode_payload(Custom(x=math.inf)) == b'{"x":"inf"}'
    assert encode_payload(Box(x=None)) == b'{"x":null}'


# Decoding


@given(st.binary(max_size=30) | st.sampled_from([b"", b"{", b"[1", b'"\xff"', b"\x00", b"[" * 100_000]))
@pytest.mark.parametrize("kind", [dict, list, int, Point, Typed, Box, object, list[Point]])
def test_bytes_decode_to_the_kind_asked_for_or_are_a_codec_error(kind: Any, payload: bytes) -> None:
    """An undecodable payload is never another error (P3, W5)."""
    cause: BaseException | None = None
    try:
        decoded = decode_payload(payload, kind)
    except CodecError as error:
        decoded, cause = None, error.__cause__
    if cause is None:
        assert isinstance(decoded, getattr(kind, "__origin__", kind))


@pytest.mark.parametrize("kind", [Strange, list["Nowhere"], "Nowhere", 7])  # type: ignore[name-defined]  # noqa: F821
def test_a_kind_that_pydantic_does_not_know_is_a_codec_error(kind: Any) -> None:
    """Said in words of alkstore, with pydantic's error as the cause (E3)."""
    with pytest.raises(CodecError, match=r"^the payload does not decode to .*: "):
        decode_payload(b"{}", kind)
