"""Engines whose mailboxes are wrong."""

# ruff: noqa: ARG001, ARG005 - a wrong engine takes the arguments of the right one

from collections import OrderedDict
from dataclasses import replace

from alkstore_contract_suite.mutation import mutant
from alkstore_core import mailboxes as facade
from alkstore_core.engine import Refusal
from alkstore_core.errors import DatabaseError
from alkstore_core.mailboxes import Mailbox
from alkstore_core.transaction import Transaction
from alkstore_core.values import Acknowledgement, Holder
from alkstore_core.wakes import mailbox_topic
from alkstore_mem import mailboxes
from alkstore_mem.database import Changes
from alkstore_mem.mail import ConsumerRow, MessageTable
from alkstore_mem.mailboxes import MailboxSession
from alkstore_mem.transaction import MemTransaction


def _changed(patch, method, change):
    """Let `change` (the right answer, session, arguments) give the answer of a primitive."""
    right = getattr(MailboxSession, method)

    async def wrong(self, *arguments, **options):
        return await change(await right(self, *arguments, **options), self, *arguments)

    patch.setattr(MailboxSession, method, wrong)


# versions, names


@mutant(kills=["mailboxes/older_engine_is_told"])
def tries_mailboxes_on_any_engine(patch):
    patch.setattr(facade, "require", lambda *arguments: None)


@mutant(kills=["mailboxes/names_and_numbers_are_checked"])
def takes_any_name(patch):
    patch.setattr(facade, "shared_name", lambda kind, name: name)


# checking


@mutant(
    kills=[
        "mailboxes/oldest_unread_come_in_order",
        "mailboxes/limit_is_clamped",
        "mailboxes/rerouted_mail_keeps_its_order",
    ]
)
def hands_out_the_newest(patch):
    right = MessageTable._note

    def note(self, row):
        right(self, row)
        mailbox = row.message.mailbox
        self.unread[mailbox] = OrderedDict(sorted(self.unread[mailbox].items(), reverse=True))

    patch.setattr(MessageTable, "_note", note)


@mutant(kills=["mailboxes/limit_is_clamped"])
def knows_no_largest_batch(patch):
    patch.setattr(facade, "LARGEST_BATCH", 10**6)


@mutant(kills=["mailboxes/no_mail_is_nothing"])
def stores_empty_deliveries(patch):
    async def change(answer, self, mailbox, holder, limit, types, fresh_id):
        if answer is None:
            with await self.writing() as changes:
                row = mailboxes.DeliveryRow(fresh_id, mailbox, holder, (), 0, self.now())
                changes.put(changes.database.deliveries, fresh_id, row)
        return answer

    _changed(patch, "check_mailbox", change)


@mutant(
    kills=[
        "mailboxes/unacknowledged_batch_is_replayed",
        "mailboxes/cancelled_calls_lose_nothing",
        "mailboxes/time_acknowledges_nothing",
    ]
)
def hands_out_the_same_mail_again_as_another_batch(patch):
    right = MailboxSession.check_mailbox

    async def check_mailbox(self, mailbox, holder, limit, types, fresh_id):
        with await self.writing() as changes:
            row = mailboxes.outstanding(changes, mailbox)
            if row is not None and row.holder == holder:
                changes.put(changes.database.deliveries, row.id, replace(row, fenced=True))
        return await right(self, mailbox, holder, limit, types, fresh_id)

    patch.setattr(MailboxSession, "check_mailbox", check_mailbox)


@mutant(kills=["mailboxes/racing_checks_get_one_delivery"])
def looks_first_and_hands_out_later(patch):
    right = MailboxSession.check_mailbox

    async def check_mailbox(self, mailbox, holder, limit, types, fresh_id):
        with await self.reading() as changes:
            held = mailboxes.outstanding(changes, mailbox)
        if held is not None:
            return await right(self, mailbox, holder, limit, types, fresh_id)
        with await self.writing() as changes:
            batch = list(changes.database.messages.unread[mailbox].items())[:limit]
            ids = tuple(message.id for _, message in batch)
            row = mailboxes.DeliveryRow(fresh_id, mailbox, holder, ids, batch[-1][0], self.now())
            changes.put(changes.database.deliveries, fresh_id, row)
            return mailboxes._delivery(changes, row, replayed=False)

    patch.setattr(MailboxSession, "check_mailbox", check_mailbox)


