"""Engines whose streams are wrong."""

import asyncio
import sqlite3
import time
import unicodedata
from bisect import insort
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from alkstore_contract_suite.mutation import mutant
from alkstore_core import streams as core
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.streams import EventReceiver, Stream
from alkstore_core.values import StreamEvent
from alkstore_core.wakes import Subscription, WakeHub, channel_topic, stream_topic
from alkstore_mem import engine as mem_engine
from alkstore_mem.database import Changes, Database
from alkstore_mem.engine import MemEngine
from alkstore_mem.streams import StreamSession
from alkstore_mem.tables import EventTable, HorizonTable
from alkstore_mem.transaction import MemTransaction
from alkstore_sqlite import streams as sqlite_streams
from alkstore_sqlite.caller import on_thread
from alkstore_sqlite.operations import count
from alkstore_sqlite.session import SqliteSession
from alkstore_sqlite.transaction import SqliteTransaction

# publishing


@mutant(kills=["streams/publish_returns_the_offset"])
def returns_the_number_of_events(patch):
    async def append_events(self, stream, events):
        await right(self, stream, events)
        there = len(await self.read_events(stream, 0, INT64_MAX))
        return list(range(there - len(events) + 1, there + 1))

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/concurrent_publishes_get_offsets_of_their_own"])
def returns_the_latest_offset_of_all(patch):
    async def append_events(self, stream, events):
        offsets = await right(self, stream, events)
        await asyncio.sleep(0)
        last = self._engine.database.event_offsets.drawn
        return [last + number for number in range(len(offsets))]

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/offsets_grow", "streams/publish_many_in_order"])
def publishes_many_backwards(patch):
    async def append_events(self, stream, events):
        return await right(self, stream, events[::-1])

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


def _next_by_those_there(changes, stream):
    database = changes.database
    staged = [event for event in changes.staged(database.events).values() if event and event.stream == stream]
    there = [*database.events.streams.get(stream, []), *staged]
    return there[-1].offset + 1 if there else 1


@mutant(
    kills=["streams/offsets_are_not_reused_after_a_trim", "streams/subscriber_keeps_its_place_through_a_trim"],
    hangs=True,
)
def numbers_events_by_those_that_are_there(patch):
    async def append_events(self, stream, events):
        with await self.writing() as changes:
            first = _next_by_those_there(changes, stream)
            for offset, (key, payload) in enumerate(events, first):
                changes.put(changes.database.events, (stream, offset), StreamEvent(offset, stream, key, payload, 0))
            changes.wake(stream_topic(stream))
            return list(range(first, first + len(events)))

    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/offsets_are_not_reused_after_a_restart"], engine="sqlite")
def numbers_events_by_the_greatest_that_is_there(patch):
    def append_events(scope, stream, events):
        yield count("DELETE FROM sqlite_sequence WHERE name = 'alkstore_events'")
        return (yield from right(scope, stream, events))

    right = sqlite_streams.append_events
    patch.setattr(sqlite_streams, "append_events", append_events)


@mutant(
    kills=[
        "streams/offsets_outlive_a_rollback",
        "streams/rolled_back_event_is_not_delivered",
        "streams/trim_counts_events_and_not_offsets",
    ]
)
def publishes_beside_the_transaction(patch):
    def put(self, table, key, row):
        stage(self, table, key, row)
        if table is self.database.events:
            del self.layers[-1][table][key]
            table.store(key, row, 0)

    stage = Changes.put
    patch.setattr(Changes, "put", put)


@mutant(kills=["streams/concurrent_publishes_get_offsets_of_their_own"])
def draws_offsets_before_its_turn_to_write(patch):
    async def append_events(self, stream, events):
        drawn = self._engine.database.event_offsets.drawn
        with await self.writing() as changes:
            database, now = changes.database, self.now()
            offsets = list(range(drawn + 1, drawn + 1 + len(events)))
            database.event_offsets.drawn = max(database.event_offsets.drawn, offsets[-1])
            for offset, (key, payload) in zip(offsets, events, strict=True):
                changes.put(database.events, offset, StreamEvent(offset, stream, key, payload, now))
            changes.wake(stream_topic(stream))
            return offsets

    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/publish_many_is_all_or_nothing"])
