"""The input: a file of JSON lines, each line one webhook, checked before any of it is used."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from alkstore_core import encode_payload
from alkstore_core.errors import CodecError
from pydantic import BaseModel, Field, JsonValue, ValidationError

Word = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
"""Text that every database can keep in a column."""


class InputError(Exception):
    """The file cannot be used; the message names the line."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One line of the input.

    Attributes:
        line: its number in the file, from 1; what the delivery is known by.
        id: the sender's own id.
        event: what happened, such as ``order.created``.
        payload: the sender's JSON.
        body: the same, encoded: what the receiver must get, to the byte.
    """

    line: int
    id: str
    event: str
    payload: dict[str, JsonValue]
    body: str


class _Record(BaseModel):
    id: Word
    event: Word
    payload: dict[str, JsonValue]


def read_webhooks(path: Path) -> Iterator[Webhook]:
    """Every webhook in the file, in order; blank lines are passed over.

    Raises:
        InputError: the file cannot be read, has no webhook, or a line is not UTF-8, not JSON, or not a webhook.
    """
    found = False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found = True
                    yield _webhook(number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except _LineError as error:
        raise InputError(f"{path}, {error}") from error
    if not found:
        raise InputError(f"{path} is empty: give it one JSON object a line, with id, event and payload")


class _LineError(Exception):
    """What is wrong with which line."""


def _webhook(number: int, line: bytes) -> Webhook:
    try:
        record = _Record.model_validate_json(line.decode())
        body = encode_payload(record.payload).decode()
        return Webhook(number, record.id, record.event, record.payload, body)
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte 0x{line[error.start]:02x} at column {error.start + 1}"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].replace(" at line 1 column ", " at column ")
        reason = f"{where}: {message}" if where else message
    except CodecError as error:
        reason = f"payload: {error}"
    raise _LineError(f"line {number}: {reason}")