@mutant(kills=["mailboxes/replay_keeps_what_was_read_meanwhile"])
def replays_only_what_is_unread(patch):
    async def change(answer, self, *_):
        if answer is None or isinstance(answer, Refusal):
            return answer
        with await self.reading() as changes:
            rows = changes.database.messages.rows
            return replace(answer, messages=tuple(one for one in answer.messages if not rows[one.id].read))

    _changed(patch, "check_mailbox", change)


@mutant(kills=["mailboxes/types_decide_whether_and_not_what"])
def filters_the_batch_by_type(patch):
    async def change(answer, self, mailbox, holder, limit, types, fresh_id):
        if answer is None or isinstance(answer, Refusal) or types is None:
            return answer
        return replace(answer, messages=tuple(one for one in answer.messages if one.type in types))

    _changed(patch, "check_mailbox", change)


@mutant(kills=["mailboxes/types_decide_whether_and_not_what"])
def ignores_types(patch):
    right = MailboxSession.check_mailbox

    async def check_mailbox(self, mailbox, holder, limit, types, fresh_id):
        return await right(self, mailbox, holder, limit, None, fresh_id)

    patch.setattr(MailboxSession, "check_mailbox", check_mailbox)


# acknowledging


@mutant(kills=["mailboxes/acknowledging_reads_the_batch"])
def acknowledging_reads_the_whole_mailbox(patch):
    async def change(answer, self, mailbox, *_):
        with await self.writing() as changes:
            ids = [row.message.id for row in mailboxes._unread(changes, mailbox)]
            if isinstance(answer, Acknowledgement):
                mailboxes._mark_read(changes, mailbox, ids)
        return answer

    _changed(patch, "acknowledge_delivery", change)


@mutant(kills=["mailboxes/acknowledging_reads_the_batch", "mailboxes/suppression_changes_messages_only"])
def acknowledges_again_and_again(patch):
    async def change(answer, self, mailbox, holder, id):
        if not isinstance(answer, Acknowledgement):
            return answer
        with await self.writing() as changes:
            row = changes.get(changes.database.deliveries, id)
            changes.put(changes.database.deliveries, id, replace(row, acknowledged_at=self.now()))
        return replace(answer, acknowledged_at=self.now())

    _changed(patch, "acknowledge_delivery", change)


@mutant(kills=["mailboxes/time_acknowledges_nothing"])
def acknowledges_by_time(patch):
    right = MailboxSession.check_mailbox

    async def check_mailbox(self, mailbox, *arguments):
        with await self.writing() as changes:
            row, now = mailboxes.outstanding(changes, mailbox), self.now()
            if row is not None and now >= row.created_at + 3600:
                mailboxes._mark_read(changes, mailbox, row.message_ids)
                changes.put(changes.database.deliveries, row.id, replace(row, acknowledged_at=now))
        return await right(self, mailbox, *arguments)

    patch.setattr(MailboxSession, "check_mailbox", check_mailbox)


@mutant(
    kills=[
        "mailboxes/suppression_changes_messages_only",
        "mailboxes/attaching_fences_what_was_read_too",
    ]
)
def stores_a_status_when_the_last_message_is_read(patch):
    """What was outstanding is written down as over, in a second place."""
    right = MailboxSession.mark_read

    async def mark_read(self, mailbox, ids):
        with await self.reading() as changes:
            held = mailboxes.outstanding(changes, mailbox)
        marked = await right(self, mailbox, ids)
        with await self.writing() as changes:
            if held is not None and mailboxes.outstanding(changes, mailbox) is None:
                changes.put(changes.database.deliveries, held.id, replace(held, acknowledged_at=self.now()))
        return marked

    patch.setattr(MailboxSession, "mark_read", mark_read)


@mutant(kills=["mailboxes/suppression_is_of_this_mailbox"])
def suppresses_by_id_alone(patch):
    def mark_read(changes, mailbox, ids):
        messages, marked = changes.database.messages, 0
        for id in ids:
            row = changes.get(messages, id)
            if row is not None and not row.read:
                changes.put(messages, id, replace(row, read=True))
                marked += 1
        return marked

    patch.setattr(mailboxes, "_mark_read", mark_read)