def publishes_many_one_by_one(patch):
    async def publish_many(self, payloads, *, keys=None):
        payloads = list(payloads)
        pairs = zip(payloads, keys or [None] * len(payloads), strict=True)
        return [await self.publish(payload, key=key) for payload, key in pairs]

    patch.setattr(Stream, "publish_many", publish_many)


@mutant(kills=["streams/event_carries_everything"])
def stamps_events_by_another_clock(patch):
    patch.setattr("alkstore_mem.streams.StreamEvent", lambda *fields: StreamEvent(*fields[:4], int(time.time())))


@mutant(kills=["streams/event_carries_everything", "streams/keys_round_trip"])
def drops_keys_on_a_transaction(patch):
    async def append_events(self, stream, events):
        if isinstance(self, MemTransaction):
            events = [(None, payload) for _, payload in events]
        return await right(self, stream, events)

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/keys_round_trip"])
def normalizes_keys(patch):
    right = core.event_key
    patch.setattr(core, "event_key", lambda key: key if key is None else unicodedata.normalize("NFC", right(key)))


@mutant(kills=["streams/keys_round_trip"])
def takes_blank_keys_for_none(patch):
    right = core.event_key
    patch.setattr(core, "event_key", lambda key: key if key is None else right(key).strip() or None)


@mutant(kills=["streams/keys_refused", "streams/publish_many_is_all_or_nothing"])
def takes_any_key(patch):
    patch.setattr(core, "event_key", lambda key: key or None)


# reading


@mutant(
    kills=[
        "streams/reads_ascend",
        "streams/read_from_consumer_reads_after_the_saved_offset",
        "streams/subscription_resumes_after_the_saved_offset",
    ]
)
def reads_from_the_offset_on(patch):
    def visible(changes, stream, after, limit):
        return right(changes, stream, max(after - 1, INT64_MIN), limit)

    right = StreamSession.read_events.__globals__["_visible"]
    patch.setitem(StreamSession.read_events.__globals__, "_visible", visible)


@mutant(kills=["streams/read_limits"])
def reads_as_much_as_there_is(patch):
    right = StreamSession.read_events.__globals__["_visible"]
    patch.setitem(
        StreamSession.read_events.__globals__,
        "_visible",
        lambda changes, stream, after, _: right(changes, stream, after, INT64_MAX),
    )


@mutant(kills=["streams/negative_saved_offset_grows"])
def takes_a_negative_offset_for_the_end(patch):
    def visible(changes, stream, after, limit):
        return [] if after < 0 else right(changes, stream, after, limit)

    right = StreamSession.read_events.__globals__["_visible"]
    patch.setitem(StreamSession.read_events.__globals__, "_visible", visible)


@mutant(kills=["streams/transaction_reads_its_own_writes"])
def reads_only_what_is_committed(patch):
    async def read_events(self, stream, after, limit):
        return await right(self._engine.autocommit(), stream, after, limit)

    right = StreamSession.read_events
    patch.setattr(StreamSession, "read_events", read_events)


@mutant(kills=["streams/transaction_reads_its_own_writes", "streams/checkpoint_commits_with_the_work"])
def shows_staged_offsets_to_everybody(patch):
    def put(self, table, key, row):
        stage(self, table, key, row)
        if table is self.database.offsets:
            table.store(key, row, 0)

    stage = Changes.put
    patch.setattr(Changes, "put", put)


# saved offsets


@mutant(kills=["streams/offsets_are_saved_explicitly_only"])
def saves_what_a_consumer_reads(patch):
    async def read_consumer_events(self, stream, consumer, limit):
        events = await right(self, stream, consumer, limit)
        if events:
            await self.save_offset(stream, consumer, events[-1].offset)
        return events

    right = StreamSession.read_consumer_events
    patch.setattr(StreamSession, "read_consumer_events", read_consumer_events)


@mutant(kills=["streams/offsets_are_saved_explicitly_only"])
def saves_when_a_receiver_closes(patch):
    async def close(self):
        await self.save_offset()
        await right(self)

    right = EventReceiver.close
    patch.setattr(EventReceiver, "close", close)


def _save_always(session_kind):
    async def save_offset(self, stream, consumer, offset):
        if not isinstance(self, session_kind):
            await right(self, stream, consumer, offset)
            return
        with await self.writing() as changes:
            changes.put(changes.database.offsets, (stream, consumer), offset)

    right = StreamSession.save_offset
    return save_offset


