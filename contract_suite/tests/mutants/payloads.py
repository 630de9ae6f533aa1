"""Engines that store other bytes than they were given, or take what does not come back."""

import asyncio
import json

import pydantic
from alkstore_contract_suite.mutation import mutant
from alkstore_core import (
    Job,
    Queue,
    Store,
    Stream,
    Transaction,
    encode_payload,
    notify,
    payload,
    queues,
    scheduler,
    streams,
    transaction,
    values,
)
from alkstore_core.errors import CodecError, PayloadTooLargeError
from alkstore_mem import scheduler as mem_scheduler
from alkstore_mem.notify import NotifySession
from alkstore_mem.queues import QueueSession
from alkstore_mem.streams import StreamSession

_USERS = (notify, queues, scheduler, streams, transaction)


def _each_encoder(patch, encoder):
    for module in _USERS:
        patch.setattr(module, "encode_payload", encoder)


@mutant(
    kills=[
        "payloads/stored_as_compact_json",
        "payloads/stored_the_same_when_enlisted",
        "payloads/claimed_and_received_as_stored",
        "payloads/schedules_carry_the_same_bytes",
    ]
)
def escapes_what_is_not_ascii(patch):
    def encoder(value):
        return json.dumps(json.loads(encode_payload(value)), separators=(",", ":")).encode()

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/stored_as_compact_json", "payloads/stored_the_same_when_enlisted"])
def sorts_keys(patch):
    def encoder(value):
        decoded = json.loads(encode_payload(value))
        return json.dumps(decoded, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/claimed_and_received_as_stored"])
def normalizes_what_it_reads(patch):
    right = StreamSession.read_settled_events

    async def read_settled_events(self, *given):
        from dataclasses import replace

        events = await right(self, *given)
        return [replace(event, payload=json.dumps(json.loads(event.payload)).encode()) for event in events]

    patch.setattr(StreamSession, "read_settled_events", read_settled_events)


@mutant(kills=["payloads/schedules_carry_the_same_bytes"])
def encodes_schedules_twice(patch):
    right = mem_scheduler.insert
    patch.setattr(
        mem_scheduler,
        "insert",
        lambda changes, now, queue, payloads, stamp: right(
            changes, now, queue, [json.dumps(each.decode()).encode() for each in payloads], stamp
        ),
    )


@mutant(kills=["payloads/encoded_before_the_first_await"])
def encodes_when_it_gets_to_it(patch):
    right = Queue.enqueue

    async def enqueue(self, value, **options):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await right(self, value, **options)

    patch.setattr(Queue, "enqueue", enqueue)


@mutant(kills=["payloads/what_is_not_json_is_refused", "payloads/refused_payloads_leave_nothing"])
def encodes_as_the_standard_library_does(patch):
    def encoder(value):
        try:
            return encode_payload(value)
        except CodecError:
            try:
                return json.dumps(value).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise CodecError(f"{error} at $[0] $.a[0] $[0].b: use a model") from error

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/what_is_not_json_is_refused"])
def allows_one_container_more(patch):
    patch.setattr(payload, "MAX_DEPTH", 128)


@mutant(kills=["payloads/what_is_not_json_is_refused"])
def allows_integers_of_any_size(patch):
    patch.setattr(payload, "MAX_INTEGER", 10**6000)


@mutant(kills=["payloads/what_has_many_forms_needs_a_model", "payloads/refused_payloads_leave_nothing"])
def writes_what_pydantic_can_write(patch):
    def encoder(value):
        try:
            return encode_payload(value)
        except CodecError as refused:
            try:
                return pydantic.TypeAdapter(object).dump_json(value)
            except Exception:
                raise refused from None

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/what_is_not_json_is_refused", "payloads/what_has_many_forms_needs_a_model"])
def does_not_say_where(patch):
    patch.setattr(payload, "_path", lambda _: "somewhere")


@mutant(kills=["payloads/what_is_not_json_is_refused", "payloads/what_has_many_forms_needs_a_model"])
def refuses_after_a_round_trip(patch):
    right = Stream.publish

    async def publish(self, value, **options):
        await self.get_offset("checked")
        return await right(self, value, **options)

    patch.setattr(Stream, "publish", publish)


@mutant(kills=["payloads/refused_payloads_leave_nothing"])
def enqueues_many_until_one_is_refused(patch):
    right = Queue.enqueue_many

    async def enqueue_many(self, values, **options):
        return [job_id for value in values for job_id in await right(self, [value], **options)]

    patch.setattr(Queue, "enqueue_many", enqueue_many)


@mutant(kills=["payloads/model_that_does_not_dump_is_refused"])
def lets_a_models_error_through(patch):
    def encoder(value):
        try:
            return encode_payload(value)
        except CodecError as error:
            raise error.__cause__ or error from None

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/deep_callers_are_safe"])
def walks_by_recursion(patch):
    def walk(value):
        for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(member)

    def encoder(value):
        walk(value)
        return encode_payload(value)

    _each_encoder(patch, encoder)


@mutant(kills=["payloads/payloads_decode_to_what_is_asked", "payloads/payloads_that_do_not_fit_are_refused"])
def decodes_without_validating(patch):
    patch.setattr(values, "decode_payload", lambda encoded, _: json.loads(encoded))


@mutant(kills=["payloads/payloads_that_do_not_fit_are_refused"])
def lets_pydantics_error_through(patch):
    patch.setattr(values, "decode_payload", lambda encoded, kind: pydantic.TypeAdapter(kind).validate_json(encoded))


@mutant(kills=["payloads/payloads_that_do_not_fit_are_refused"])
def gives_none_where_it_does_not_fit(patch):
    right = Job.payload_as

    def payload_as(self, kind):
        try:
            return right(self, kind)
        except CodecError:
            return None

    patch.setattr(Job, "payload_as", payload_as)


def _limited(patch, limit, size_of):
    right = NotifySession.notify

    async def notify(self, channel, encoded):
        if encoded is not None and size_of(encoded) > limit:
            raise PayloadTooLargeError(limit, size_of(encoded))
        await right(self, channel, encoded)

    patch.setattr(NotifySession, "notify", notify)


@mutant(kills=["payloads/notify_carries_up_to_the_limit"])
def carries_7998_bytes(patch):
    _limited(patch, 7998, len)


@mutant(kills=["payloads/notify_over_the_limit"])
def counts_characters(patch):
    _limited(patch, 7999, lambda encoded: len(encoded.decode()))
    right = NotifySession.notify

    async def notify(self, channel, encoded):
        if encoded is not None and len(encoded) > 100_000:  # what the driver says to that
            raise PayloadTooLargeError(8000, len(encoded))
        await right(self, channel, encoded)

    patch.setattr(NotifySession, "notify", notify)


@mutant(kills=["payloads/notify_over_the_limit"], hangs=True)
def drops_what_is_too_large(patch):
    right = NotifySession.notify

    async def notify(self, channel, encoded):
        if encoded is None or len(encoded) <= 7999:
            await right(self, channel, encoded)

    patch.setattr(NotifySession, "notify", notify)


@mutant(kills=["payloads/stored_as_compact_json"])
def stores_text_of_bytes(patch):
    right = QueueSession.insert_jobs

    async def insert_jobs(self, queue, payloads, stamp):
        cut = [encoded.split(b"\x7f")[0] for encoded in payloads]
        return await right(self, queue, cut, stamp)

    patch.setattr(QueueSession, "insert_jobs", insert_jobs)


@mutant(kills=["payloads/stored_as_compact_json", "payloads/encoded_before_the_first_await"])
def encodes_again_on_a_transaction(patch):
    right = Transaction.publish

    async def publish(self, stream, value, **options):
        await self.get_offset(stream, "checked")
        again = json.loads(json.dumps(json.loads(encode_payload(value)), sort_keys=True))
        return await right(self, stream, again, **options)

    patch.setattr(Transaction, "publish", publish)


@mutant(kills=["payloads/refused_payloads_leave_nothing"])
def notifies_before_it_encodes(patch):
    right = Store.notify

    async def notify(self, channel, payload=None):
        await right(self, channel)
        await right(self, channel, payload)

    patch.setattr(Store, "notify", notify)
