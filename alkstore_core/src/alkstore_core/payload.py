"""Payloads: any JSON value in, the same bytes on every engine, the same value out (contract section 4).

Two encoders give one result. The fast one checks a payload of plain values level by level and hands it to the
C encoder of the standard library. Whatever it does not take (models, dataclasses, subclasses, a caller deep
in the stack, and everything that must be refused) goes to the careful one, which walks with a stack of its own,
knows the path to every value, and defines what is right. A property test holds the two to the same bytes.
"""

import dataclasses
import json
import math
from collections.abc import Collection, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, overload

from pydantic import BaseModel, TypeAdapter

from alkstore_core.errors import CodecError, shown
from alkstore_core.names import failure_text

T = TypeVar("T")

MAX_DEPTH = 127
"""The most containers that may be nested in one another (P2)."""
_LABEL_LENGTH = 80
"""The longest key that an error shows as it is."""
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_encode_str = json.encoder.encode_basestring  # the C one where there is one; non-ASCII stays as it is
_PLAIN = (dict, str, list, int, tuple, float, type(None))
_CHECKED_BY_ENCODER = frozenset({str, bool, type(None), float})
_FAST_CONTAINERS = 100_000
"""Beyond so many containers the fast check gives up: a cyclic value would never end."""


def encode_payload(value: object) -> bytes:
    """The bytes that every engine stores for `value` (P1).

    Args:
        value: None, bool, int, float, str, list, tuple, dict with str keys, and pydantic models and dataclasses
            anywhere in it, which are dumped in JSON mode.

    Returns:
        Compact UTF-8 JSON, keys in the order given, floats in their shortest form that reads back the same.

    Raises:
        CodecError: something in it would not come back as it was (P2): NaN or infinity, a lone surrogate, more than
            127 nested containers, a cycle, an integer outside -2^63..2^64-1, a key that is not a str, or bytes,
            datetimes, Decimals, UUIDs, sets and other objects outside a model.
    """
    try:
        if not isinstance(value, _PLAIN) and _is_model(value):
            value = _dumped(value, [])
        if _is_plain(value):
            try:
                return _encode(value).encode()
            except (ValueError, RecursionError):
                pass  # the careful encoder says what is wrong, or manages
        return "".join(_pieces(value)).encode()
    except RecursionError as error:  # nothing here recurses, so the caller has used its stack up
        raise CodecError("no stack is left to encode the payload: encode it before recursing so deep") from error


def _is_plain(value: object) -> bool:
    """Whether the C encoder can be trusted with `value`: it refuses bad floats and surrogates by itself.

    One loop over each container, and integers checked on the way: 10 us for a body of 10 kB that takes 34 to encode.
    """
    if type(value) in _CHECKED_BY_ENCODER:
        return True
    if type(value) is int:
        return MIN_INTEGER <= value <= MAX_INTEGER
    level: list[Any] = [value]
    depth = containers = 0
    while level:
        depth += 1
        containers += len(level)
        if depth > MAX_DEPTH or containers > _FAST_CONTAINERS:
            return False
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                for key, member in item.items():
                    if type(key) is not str:
                        return False
                    kind = type(member)
                    if kind in _CHECKED_BY_ENCODER:
                        continue
                    if kind is not int:
                        below.append(member)
                    elif not MIN_INTEGER <= member <= MAX_INTEGER:
                        return False
            elif kind is list or kind is tuple:
                for member in item:
                    kind = type(member)
                    if kind in _CHECKED_BY_ENCODER:
                        continue
                    if kind is not int:
                        below.append(member)
                    elif not MIN_INTEGER <= member <= MAX_INTEGER:
                        return False
            else:
                return False
        level = below
    return True


class _Frame:
    """One open container of the careful walk."""

    __slots__ = ("close", "first", "identity", "items", "label", "value")

    def __init__(self, value: object, items: Iterator[tuple[object, object]], close: str) -> None:
        self.value = value  # kept alive, so that its id stays its own
        self.identity = id(value)
        self.items = items
        self.close = close
        self.first = True
        self.label: object = None


def _pieces(root: object) -> Iterator[str]:
    frames: list[_Frame] = []
    opened: set[int] = set()
    value = root
    while True:
        text = _scalar(value, frames)
        if text is None:
            value = _plain_form(value, frames)
            if isinstance(value, dict | list | tuple):
                if id(value) in opened:
                    raise CodecError(f"the payload at {_path(frames)} contains itself: a cycle has no JSON form")
                if len(frames) == MAX_DEPTH:
                    raise CodecError(
                        f"the payload at {_path(frames)} is nested more than {MAX_DEPTH} containers deep: "
                        "flatten it, or store the inner part as a str"
                    )
                mapping = isinstance(value, dict)
                frames.append(
                    _Frame(value, iter(value.items()), "}")
                    if isinstance(value, dict)
                    else _Frame(value, iter(enumerate(value)), "]")
                )
                opened.add(id(value))
                yield "{" if mapping else "["
            else:
                continue  # a model that dumps to a scalar: look at it again
        else:
            yield text
        while frames:
            frame = frames[-1]
            try:
                label, value = next(frame.items)
            except StopIteration:
                yield frame.close
                opened.discard(frame.identity)
                frames.pop()
                continue
            frame.label = label
            separator = "" if frame.first else ","
            frame.first = False
            if frame.close == "}":
                if not isinstance(label, str):
                    raise CodecError(
                        f"the payload at {_path(frames[:-1])} has the key {shown(label)} of type "
                        f"{type(label).__name__}: JSON keys are str, so convert it or use a model"
                    )
                yield f"{separator}{_checked_str(label, frames)}:"
            elif separator:
                yield separator
            break
        else:
            return