@mutant(
    kills=[
        "streams/saved_offsets_are_monotone",
        "streams/concurrent_saves_keep_the_highest",
        "streams/saved_offset_outlives_a_trim",
        "streams/receiver_and_direct_saves_mix",
        "streams/negative_saved_offset_grows",
    ]
)
def saves_whatever_offset_comes_last(patch):
    patch.setattr(StreamSession, "save_offset", _save_always(StreamSession))


@mutant(kills=["streams/saved_offsets_are_monotone"])
def overwrites_offsets_on_a_transaction(patch):
    patch.setattr(StreamSession, "save_offset", _save_always(MemTransaction))


@mutant(kills=["streams/first_saved_offset_is_stored_as_it_is"])
def takes_zero_for_the_first_saved_offset(patch):
    async def save_offset(self, stream, consumer, offset):
        with await self.writing() as changes:
            if (changes.get(changes.database.offsets, (stream, consumer)) or 0) < offset:
                changes.put(changes.database.offsets, (stream, consumer), offset)

    patch.setattr(StreamSession, "save_offset", save_offset)


@mutant(kills=["streams/negative_saved_offset_grows", "streams/first_saved_offset_is_stored_as_it_is"])
def knows_no_negative_offset(patch):
    async def get_offset(self, stream, consumer):
        return max(await right(self, stream, consumer), 0)

    right = StreamSession.get_offset
    patch.setattr(StreamSession, "get_offset", get_offset)


@mutant(kills=["streams/unknown_consumer_is_at_zero"])
def registers_whoever_asks(patch):
    async def get_offset(self, stream, consumer):
        with await self.writing() as changes:
            saved = changes.get(changes.database.offsets, (stream, consumer))
            if saved is None:
                changes.put(changes.database.offsets, (stream, consumer), saved := 0)
            return saved

    patch.setattr(StreamSession, "get_offset", get_offset)


def _keyed(patch, key):
    def saving(self, stream, consumer, offset):
        return save(self, *key(stream, consumer), offset)

    def getting(self, stream, consumer):
        return get(self, *key(stream, consumer))

    save, get = StreamSession.save_offset, StreamSession.get_offset
    patch.setattr(StreamSession, "save_offset", saving)
    patch.setattr(StreamSession, "get_offset", getting)


@mutant(kills=["streams/offsets_belong_to_stream_and_consumer", "streams/unknown_consumer_is_at_zero"])
def keeps_one_offset_for_a_stream(patch):
    _keyed(patch, lambda stream, _: (stream, ""))


@mutant(kills=["streams/offsets_belong_to_stream_and_consumer"])
def keeps_one_offset_for_a_consumer(patch):
    _keyed(patch, lambda _, consumer: ("", consumer))


@mutant(kills=["streams/offsets_belong_to_stream_and_consumer"])
def folds_consumers_names(patch):
    _keyed(patch, lambda stream, consumer: (stream, consumer.strip().lower()))


@mutant(kills=["streams/concurrent_saves_keep_the_highest"])
def compares_offsets_before_its_turn_to_write(patch):
    async def save_offset(self, stream, consumer, offset):
        if offset > await self.get_offset(stream, consumer):
            with await self.writing() as changes:
                changes.put(changes.database.offsets, (stream, consumer), offset)

    patch.setattr(StreamSession, "save_offset", save_offset)


@mutant(
    kills=[
        "streams/checkpoint_commits_with_the_work",
        "streams/checkpoint_rolls_back_with_the_work",
        "streams/work_happens_exactly_once",
    ]
)
def saves_offsets_beside_the_transaction(patch):
    def put(self, table, key, row):
        if table is self.database.offsets:
            table.store(key, row, 0)
        else:
            stage(self, table, key, row)

    stage = Changes.put
    patch.setattr(Changes, "put", put)


@mutant(kills=["streams/checkpoint_commits_with_the_work"])
def forgets_offsets_saved_on_a_transaction(patch):
    async def save_offset(self, stream, consumer, offset):
        if not isinstance(self, MemTransaction):
            await right(self, stream, consumer, offset)

    right = StreamSession.save_offset
    patch.setattr(StreamSession, "save_offset", save_offset)


# trimming


@mutant(
    kills=[
        "streams/trim_deletes_up_to_the_horizon",
        "streams/offsets_are_not_reused_after_a_trim",
        "streams/trim_racing_publishes",
    ]
)
def trims_below_the_horizon(patch):
    async def trim_events(self, stream, horizon):
        return await right(self, stream, max(horizon - 1, INT64_MIN))

    right = StreamSession.trim_events
    patch.setattr(StreamSession, "trim_events", trim_events)


