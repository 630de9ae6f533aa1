"""Streams, their receivers, and locks."""

import draws
from alkstore_core import EventReceiver, Lock
from hypothesis import strategies as st
from machine import Machine, anytime, free, operation
from side import Side


class StreamOperations(Machine):
    """Publish, read, save, trim, follow."""

    @operation(3, free, on=draws.stores, stream=draws.streams, payload=draws.payloads, key=draws.keys)
    def publish(self, on, stream, payload, key):
        self.step(
            "publish",
            lambda side: side.stores[on].stream(stream).publish(payload, key=key),
            lambda side, offset: side.made_event(stream, offset),
        )

    @operation(
        2,
        free,
        on=draws.stores,
        stream=draws.streams,
        events=st.lists(st.tuples(draws.payloads, draws.keys), max_size=3),
        keyed=st.booleans(),
    )
    def publish_many(self, on, stream, events, keyed):
        payloads, keys = [payload for payload, _ in events], [key for _, key in events] if keyed else None
        self.step(
            "publish_many",
            lambda side: side.stores[on].stream(stream).publish_many(payloads, keys=keys),
            lambda side, offsets: [side.made_event(stream, offset) for offset in offsets],
        )

    @operation(1, anytime, on=draws.stores, stream=draws.streams, after=draws.places, limit=draws.limits)
    def read_since(self, on, stream, after, limit):
        self.step(
            "read_since",
            lambda side: side.stores[on].stream(stream).read_since(side.offset(stream, after), limit),
            lambda side, events: side.seen_events(events),
        )

    @operation(2, anytime, on=draws.stores, stream=draws.streams, consumer=draws.consumers, limit=draws.limits)
    def read_from_consumer(self, on, stream, consumer, limit):
        self.step(
            "read_from_consumer",
            lambda side: side.stores[on].stream(stream).read_from_consumer(consumer, limit),
            lambda side, events: side.seen_events(events),
        )

    @operation(3, free, on=draws.stores, stream=draws.streams, consumer=draws.consumers, offset=draws.places)
    def save_offset(self, on, stream, consumer, offset):
        self.step(
            "save_offset",
            lambda side: side.stores[on].stream(stream).save_offset(consumer, side.offset(stream, offset)),
        )

    @operation(1, anytime, on=draws.stores, stream=draws.streams, consumer=draws.consumers)
    def get_offset(self, on, stream, consumer):
        self.step(
            "get_offset",
            lambda side: side.stores[on].stream(stream).get_offset(consumer),
            lambda side, offset: side.saved(stream, offset),
        )

    @operation(2, free, on=draws.stores, stream=draws.streams, horizon=draws.places)
    def trim_to(self, on, stream, horizon):
        self.step("trim_to", lambda side: side.stores[on].stream(stream).trim_to(side.offset(stream, horizon)))

    # receivers

    @operation(
        1,
        lambda machine: len(machine.model.receivers) < 3,
        on=draws.stores,
        stream=draws.streams,
        consumer=draws.consumers,
    )
    def subscribe(self, on, stream, consumer):
        async def call(side: Side) -> None:
            side.receivers.append((on, await side.stores[on].stream(stream).subscribe(consumer)))

        self.step("subscribe", call)

    @operation(3, lambda machine: machine.model.receivers, which=st.integers(0, 2), limit=st.sampled_from((1, 2, 1000)))
    def receive(self, which, limit):
        """Take what is there: the events that are committed, each once and in order (S7)."""

        async def call(side: Side) -> object:
            receiver = _receiver(side, which)
            events = []
            while len(events) < limit and (event := await receiver.try_recv()) is not None:
                events.append(event)
            return events

        self.step("EventReceiver.try_recv", call, lambda side, events: side.seen_events(events))

    @operation(2, lambda machine: free(machine) and machine.model.receivers, which=st.integers(0, 2))
    def save_received(self, which):
        self.step("EventReceiver.save_offset", lambda side: _receiver(side, which).save_offset())

    @operation(1, lambda machine: machine.model.receivers, which=st.integers(0, 2))
    def close_receiver(self, which):
        async def call(side: Side) -> None:
            receiver = _receiver(side, which)
            await receiver.close()
            side.receivers[:] = [entry for entry in side.receivers if entry[1] is not receiver]

        self.step("EventReceiver.close", call)

    # notify

    @operation(1, free, on=draws.stores, payload=draws.payloads)
    def notify(self, on, payload):
        async def call(side: Side) -> None:
            await side.stores[on].notify(draws.CHANNEL, payload)
            await side.heard()

        self.step("notify", call)


def _receiver(side: Side, which: int) -> EventReceiver:
    return side.receivers[which % len(side.receivers)][1]


class LockOperations(Machine):
    """Take, renew and release, with any lock that there ever was."""

    @operation(4, free, on=draws.stores, name=draws.locks, owner=draws.workers, ttl=draws.ttls)
    def try_lock(self, on, name, owner, ttl):
        def show(side: Side, lock: Lock | None) -> object:
            return None if lock is None else side.grant(lock._grant)

        self.step("try_lock", lambda side: side.stores[on].try_lock(name, owner, ttl), show)

    @operation(
        3,
        lambda machine: free(machine) and machine.model.grants,
        on=draws.stores,
        which=draws.back,
        ttl=draws.ttls,
    )
    def renew(self, on, which, ttl):
        async def call(side: Side) -> object:
            place = max(len(side.grants) - 1 - which, 0)
            lock = Lock(side.stores[on], side.grants[place])
            renewed = await lock.renew(ttl)
            side.grants[place] = lock._grant
            return lock.name, lock.owner, lock.expires_at, renewed

        self.step("renew", call)

    @operation(2, lambda machine: free(machine) and machine.model.grants, on=draws.stores, which=draws.back)
    def release_lock(self, on, which):
        self.step(
            "release",
            lambda side: Lock(side.stores[on], side.grants[max(len(side.grants) - 1 - which, 0)]).release(),
        )