@mutant(kills=["mailboxes/stale_ids_are_told_apart"])
def says_of_every_stale_id_that_it_is_unknown(patch):
    async def change(answer, *_):
        stale = (Refusal.MESSAGE_ID, Refusal.OTHER_MAILBOX)
        return Refusal.UNKNOWN_DELIVERY if answer in stale else answer

    _changed(patch, "acknowledge_delivery", change)


# holders


@mutant(
    kills=[
        "mailboxes/wrong_generation_is_refused",
        "mailboxes/attaching_fences_the_former_batch",
        "mailboxes/one_of_racing_consumers_is_left",
        "mailboxes/sources_have_records_of_their_own",
    ]
)
def ignores_the_generation(patch):
    right = mailboxes._refused

    def refused(changes, mailbox, holder):
        answer = right(changes, mailbox, holder)
        return None if answer is Refusal.OTHER_GENERATION else answer

    patch.setattr(mailboxes, "_refused", refused)


@mutant(kills=["mailboxes/one_of_racing_consumers_is_left"])
def checks_the_generation_outside_the_transaction(patch):
    """The record is read first, and the batch read later: somebody may attach in between."""

    async def acknowledge_delivery(self, mailbox, holder, id):
        with await self.reading() as changes:
            refused = mailboxes._refused(changes, mailbox, holder)
            row = changes.get(changes.database.deliveries, id)
        if refused is not None or row is None:
            return refused or Refusal.UNKNOWN_DELIVERY
        if row.fenced:
            return Refusal.FENCED
        with await self.writing() as changes:
            row = changes.get(changes.database.deliveries, id)
            mailboxes._mark_read(changes, mailbox, row.message_ids)
            changes.put(changes.database.deliveries, id, replace(row, acknowledged_at=self.now()))
        return Acknowledgement(self.now(), duplicate=False)

    patch.setattr(MailboxSession, "acknowledge_delivery", acknowledge_delivery)


@mutant(
    kills=[
        "mailboxes/attaching_fences_the_former_batch",
        "mailboxes/attaching_fences_what_was_read_too",
        "mailboxes/adopting_fences_without_a_generation",
    ]
)
def fencing_clears(patch):
    """What is to be fenced is deleted, and nobody can tell afterwards that it ever was."""

    def fence(changes, mailbox):
        for row in changes.database.deliveries.open(mailbox, 0):
            changes.put(changes.database.deliveries, row.id, None)

    patch.setattr(mailboxes, "_fence", fence)


@mutant(
    kills=["mailboxes/attaching_fences_what_was_read_too"],
)
def fences_only_what_is_outstanding(patch):
    def fence(changes, mailbox):
        row = mailboxes.outstanding(changes, mailbox)
        if row is not None:
            changes.put(changes.database.deliveries, row.id, replace(row, fenced=True))
            changes.wake(mailbox_topic(mailbox))

    patch.setattr(mailboxes, "_fence", fence)


@mutant(kills=["mailboxes/attaching_leaves_other_mailboxes_alone", "mailboxes/wrong_generation_is_refused"])
def knows_one_record_for_all_mailboxes(patch):
    right_get, right_put = Changes.get, Changes.put

    def key_of(changes, table, key):
        return ("", *key[1:]) if table is changes.database.consumers else key

    patch.setattr(Changes, "get", lambda self, table, key: right_get(self, table, key_of(self, table, key)))
    patch.setattr(Changes, "put", lambda self, table, key, row: right_put(self, table, key_of(self, table, key), row))


@mutant(kills=["mailboxes/adopting_fences_without_a_generation"])
def adopting_attaches(patch):
    async def adopt_mailbox(self, mailbox, source, subject):
        return await self.attach_consumer(mailbox, source, subject)

    patch.setattr(MailboxSession, "adopt_mailbox", adopt_mailbox)