@mutant(kills=["streams/trim_deletes_up_to_the_horizon"])
def renumbers_what_a_trim_leaves(patch):
    def store(self, key, row, now):
        right(self, key, row, now)
        events = self._streams.get(key, [])
        events[:] = [replace(event, offset=number) for number, event in enumerate(events, 1)]

    right = HorizonTable.store
    patch.setattr(HorizonTable, "store", store)


@mutant(kills=["streams/reads_resume_after_a_trimmed_region"])
def reads_nothing_from_within_a_trimmed_region(patch):
    def store(self, key, row, now):
        right(self, key, row, now)
        self.trimmed = {**getattr(self, "trimmed", {}), key: row}

    def visible(changes, stream, after, limit, *last):
        trimmed = getattr(changes.database.horizons, "trimmed", {})
        return [] if 0 < after < trimmed.get(stream, 0) else right_visible(changes, stream, after, limit, *last)

    right = HorizonTable.store
    right_visible = StreamSession.read_events.__globals__["_visible"]
    patch.setattr(HorizonTable, "store", store)
    patch.setitem(StreamSession.read_events.__globals__, "_visible", visible)


@mutant(
    kills=[
        "streams/trim_hides_nothing_that_comes_later",
        "streams/unknown_stream_is_empty",
        "streams/subscriber_keeps_its_place_through_a_trim",
    ],
    hangs=True,
)
def trims_what_comes_later_too(patch):
    async def trim_events(self, stream, horizon):
        horizons = self._engine.database.__dict__.setdefault("kept_horizons", {})
        horizons[stream] = max(horizon, horizons.get(stream, INT64_MIN))
        return await right(self, stream, horizon)

    def visible(changes, stream, after, limit, *last):
        horizons = changes.database.__dict__.get("kept_horizons", {})
        return right_visible(changes, stream, max(after, horizons.get(stream, INT64_MIN)), limit, *last)

    right = StreamSession.trim_events
    right_visible = StreamSession.read_events.__globals__["_visible"]
    patch.setattr(StreamSession, "trim_events", trim_events)
    patch.setitem(StreamSession.read_events.__globals__, "_visible", visible)


@mutant(kills=["streams/trim_counts_events_and_not_offsets"])
def counts_offsets_for_events(patch):
    async def trim_events(self, stream, horizon):
        events = await self.read_events(stream, INT64_MIN, INT64_MAX)
        await right(self, stream, horizon)
        return max(min(horizon, events[-1].offset) - events[0].offset + 1, 0) if events else 0

    right = StreamSession.trim_events
    patch.setattr(StreamSession, "trim_events", trim_events)


@mutant(kills=["streams/trim_racing_publishes"])
def drops_the_whole_stream_where_a_trim_seems_to_leave_nothing(patch):
    async def trim_events(self, stream, horizon):
        if not await self.read_events(stream, horizon, 1):
            horizon = INT64_MAX
        return await right(self, stream, horizon)

    right = StreamSession.trim_events
    patch.setattr(StreamSession, "trim_events", trim_events)


@mutant(kills=["streams/saved_offset_outlives_a_trim", "streams/reads_resume_after_a_trimmed_region"])
def forgets_offsets_below_the_horizon(patch):
    async def trim_events(self, stream, horizon):
        trimmed = await right(self, stream, horizon)
        with await self.writing() as changes:
            offsets = changes.database.offsets
            for key, offset in changes.scan(offsets).items():
                if key[0] == stream and offset <= horizon:
                    changes.put(offsets, key, None)
        return trimmed

    right = StreamSession.trim_events
    patch.setattr(StreamSession, "trim_events", trim_events)


@mutant(kills=["streams/trim_wakes_nobody"])
def wakes_the_channel_of_that_name(patch):
    patch.setattr("alkstore_mem.streams.stream_topic", channel_topic)


