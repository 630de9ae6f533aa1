"""Engines that let wrong names in, or change right ones."""

import unicodedata

from alkstore_contract_suite.mutation import mutant
from alkstore_core import Queue, Store, Transaction, notify, outbox, queues, scheduler, store, streams, transaction
from alkstore_core import locks as core_locks
from alkstore_core.errors import InvalidNameError, ReservedNameError
from alkstore_mem import locks
from alkstore_mem import notify as mem_notify
from alkstore_mem.queues import QueueSession
from alkstore_mem.streams import StreamSession

_USERS = (notify, outbox, queues, scheduler, store, streams, transaction, core_locks)


def _each_name(patch, wrong):
    """Let every entry check a name with `wrong`, which is given the right check."""
    for module in _USERS:
        for check in ("shared_name", "free_name"):
            if hasattr(module, check):
                right = getattr(module, check)
                patch.setattr(module, check, lambda kind, name, right=right: wrong(right, kind, name))


@mutant(kills=["names/shared_names_are_not_blank", "names/own_names_are_not_blank"])
def takes_only_spaces_for_blank(patch):
    _each_name(
        patch,
        lambda right, kind, name: right(kind, name if not isinstance(name, str) or not name.strip(" ") else name + "x"),
    )


@mutant(kills=["names/shared_names_are_str", "names/own_names_are_not_blank"])
def takes_anything_for_a_name(patch):
    _each_name(patch, lambda right, kind, name: right(kind, str(name)))


@mutant(kills=["names/reserved_prefix_is_refused", "names/refused_names_leave_nothing"])
def reserves_one_name_only(patch):
    def wrong(right, kind, name):
        try:
            return right(kind, name)
        except ReservedNameError:
            return name

    _each_name(patch, wrong)


@mutant(kills=["names/unstorable_shared_names_are_refused", "names/unstorable_own_names_are_refused"])
def stores_whatever_python_can(patch):
    def wrong(right, kind, name):
        try:
            return right(kind, name)
        except InvalidNameError:
            if isinstance(name, str) and name.strip():
                return name
            raise

    _each_name(patch, wrong)


@mutant(kills=["names/unstorable_shared_names_are_refused", "names/shared_names_are_not_blank"])
def checks_names_in_the_database_only(patch):
    right = Transaction.enqueue

    async def enqueue(self, queue, payload, **options):
        await self.get_job("checked", 1)
        return await right(self, queue, payload, **options)

    patch.setattr(Transaction, "enqueue", enqueue)


@mutant(kills=["names/shared_names_are_str", "names/reserved_prefix_is_refused"])
def checks_the_queue_of_a_schedule_never(patch):
    right = Store.schedule

    async def schedule(self, name, spec, _, payload, **options):
        return await right(self, name, spec, "checked", payload, **options)

    patch.setattr(Store, "schedule", schedule)


@mutant(kills=["names/own_names_may_use_the_reserved_prefix"])
def reserves_the_names_of_consumers_too(patch):
    from alkstore_core.names import shared_name

    for module in _USERS:
        if hasattr(module, "free_name"):
            patch.setattr(module, "free_name", shared_name)


@mutant(
    kills=[
        "names/names_stay_as_they_are",
        "names/near_equal_locks_differ",
        "names/near_equal_schedules_differ",
        "names/near_equal_channels_differ",
    ]
)
def folds_the_names_of_everything(patch):
    _each_name(patch, lambda right, kind, name: right(kind, name).casefold() if isinstance(name, str) else name)


@mutant(
    kills=[
        "names/names_stay_as_they_are",
        "names/near_equal_locks_differ",
        "names/near_equal_schedules_differ",
        "names/near_equal_channels_differ",
    ]
)
def normalizes_names(patch):
    _each_name(patch, lambda right, kind, name: unicodedata.normalize("NFC", right(kind, name)))


@mutant(kills=["names/names_stay_as_they_are"])
def trims_queues(patch):
    right = Queue.__init__
    patch.setattr(Queue, "__init__", lambda self, store, name, options: right(self, store, name.strip(), options))


def _cut(name):
    return name.encode()[:63].decode(errors="ignore")


@mutant(kills=["names/long_channels_wake_their_own", "names/long_channels_wake_their_own_when_enlisted"])
def cuts_channels(patch):
    from alkstore_core.wakes import channel_topic

    for module in (notify, mem_notify):
        patch.setattr(module, "channel_topic", lambda name: channel_topic(_cut(name)))


@mutant(kills=["names/long_streams_keep_apart", "names/long_names_are_not_cut"])
def cuts_streams_and_consumers(patch):
    for name in ("append_events", "read_events"):
        right = getattr(StreamSession, name)
        patch.setattr(StreamSession, name, lambda self, stream, *rest, right=right: right(self, _cut(stream), *rest))
    for name in ("save_offset", "get_offset"):
        right = getattr(StreamSession, name)
        patch.setattr(
            StreamSession, name, lambda self, stream, who, *rest, right=right: right(self, stream, _cut(who), *rest)
        )


@mutant(kills=["names/long_names_are_not_cut"])
def cuts_queues(patch):
    for name in ("insert_jobs", "claim_jobs"):
        right = getattr(QueueSession, name)
        patch.setattr(QueueSession, name, lambda self, queue, *rest, right=right: right(self, _cut(queue), *rest))


@mutant(kills=["names/long_names_are_not_cut"])
def cuts_locks(patch):
    right = locks.LockSession.take_lock
    patch.setattr(locks.LockSession, "take_lock", lambda self, name, *rest: right(self, _cut(name), *rest))
