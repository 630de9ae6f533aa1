"""Engines whose wakes are wrong."""

from alkstore_contract_suite.mutation import mutant
from alkstore_core.wakes import WakeHub


@mutant(kills=["notify/listen_starts_from_now"])
def wakes_a_new_listener_at_once(patch):
    right = WakeHub.subscribe

    def subscribe(self, topic):
        subscription = right(self, topic)
        subscription.wake()
        return subscription

    patch.setattr(WakeHub, "subscribe", subscribe)