@mutant(kills=["streams/nothing_is_trimmed_by_itself"])
def keeps_events_for_a_week(patch):
    async def append_events(self, stream, events):
        old = [e for e in await self.read_events(stream, INT64_MIN, INT64_MAX) if e.created_at + 604_800 < self.now()]
        if old:
            await self.trim_events(stream, old[-1].offset)
        return await right(self, stream, events)

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/trim_is_of_one_stream"])
def trims_all_streams(patch):
    async def trim_events(self, stream, horizon):
        trimmed = await right(self, stream, horizon)
        for other in list(self._engine.database.events.streams):
            await right(self, other, horizon)
        return trimmed

    right = StreamSession.trim_events
    patch.setattr(StreamSession, "trim_events", trim_events)


# following


@mutant(
    kills=["streams/subscription_resumes_after_the_saved_offset", "streams/receiver_saves_the_last_event_given"],
)
def follows_from_the_beginning(patch):
    def start_at_zero(self, store, stream, consumer, subscription, _):
        right(self, store, stream, consumer, subscription, 0)

    right = EventReceiver.__init__
    patch.setattr(EventReceiver, "__init__", start_at_zero)


@mutant(kills=["streams/subscription_resumes_after_the_saved_offset"], hangs=True)
def follows_from_now(patch):
    def start_at_the_end(self, store, stream, consumer, subscription, offset):
        events = store.engine.database.events.streams.get(stream, [])
        right(self, store, stream, consumer, subscription, events[-1].offset if events else offset)

    right = EventReceiver.__init__
    patch.setattr(EventReceiver, "__init__", start_at_the_end)


@mutant(kills=["streams/new_events_are_delivered_as_they_commit"], hangs=True)
def wakes_no_stream_after_a_transaction(patch):
    async def append_events(self, stream, events):
        offsets = await right(self, stream, events)
        if isinstance(self, MemTransaction):
            with await self.writing() as changes:
                changes.layers[-1].pop(changes.database.wakes, None)
        return offsets

    right = StreamSession.append_events
    patch.setattr(StreamSession, "append_events", append_events)


@mutant(kills=["streams/no_wake_is_lost"], hangs=True)
def listens_after_it_has_read(patch):
    async def recv(self):
        while not self._subscription.closed:
            if await self._fill():
                return self._give()
            self._subscription.close()
            self._subscription = await self._store.engine.watch(stream_topic(self._stream))
            await self._subscription.wait()
        return None

    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/events_around_subscribing_are_given"], hangs=True)
def reads_the_backlog_before_it_listens(patch):
    def subscribe(self, consumer):
        async def opened():
            session = self._store.session()
            offset = await session.get_offset(self._name, consumer)
            backlog = await session.read_events(self._name, offset, 100)
            subscription = await self._store.engine.watch(stream_topic(self._name))
            receiver = EventReceiver(self._store, self._name, consumer, subscription, offset)
            receiver._buffer.extend(backlog)
            receiver._read_to = backlog[-1].offset if backlog else offset
            return receiver

        return core.Opening(opened, EventReceiver.close)

    async def recv(self):
        while not self._subscription.closed:
            if self._buffer:
                return self._give()
            await self._subscription.wait()
            await self._fill()
        return None

    patch.setattr(Stream, "subscribe", subscribe)
    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/long_backlog_is_replayed_whole"], hangs=True)
def reads_one_page_for_each_wake(patch):
    async def recv(self):
        while not self._subscription.closed:
            if self._buffer:
                return self._give()
            if self._given is not None:
                await self._subscription.wait()
            if await self._fill():
                continue
            await self._subscription.wait()
        return None

    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/subscribers_are_independent", "streams/receiver_and_direct_saves_mix"], hangs=True)
def skips_to_the_saved_offset(patch):
    async def fill(self):
        saved = await self._store.session().get_offset(self._stream, self._consumer)
        while self._buffer and self._buffer[0].offset <= saved:
            self._buffer.popleft()
        self._read_to = max(self._read_to, saved)
        return await right(self)

    right = EventReceiver._fill
    patch.setattr(EventReceiver, "_fill", fill)


@mutant(kills=["streams/concurrent_recvs_share_the_events"])
def lets_two_tasks_read_the_same_page(patch):
    async def recv(self):
        while not self._subscription.closed:
            self._subscription.take()
            events = await self._store.session().read_settled_events(self._stream, self._given or 0, 1)
            if events:
                self._given = events[0].offset
                return events[0]
            await self._subscription.wait()
        return None

    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/cancelled_recv_loses_and_repeats_nothing"], hangs=True)
def takes_the_event_before_it_is_received(patch):
    async def recv(self):
        event = await right(self)
        await asyncio.sleep(0)
        return event

    right = EventReceiver.recv
    patch.setattr(EventReceiver, "recv", recv)


