"""Engines whose wakes are wrong."""

import asyncio

from alkstore_contract_suite.mutation import mutant
from alkstore_core import Store, Wake, WakeReceiver, names
from alkstore_core.errors import ClosedError
from alkstore_core.wakes import Subscription, WakeHub, channel_topic
from alkstore_mem import queues as mem_queues
from alkstore_mem import streams as mem_streams
from alkstore_mem.engine import MemEngine
from alkstore_mem.harness import MemHarness


@mutant(kills=["notify/listen_starts_from_now", "notify/listen_hears_nothing_earlier", "notify/recv_waits"])
def wakes_a_new_listener_at_once(patch):
    right = WakeHub.subscribe

    def subscribe(self, topic):
        subscription = right(self, topic)
        subscription.wake()
        return subscription

    patch.setattr(WakeHub, "subscribe", subscribe)


def _turns_later(loop, turns, call):
    if turns:
        loop.call_soon(_turns_later, loop, turns - 1, call)
    else:
        call()


@mutant(kills=["notify/listen_hears_nothing_earlier", "notify/listen_starts_from_now"])
def tells_of_a_commit_much_later(patch):
    right = MemEngine.wake

    def wake(self, topics):
        _turns_later(self._loop, 6, lambda: right(self, topics))

    patch.setattr(MemEngine, "wake", wake)


@mutant(
    kills=[
        "notify/listen_hears_everything_later",
        "notify/no_gap_between_listening_and_waiting",
        "notify/listen_starts_from_now",
    ],
    hangs=True,
)
def begins_to_listen_in_the_background(patch):
    def subscribe(self, topic):
        subscription = Subscription(self, topic)
        _turns_later(self.home.loop, 8, lambda: self._subscriptions.setdefault(topic, set()).add(subscription))
        return subscription

    patch.setattr(WakeHub, "subscribe", subscribe)


@mutant(kills=["notify/no_gap_between_listening_and_waiting", "notify/no_lost_wake_in_a_race"], hangs=True)
def forgets_what_came_before_it_waits(patch):
    right = Subscription.wait

    async def wait(self):
        self.take()
        return await right(self)

    patch.setattr(Subscription, "wait", wait)


@mutant(kills=["notify/notify_is_not_kept", "notify/listen_hears_nothing_earlier"])
def keeps_the_last_notify_of_a_channel(patch):
    right_wake, right_subscribe = MemEngine.wake, WakeHub.subscribe
    kept = set()

    def wake(self, topics):
        kept.update(topics)
        right_wake(self, topics)

    def subscribe(self, topic):
        subscription = right_subscribe(self, topic)
        if topic in kept:
            subscription.wake()
        return subscription

    patch.setattr(MemEngine, "wake", wake)
    patch.setattr(WakeHub, "subscribe", subscribe)


@mutant(kills=["notify/every_listener_hears", "notify/idle_listener_slows_nobody"], hangs=True)
def wakes_one_listener_only(patch):
    def wake(self, topics):
        for topic in topics:
            for subscription in list(self._subscriptions.get(topic, ()))[:1]:
                subscription.wake()

    patch.setattr(WakeHub, "wake", wake)


@mutant(kills=["notify/idle_listener_slows_nobody"], hangs=True)
def waits_for_the_slowest_listener(patch):
    right = WakeHub.wake

    def wake(self, topics):
        if not any(waiting._pending for topic in topics for waiting in self._subscriptions.get(topic, ())):
            right(self, topics)

    patch.setattr(WakeHub, "wake", wake)


@mutant(kills=["notify/channels_keep_apart"])
def takes_a_queue_for_a_channel(patch):
    patch.setattr(mem_queues, "queue_topic", channel_topic)


@mutant(kills=["notify/channels_keep_apart"])
def takes_a_stream_for_a_channel(patch):
    patch.setattr(mem_streams, "stream_topic", channel_topic)


@mutant(kills=["notify/channels_keep_apart"])
def wakes_by_prefix(patch):
    right = WakeHub.wake

    def wake(self, topics):
        right(self, [known for known in self._subscriptions if any(topic.startswith(known) for topic in topics)])

    patch.setattr(WakeHub, "wake", wake)


@mutant(kills=["notify/wake_carries_its_channel_only", "notify/every_listener_hears"])
def names_its_topic_for_the_channel(patch):
    patch.setattr(WakeReceiver, "_wake", lambda _, woken: Wake(woken))


@mutant(kills=["notify/recv_waits"])
def does_not_wait_in_recv(patch):
    async def recv(self):
        await asyncio.sleep(0)
        woken = self._subscription.take()
        return None if woken is None else self._wake(woken)

    patch.setattr(WakeReceiver, "recv", recv)


@mutant(kills=["notify/try_recv_does_not_wait", "notify/unread_wakes_coalesce"])
def never_takes_a_wake_away(patch):
    right = Subscription.take
    given = {}

    def take(self):
        woken = right(self)
        if woken is not None and given.setdefault(self, 0) < 20:
            given[self] += 1
            self._pending = True
        return woken

    patch.setattr(Subscription, "take", take)


@mutant(kills=["notify/try_recv_does_not_wait"], hangs=True)
def waits_in_try_recv(patch):
    patch.setattr(WakeReceiver, "try_recv", WakeReceiver.recv)