def _scalar(value: object, frames: list[_Frame]) -> str | None:
    """The JSON of a scalar, or None where `value` is something else."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _checked_str(value, frames)
    if isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise CodecError(
                f"the payload at {_path(frames)} is the integer {shown(value)}, outside -2^63..2^64-1: "
                "store it as a str"
            )
        return int.__repr__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CodecError(
                f"the payload at {_path(frames)} is {float.__repr__(value)}, which JSON cannot carry: use None or a str"
            )
        return float.__repr__(value)
    return None


def _checked_str(value: str, frames: list[_Frame]) -> str:
    try:
        str.encode(value)
    except UnicodeEncodeError as error:
        raise CodecError(
            f"the payload at {_path(frames)} is a str with a lone surrogate at index {error.start}, "
            "which is not valid Unicode: remove it"
        ) from error
    return _encode_str(value)


def _plain_form(value: object, frames: list[_Frame]) -> object:
    """A container as it is, a model or dataclass as its JSON-mode dump; anything else is refused."""
    if isinstance(value, dict | list | tuple):
        return value
    if _is_model(value):
        return _dumped(value, frames)
    raise CodecError(
        f"the payload at {_path(frames)} is a {type(value).__name__}, which has no one JSON form: "
        "convert it, or use a model (a pydantic model or a dataclass) that says how it is written"
    )


def _is_model(value: object) -> bool:
    return isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _dumped(model: object, frames: list[_Frame]) -> object:
    """The JSON-mode dump of a pydantic model or a dataclass, under the aliases that it is validated by."""
    try:
        # Without the warnings pydantic would write a value of another type than the field's, and say nothing here.
        if isinstance(model, BaseModel):
            dumped: object = model.model_dump(mode="json", by_alias=True, warnings="error")
            meant: object = model.model_dump(by_alias=True, warnings="none")
        else:
            adapter = _adapter(type(model))
            dumped = adapter.dump_python(model, mode="json", by_alias=True, warnings="error")
            meant = adapter.dump_python(model, by_alias=True, warnings="none")
        lost = _lost(dumped, meant)
    except Exception as error:
        # A property, a serializer or a type of the caller's can raise anything (P2: never another error).
        raise CodecError(
            f"the {type(model).__name__} in the payload at {_path(frames)} does not dump: {failure_text(error)}"
        ) from error
    if lost is not None:
        raise CodecError(f"the {type(model).__name__} in the payload at {_path(frames)} holds {lost}")
    return dumped


def _lost(dumped: object, meant: object) -> str | None:
    """What of `meant` is not in `dumped`: pydantic writes some things in a field of no stated type as others."""
    pairs = [(dumped, meant)]
    while pairs:
        written, value = pairs.pop()
        if isinstance(value, Enum):
            value = value.value
        if written is None:
            if isinstance(value, float):
                return f"{value!r}, which JSON cannot carry: use None or a str"
        elif isinstance(written, dict) and isinstance(value, dict):
            if len(written) != len(value) or any(isinstance(key, float) and not math.isfinite(key) for key in value):
                return f"the dict {shown(value)}, whose keys cannot be told apart in JSON: give them as different str"
            pairs.extend(zip(written.values(), value.values(), strict=False))
        elif isinstance(written, list) and isinstance(value, Collection):
            pairs.extend(zip(written, value, strict=False))
    return None


def _path(frames: list[_Frame]) -> str:
    return "$" + "".join(
        f".{frame.label}"
        if isinstance(frame.label, str) and len(frame.label) <= _LABEL_LENGTH and frame.label.isprintable()
        else f"[{shown(frame.label)}]"
        for frame in frames
        if frame.label is not None
    )


@overload
def decode_payload(payload: bytes, kind: type[T]) -> T: ...
@overload
def decode_payload(payload: bytes, kind: Any) -> Any: ...
def decode_payload(payload: bytes, kind: Any) -> Any:
    """The value that `payload` holds, validated to `kind` by pydantic (P3).

    Raises:
        CodecError: it is not JSON, or does not fit `kind`, or pydantic cannot handle `kind`; its error is the cause.
    """
    try:
        decoded = _adapter(kind).validate_json(payload)
    except Exception as error:
        # pydantic's errors, for the payload or for a `kind` unknown to it; a validator of the caller's raises anything.
        name = getattr(kind, "__name__", shown(kind))
        raise CodecError(f"the payload does not decode to {name}: {failure_text(error)}") from error
    return decoded


@lru_cache(maxsize=1024)
def _cached_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        hash(kind)
    except TypeError:
        return TypeAdapter(kind)  # Annotated[...] over something unhashable
    return _cached_adapter(kind)