@mutant(
    kills=["streams/timed_out_recv_loses_and_repeats_nothing", "streams/cancelled_recv_loses_and_repeats_nothing"],
    hangs=True,
)
def closes_a_receiver_whose_recv_is_cancelled(patch):
    async def recv(self):
        try:
            return await right(self)
        except asyncio.CancelledError:
            self._subscription.close()
            raise

    right = EventReceiver.recv
    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/closed_receiver_ends", "streams/closing_the_store_ends_receivers"], hangs=True)
def tells_no_waiting_task_of_the_end(patch):
    def end(self):
        self.closed = True

    patch.setattr(Subscription, "end", end)


@mutant(kills=["streams/closing_the_store_ends_receivers"], hangs=True)
def leaves_receivers_open_when_it_closes(patch):
    def close(self):
        self.closed = True

    patch.setattr(WakeHub, "close", close)


@mutant(kills=["streams/closed_receiver_ends", "streams/closing_the_store_ends_receivers"])
def is_idle_when_it_is_closed(patch):
    async def try_recv(self):
        return None if self._subscription.closed else await right(self)

    right = EventReceiver.try_recv
    patch.setattr(EventReceiver, "try_recv", try_recv)


@mutant(kills=["streams/closed_receiver_gives_nothing_read_ahead"])
def gives_what_was_read_ahead_after_the_close(patch):
    async def close(self):
        self._subscription.close()

    async def recv(self):
        return self._give() if self._buffer else await right(self)

    right = EventReceiver.recv
    patch.setattr(EventReceiver, "close", close)
    patch.setattr(EventReceiver, "recv", recv)


@mutant(kills=["streams/try_recv_gives_what_is_there"])
def tries_only_what_was_read_ahead(patch):
    async def try_recv(self):
        return self._give() if self._buffer else None

    patch.setattr(EventReceiver, "try_recv", try_recv)


@mutant(kills=["streams/receiver_saves_the_last_event_given"])
def saves_what_was_read_ahead(patch):
    async def save_offset(self):
        await self._store.session().save_offset(self._stream, self._consumer, self._read_to)

    patch.setattr(EventReceiver, "save_offset", save_offset)


@mutant(kills=["streams/receiver_survives_an_outage"], engine="sqlite", hangs=True)
def reads_as_a_writer(patch):
    async def read_settled_events(self, stream, after, limit):
        try:
            return await self._write(sqlite_streams.read_events, stream, after, limit)
        except Exception:
            await asyncio.get_running_loop().create_future()  # it tries no more

    patch.setattr(SqliteSession, "read_settled_events", read_settled_events)


@mutant(kills=["streams/killed_publisher_holds_nobody_up"], engine="sqlite", in_children=True)
def commits_each_call_of_a_transaction(patch):
    async def write(self, build, *arguments, undo=None):
        result = await right(self, build, *arguments, undo=undo)
        await on_thread(self._connection, lambda connection: sqlite3.Cursor(connection).execute("COMMIT"))
        return result

    right = SqliteTransaction._write
    patch.setattr(SqliteTransaction, "_write", write)


# publishers that commit out of offset order


class _FreeTransaction(MemTransaction):
    """A transaction that shares the database with others: an engine with many writers."""

    opened: ClassVar["list[_FreeTransaction]"] = []

    def __init__(self, engine, changes):
        super().__init__(engine, None, changes)
        self.published = {}
        self.opened.append(self)

    @contextmanager
    def _staging(self):
        with self._engine.database.exclusive():
            yield self.changes

    async def append_events(self, stream, events):
        offsets = await super().append_events(stream, events)
        self.published.setdefault(stream, offsets[0])
        return offsets

    async def commit(self):
        database = self._engine.database
        with database.exclusive():
            self.opened.remove(self)
            database._apply(self.changes, self.now())

    async def rollback(self):
        self.opened.remove(self)
        self._engine.database  # noqa: B018 - raises where the store is closed
        _wake(self)

    def abandon(self):
        self.opened.remove(self)


def _wake(transaction):
    for engine in transaction._engine.database.engines:
        engine.wake(frozenset(map(stream_topic, transaction.published)))