@mutant(kills=["mailboxes/nobody_adopts_as_a_stranger"])
def fences_before_it_knows_who_adopts(patch):
    right = MailboxSession.adopt_mailbox

    async def adopt_mailbox(self, mailbox, source, subject):
        with await self.writing() as changes:
            mailboxes._fence(changes, mailbox)
        return await right(self, mailbox, source, subject)

    patch.setattr(MailboxSession, "adopt_mailbox", adopt_mailbox)


@mutant(kills=["mailboxes/sources_have_records_of_their_own"])
def knows_one_record_for_all_sources(patch):
    for method in ("attach_consumer", "settle_consumer"):
        right = getattr(MailboxSession, method)

        async def of_any(self, mailbox, source, subject, right=right, **options):
            return await right(self, mailbox, "any", subject, **options)

        patch.setattr(MailboxSession, method, of_any)
    right_refused = mailboxes._refused
    patch.setattr(
        mailboxes,
        "_refused",
        lambda changes, mailbox, holder: right_refused(changes, mailbox, replace(holder, source="any")),
    )


@mutant(kills=["mailboxes/another_source_s_batch_is_not_replayed"])
def compares_generations_only(patch):
    class SameGeneration(Holder):
        __slots__ = ()

        def __eq__(self, other):
            return self.generation == other.generation

        __hash__ = None

    for method in ("check_mailbox", "acknowledge_delivery"):
        right = getattr(MailboxSession, method)

        async def wrong(self, mailbox, holder, *arguments, right=right):
            loose = SameGeneration(holder.source, holder.subject, holder.generation)
            return await right(self, mailbox, loose, *arguments)

        patch.setattr(MailboxSession, method, wrong)


@mutant(kills=["mailboxes/settled_consumer_gets_nothing", "mailboxes/sources_have_records_of_their_own"])
def forgets_that_a_consumer_is_settled(patch):
    right = mailboxes._refused

    def refused(changes, mailbox, holder):
        answer = right(changes, mailbox, holder)
        return None if answer is Refusal.SETTLED else answer

    patch.setattr(mailboxes, "_refused", refused)


@mutant(kills=["mailboxes/settled_consumer_gets_nothing"])
def attaching_reopens(patch):
    right = MailboxSession.attach_consumer

    async def attach_consumer(self, mailbox, source, subject):
        generation = await right(self, mailbox, source, subject)
        with await self.writing() as changes:
            changes.put(changes.database.consumers, (mailbox, source, subject), ConsumerRow(generation))
        return generation

    patch.setattr(MailboxSession, "attach_consumer", attach_consumer)


@mutant(kills=["mailboxes/rerouted_mail_keeps_its_order"])
def reroutes_without_fencing(patch):
    right = MailboxSession.reroute_messages

    async def reroute_messages(self, mailbox, to):
        with await self.reading() as changes:
            held = mailboxes.outstanding(changes, mailbox)
        moved = await right(self, mailbox, to)
        with await self.writing() as changes:
            if held is not None:
                changes.put(changes.database.deliveries, held.id, held)
        return moved

    patch.setattr(MailboxSession, "reroute_messages", reroute_messages)


# stored


@mutant(kills=["mailboxes/restart_keeps_generation_and_batch", "mailboxes/batch_of_the_dead_is_kept"], engine="sqlite")
def every_check_attaches(patch):
    right = Mailbox.check

    async def check(self, holder, limit=50, types=None):
        return await right(self, await self.attach(source=holder.source, subject=holder.subject), limit, types)

    patch.setattr(Mailbox, "check", check)


@mutant(
    kills=["mailboxes/database_refuses_a_second_outstanding_delivery", "mailboxes/one_view_answers_everything"],
    engine="sqlite",
)
def has_no_guard(patch):
    from alkstore_sqlite import migrations

    right = migrations.standing_objects
    patch.setattr(
        migrations,
        "standing_objects",
        lambda: tuple(one for one in right() if not one.sql.startswith("CREATE TRIGGER")),
    )


# pending mail and wakes


@mutant(kills=["mailboxes/pending_is_what_nobody_holds", "mailboxes/suppression_rides_the_transaction"])
def pending_is_all_that_is_unread(patch):
    async def pending_messages(self, mailbox):
        with await self.reading() as changes:
            return [row.message for row in mailboxes._unread(changes, mailbox)]

    patch.setattr(MailboxSession, "pending_messages", pending_messages)