@mutant(kills=["notify/closed_receiver_says_so_for_ever"])
def is_idle_when_closed(patch):
    right = WakeReceiver.try_recv

    async def try_recv(self):
        try:
            return await right(self)
        except ClosedError:
            return None

    patch.setattr(WakeReceiver, "try_recv", try_recv)


@mutant(kills=["notify/closed_receiver_says_so_for_ever"])
def gives_what_was_left_when_closed(patch):
    right = Subscription.wait

    async def wait(self):
        return self.take() or await right(self)

    patch.setattr(Subscription, "wait", wait)


@mutant(kills=["notify/closed_receiver_says_so_for_ever", "notify/closing_ends_the_waiting"])
def raises_when_closed(patch):
    right = WakeReceiver.recv

    async def recv(self):
        wake = await right(self)
        if wake is None:
            raise ClosedError("this receiver is closed: listen again")
        return wake

    patch.setattr(WakeReceiver, "recv", recv)


@mutant(kills=["notify/closing_ends_the_waiting"], hangs=True)
def closes_without_telling(patch):
    def end(self):
        self.closed = True

    patch.setattr(Subscription, "end", end)


@mutant(kills=["notify/iteration_gives_wakes"])
def ends_an_iteration_when_idle(patch):
    async def following(self):
        if self._subscription.closed or not self._subscription._pending:
            raise StopAsyncIteration
        return await self.recv()

    patch.setattr(WakeReceiver, "__anext__", following)
    right = Store.notify

    async def notify(self, channel, payload=None):
        asyncio.get_running_loop().call_soon(lambda: None)
        await asyncio.sleep(0)
        await right(self, channel, payload)
        for subscription in self.engine._hub._subscriptions.get(channel_topic(channel), ()):
            subscription.take()

    patch.setattr(Store, "notify", notify)


@mutant(kills=["notify/cancelled_recv_loses_nothing"], hangs=True)
def takes_a_wake_before_it_can_give_it(patch):
    right = Subscription.wait

    async def wait(self):
        woken = await right(self)
        await asyncio.sleep(0)
        return woken

    patch.setattr(Subscription, "wait", wait)


@mutant(kills=["notify/timed_out_recv_loses_nothing", "notify/cancelled_recv_loses_nothing"])
def closes_when_a_recv_is_cancelled(patch):
    right = Subscription.wait

    async def wait(self):
        try:
            return await right(self)
        except asyncio.CancelledError:
            self.close()
            raise

    patch.setattr(Subscription, "wait", wait)


@mutant(kills=["notify/waits_in_vain_leave_nothing_behind"])
def leaves_a_task_for_each_recv(patch):
    async def recv(self):
        woken = await asyncio.shield(asyncio.ensure_future(self._subscription.wait()))
        return None if woken is None else self._wake(woken)

    patch.setattr(WakeReceiver, "recv", recv)


@mutant(kills=["notify/waits_in_vain_leave_nothing_behind"])
def keeps_a_future_for_each_recv(patch):
    right = Subscription.wait
    kept = []

    async def wait(self):
        kept.append(asyncio.get_running_loop().create_future())
        return await right(self)

    patch.setattr(Subscription, "wait", wait)


@mutant(kills=["notify/unread_wakes_coalesce"])
def queues_every_wake(patch):
    right_wake, right_take = Subscription.wake, Subscription.take
    queued = {}

    def wake(self, **how):
        queued.setdefault(self, []).append(["wake"])
        right_wake(self, **how)

    def take(self):
        if queued.get(self):
            queued[self].pop()
            return self.topic
        return right_take(self)

    patch.setattr(Subscription, "wake", wake)
    patch.setattr(Subscription, "take", take)


@mutant(kills=["notify/dropped_listeners_leave_nothing_behind"])
def keeps_listeners_for_ever(patch):
    patch.setattr(WakeHub, "drop", lambda *_: None)


@mutant(kills=["notify/failed_listen_is_an_error"])
def gives_a_receiver_that_can_never_hear(patch):
    from alkstore_core import store
    from alkstore_core.opening import Opening

    def listen(self, channel):
        async def opened():
            hub = self.engine._hub
            return WakeReceiver(self.home, channel, hub.subscribe(channel_topic(channel)))

        return Opening(opened, WakeReceiver.close)

    patch.setattr(store.Store, "listen", listen)


@mutant(kills=["notify/lost_connection_is_told"], hangs=True)
def says_nothing_of_a_lost_connection(patch):
    async def sever(_):
        await asyncio.sleep(0)

    patch.setattr(MemHarness, "unsupported", {})
    patch.setattr(MemHarness, "sever", sever)


@mutant(kills=["notify/lost_connection_is_told"], hangs=True)
def tells_of_a_lost_connection_once(patch):
    told = []

    async def sever(self):
        for engine in self._database.engines:
            if engine not in told:
                engine._hub.wake_everybody()
                told.append(engine)

    patch.setattr(MemHarness, "unsupported", {})
    patch.setattr(MemHarness, "sever", sever)


@mutant(kills=["notify/lost_connection_is_told"])
def closes_receivers_when_the_connection_is_lost(patch):
    async def sever(self):
        for engine in self._database.engines:
            engine._hub.close()

    patch.setattr(MemHarness, "unsupported", {})
    patch.setattr(MemHarness, "sever", sever)


@mutant(kills=["notify/reconnection_has_a_name_of_its_own"])
def lets_anybody_claim_a_reconnection(patch):
    patch.setattr(names, "RESERVED_PREFIX", "__alkstore_scheduler")