def _many_writers(patch, floor=None):
    """Let transactions be open side by side, and commit in any order; readers wait for older publishers.

    `floor` gives the least offset that a reader of a stream must not see yet, from the open transactions.
    """

    def right_floor(opened, stream):
        return min((tx.published[stream] for tx in opened if stream in tx.published), default=INT64_MAX)

    async def begin(self):
        await asyncio.sleep(0)
        return _FreeTransaction(self, Changes(self.database))

    def store(self, _, row, __):
        if row is not None:
            insort(self.streams.setdefault(row.stream, []), row, key=lambda event: event.offset)

    async def read_settled_events(self, stream, after, limit):
        events = await self.read_events(stream, after, limit)
        database = self._engine.database
        opened = [tx for tx in _FreeTransaction.opened if tx._engine.database is database]
        lowest = (floor or right_floor)(opened, stream)
        return [event for event in events if event.offset < lowest]

    patch.setattr(_FreeTransaction, "opened", [])
    patch.setattr(MemEngine, "begin", begin)
    patch.setattr(EventTable, "store", store)
    patch.setattr(StreamSession, "read_settled_events", read_settled_events)


@mutant(
    kills=[
        "streams/older_publisher_is_waited_for",
        "streams/saved_place_of_a_younger_event_skips_nothing",
        "streams/old_publisher_is_waited_for_however_long",
        "streams/random_commit_orders",
        "streams/concurrent_publishers",
    ],
    hangs=True,
)
def reads_past_an_open_publisher(patch):
    _many_writers(patch, lambda *_: INT64_MAX)


@mutant(kills=["streams/random_commit_orders", "streams/concurrent_publishers"], hangs=True)
def waits_for_the_youngest_publisher_only(patch):
    _many_writers(
        patch, lambda opened, stream: max((tx.published.get(stream, 0) for tx in opened), default=0) or INT64_MAX
    )


@mutant(kills=["streams/unrelated_transaction_holds_nobody_up"], hangs=True)
def waits_for_every_open_transaction(patch):
    _many_writers(patch, lambda opened, _: 0 if opened else INT64_MAX)


@mutant(kills=["streams/open_publisher_hides_nothing_older"], hangs=True)
def shows_nothing_while_a_publisher_is_open(patch):
    _many_writers(patch, lambda opened, stream: 0 if any(stream in tx.published for tx in opened) else INT64_MAX)


@mutant(kills=["streams/rolled_back_publisher_holds_nobody_up"], hangs=True)
def wakes_nobody_when_a_publisher_rolls_back(patch):
    _many_writers(patch)

    async def rollback(self):
        self.opened.remove(self)

    patch.setattr(_FreeTransaction, "rollback", rollback)


@mutant(kills=["streams/old_publisher_is_waited_for_however_long"])
def gives_up_on_a_publisher_that_is_open_for_long(patch):
    def begun(self, engine, changes):
        right(self, engine, changes)
        self.since = self.now()

    right = _FreeTransaction.__init__
    patch.setattr(_FreeTransaction, "__init__", begun)
    _many_writers(
        patch,
        lambda opened, stream: min(
            (tx.published[stream] for tx in opened if stream in tx.published and tx.now() < tx.since + 30),
            default=INT64_MAX,
        ),
    )


@mutant(kills=["streams/read_since_shows_committed_events_at_once"])
def hides_committed_events_from_direct_reads(patch):
    _many_writers(patch)
    right = StreamSession.read_events.__globals__["_visible"]

    def visible(changes, stream, after, limit):
        events = right(changes, stream, after, limit)
        lowest = min(
            (tx.published[stream] for tx in _FreeTransaction.opened if stream in tx.published), default=INT64_MAX
        )
        return [event for event in events if event.offset < lowest]

    patch.setitem(StreamSession.read_events.__globals__, "_visible", visible)


# streams beside one another


@mutant(
    kills=[
        "streams/interleaved_streams_do_not_mix",
        "streams/subscriber_gets_its_stream_only",
        "streams/random_commit_orders",
    ]
)
def keeps_all_streams_in_one(patch):
    def store(self, key, row, now):
        right(self, key, row, now)
        for name in list(self.streams):
            if row is not None and name != row.stream:
                self.streams[name].append(row)

    right = EventTable.store
    patch.setattr(EventTable, "store", store)


# first use


@mutant(kills=["streams/first_use_by_many"])
def makes_the_database_anew_for_whoever_opens_it(patch):
    patch.setattr(mem_engine, "join_database", lambda _, engine: Database(engine))
