"""The input: what is accepted, and that a refusal names the line and what is wrong with it."""

import json
import re

import pytest

from webhooks_demo.intake import InputError, Webhook, read_webhooks

GOOD = b'{"id": "1", "event": "ping", "payload": {}}\n'


def read(tmp_path, content):
    path = tmp_path / "input.jsonl"
    path.write_bytes(content)
    return list(read_webhooks(path))


def test_a_line_becomes_a_webhook(tmp_path):
    """Number, id, event, payload, and the payload as it is to be delivered; a further member is passed over."""
    line = '{"event": "order.created", "id": "evt_1", "payload": {"städte": ["東京", 1.50]}, "more": 1}'
    assert read(tmp_path, GOOD + line.encode()) == [
        Webhook(1, "1", "ping", {}, "{}"),
        Webhook(2, "evt_1", "order.created", {"städte": ["東京", 1.5]}, '{"städte":["東京",1.5]}'),
    ]


def test_blank_lines_a_byte_order_mark_and_carriage_returns_do_no_harm(tmp_path):
    """They are passed over, and lines keep their numbers."""
    content = b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\n  \n" + GOOD.rstrip()
    assert [webhook.line for webhook in read(tmp_path, content)] == [1, 4]


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path):
    """A line separator inside a string is text."""
    (webhook,) = read(tmp_path, json.dumps({"id": "1", "event": "e", "payload": {"t": "a\u2028b\x85c"}}).encode())
    assert webhook.payload == {"t": "a\u2028b\x85c"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{nonsense", "Invalid JSON"),
        (GOOD[:-5], "Invalid JSON"),
        (b"\xff\xfe", "not UTF-8: byte 0xff at column 1"),
        (b'{"id": "\xc3("}', "not UTF-8: byte 0xc3 at column 9"),
        (b"[]", "Input should be an object"),
        (b'{"event": "e", "payload": {}}', "id: Field required"),
        (b'{"id": 1, "event": "e", "payload": {}}', "id: Input should be a valid string"),
        (b'{"id": "1", "event": "", "payload": {}}', "event: String should have at least 1 character"),
        (b'{"id": "1", "event": "a\\u0000", "payload": {}}', "event: String should match"),
        (b'{"id": "1", "event": "e", "payload": 3}', "payload: Input should be an object"),
        (b'{"id": "1", "event": "e", "payload": {"x": NaN}}', "payload: .* nan"),
        (b'{"id": "1", "event": "e", "payload": {"x": 1e999}}', "payload: .* inf"),
        (b'{"id": "1", "event": "e", "payload": {"x": 18446744073709551616}}', "payload: .* 18446744073709551616"),
        (b'{"id": "1", "event": "e", "payload": {"x": "\\ud800"}}', "Invalid JSON"),
        (b'{"id": "1", "event": "e", "payload": {"x": ' + b"[" * 127 + b"]" * 127 + b"}}", "payload: .* 127"),
        (b'{"id": "1", "event": "e", "payload": {"x": ' + b"[" * 9999 + b"]" * 9999 + b"}}", "Invalid JSON"),
    ],
)
def test_a_bad_line_is_refused_by_number_and_reason(tmp_path, line, message):
    """Not UTF-8, not JSON, not a webhook, or not to be encoded without loss: the error says which line, and why."""
    with pytest.raises(InputError, match=rf"input\.jsonl, line 3: {message}"):
        read(tmp_path, GOOD + GOOD + line + b"\n" + GOOD)


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n"])
def test_a_file_without_webhooks_is_refused(tmp_path, content):
    """Empty, or blank lines only."""
    with pytest.raises(InputError, match="is empty"):
        read(tmp_path, content)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    """A folder, say: the error names it."""
    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        list(read_webhooks(tmp_path))