@mutant(kills=["mailboxes/pending_is_what_nobody_holds"])
def pending_has_a_limit(patch):
    async def change(answer, *_):
        return answer[:100]

    _changed(patch, "pending_messages", change)


@mutant(kills=["mailboxes/mail_wakes"])
def wakes_the_channel_of_the_mailbox_s_name(patch):
    patch.setattr(mailboxes, "mailbox_topic", lambda name: "c:" + name)
    patch.setattr(facade, "mailbox_topic", lambda name: "c:" + name)


@mutant(kills=["mailboxes/wakes_follow_eligibility"])
def wakes_whenever_a_message_is_read(patch):
    right = MailboxSession.mark_read

    async def mark_read(self, mailbox, ids):
        marked = await right(self, mailbox, ids)
        with await self.writing() as changes:
            changes.wake(mailbox_topic(mailbox))
        return marked

    patch.setattr(MailboxSession, "mark_read", mark_read)


@mutant(kills=["mailboxes/wakes_follow_eligibility", "mailboxes/suppression_rides_the_transaction"], hangs=True)
def wakes_for_new_messages_only(patch):
    right = Changes.wake

    def wake(self, topic):
        if not topic.startswith("m:") or self.staged(self.database.messages):
            numbers = [row.number for row in self.staged(self.database.messages).values() if row is not None]
            if not topic.startswith("m:") or self.database.message_numbers.drawn in numbers:
                right(self, topic)

    patch.setattr(Changes, "wake", wake)


@mutant(kills=["mailboxes/mail_wakes_other_processes"], engine="sqlite", hangs=True, in_children=True)
def stamps_no_topic_of_mail(patch):
    from alkstore_sqlite import mailboxes as sqlite_mailboxes

    patch.setattr(sqlite_mailboxes, "mailbox_topic", lambda name: "x:" + name)


# transactions


@mutant(
    kills=[
        "mailboxes/mail_lands_with_the_transaction",
        "mailboxes/enlisted_mail_goes_with_the_caller",
        "mailboxes/suppression_rides_the_transaction",
    ]
)
def mail_does_not_wait_for_the_commit(patch):
    for method in ("insert_message", "mark_read"):
        right = getattr(MailboxSession, method)

        async def at_once(self, *arguments, right=right):
            if not isinstance(self, MemTransaction):
                return await right(self, *arguments)
            staged, self.changes = self.changes, Changes(self.changes.database)
            try:
                result = await right(self, *arguments)
                with self.changes.database.exclusive():
                    self.changes.database._apply(self.changes, self.now())
            finally:
                self.changes = staged
            return result

        patch.setattr(MailboxSession, method, at_once)


@mutant(kills=["mailboxes/what_has_ended_refuses"])
def sends_on_an_ended_transaction(patch):
    async def send(self, mailbox, payload, type=None):
        return "message"

    patch.setattr(Transaction, "send", send)


@mutant(kills=["mailboxes/processes_race_for_a_mailbox"], engine="sqlite", in_children=True)
def hands_one_batch_to_everybody(patch):
    """Nobody is fenced, and whoever comes has the batch."""
    from alkstore_sqlite import mailboxes as sqlite_mailboxes

    class Anybody:
        def __init__(self, *_):
            pass

        def __ne__(self, other):
            return False

    right = sqlite_mailboxes.refused

    def refused(*arguments):
        answer = yield from right(*arguments)
        return None if answer is Refusal.OTHER_GENERATION else answer

    patch.setattr(sqlite_mailboxes, "refused", refused)
    patch.setattr(sqlite_mailboxes, "_fence", lambda scope, mailbox: iter(()))
    patch.setattr(sqlite_mailboxes, "Holder", Anybody)


@mutant(kills=["mailboxes/writes_fail_in_an_outage_and_leave_nothing"], engine="sqlite")
def takes_an_outage_for_no_mail(patch):
    right = Mailbox.check

    async def check(self, *arguments, **options):
        try:
            return await right(self, *arguments, **options)
        except DatabaseError:
            return None

    patch.setattr(Mailbox, "check", check)
