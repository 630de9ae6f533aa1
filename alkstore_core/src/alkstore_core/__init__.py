"""alkstore's core: what a user holds, the seam that engines implement, and the pure rules between.

An engine is installed beside it (alkstore-sqlite, alkstore-pg, alkstore-mem); `open_store` finds it by URL.
"""

from alkstore_core.clock import Clock
from alkstore_core.contract import CONTRACT_VERSION
from alkstore_core.locks import Lock
from alkstore_core.mailboxes import Mailbox
from alkstore_core.notify import WakeReceiver
from alkstore_core.opening import Opening
from alkstore_core.options import QueueOptions, ScheduleOptions
from alkstore_core.outbox import Outbox
from alkstore_core.payload import encode_payload
from alkstore_core.queues import JobHandle, Queue
from alkstore_core.registry import open_store
from alkstore_core.stopping import StopToken
from alkstore_core.store import Store
from alkstore_core.streams import EventReceiver, Stream
from alkstore_core.transaction import Transaction
from alkstore_core.values import (
    Acknowledgement,
    Delivery,
    Holder,
    Job,
    JobState,
    Message,
    Schedule,
    StreamEvent,
    Wake,
)
from alkstore_core.wakes import LISTENER_RECONNECTED
from alkstore_core.worker import Worker

__version__ = "1.1.0"

__all__ = [
    "CONTRACT_VERSION",
    "LISTENER_RECONNECTED",
    "Acknowledgement",
    "Clock",
    "Delivery",
    "EventReceiver",
    "Holder",
    "Job",
    "JobHandle",
    "JobState",
    "Lock",
    "Mailbox",
    "Message",
    "Opening",
    "Outbox",
    "Queue",
    "QueueOptions",
    "Schedule",
    "ScheduleOptions",
    "StopToken",
    "Store",
    "Stream",
    "StreamEvent",
    "Transaction",
    "Wake",
    "WakeReceiver",
    "Worker",
    "encode_payload",
    "open_store",
]
