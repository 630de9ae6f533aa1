"""Engines whose outboxes are wrong."""

from alkstore_contract_suite.mutation import mutant, rewrite
from alkstore_core import Outbox, Transaction, encode_payload, outbox, transaction
from alkstore_core.options import DEFAULT_QUEUE_OPTIONS, OUTBOX_QUEUE_OPTIONS, job_stamp


def name_queues(patch, backing_queue):
    """Derive the backing queues' names so."""
    patch.setattr(outbox, "backing_queue", backing_queue)
    patch.setattr(transaction, "backing_queue", backing_queue)


@mutant(kills=["outbox/transaction_takes_the_outboxs_name", "outbox/enqueue_alone"])
def names_the_queue_of_a_transaction_otherwise(patch):
    patch.setattr(transaction, "backing_queue", lambda name: name)


@mutant(kills=["outbox/enqueue_alone"])
def enqueues_alone_elsewhere(patch):
    async def enqueue(self, payload, **options):
        return await self._queue._store.queue(self._name).enqueue(payload, **options)

    patch.setattr(Outbox, "enqueue", enqueue)


@mutant(kills=["outbox/transaction_takes_the_outboxs_name", "outbox/rolled_back_delivery_never_leaves"])
def enqueues_a_delivery_outside_the_transaction(patch):
    async def outbox_enqueue(self, name, payload, **options):
        database = self._session.changes.database
        holder, database.slot.holder = database.slot.holder, None
        session = self._session._engine.autocommit()
        stamp = job_stamp(OUTBOX_QUEUE_OPTIONS, **options)
        ids = await session.insert_jobs(outbox.backing_queue(name), [encode_payload(payload)], stamp)
        database.slot.holder = holder
        return ids[0]

    patch.setattr(Transaction, "outbox_enqueue", outbox_enqueue)


@mutant(kills=["outbox/delivery_options"])
def stamps_a_delivery_like_any_job(patch):
    for module in (outbox, transaction):
        patch.setattr(module, "OUTBOX_QUEUE_OPTIONS", DEFAULT_QUEUE_OPTIONS)


@mutant(kills=["outbox/nothing_else_reaches_a_delivery", "outbox/outboxes_are_apart"])
def shares_the_names_of_queues(patch):
    name_queues(patch, lambda name: name)


@mutant(kills=["outbox/outboxes_are_apart"])
def folds_the_names_of_outboxes(patch):
    right = outbox.backing_queue
    name_queues(patch, lambda name: right(name.strip().lower()))


@mutant(kills=["outbox/outboxes_are_apart"])
def cuts_the_names_of_outboxes(patch):
    right = outbox.backing_queue
    name_queues(patch, lambda name: right(name)[:63])


@mutant(kills=["outbox/run_once_delivers_one"])
def delivers_all_there_is(patch):
    right = Outbox.run_once

    async def run_once(self, worker_id, delivery):
        delivered = False
        while await right(self, worker_id, delivery):
            delivered = True
        return delivered

    patch.setattr(Outbox, "run_once", run_once)


@mutant(kills=["outbox/run_once_delivers_one"])
def claims_ten_and_delivers_one(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await self._queue.claim_one(worker_id)",
        "([*await self._queue.claim_batch(worker_id, 10), None])[0]",
    )


@mutant(kills=["outbox/run_once_of_nothing"], hangs=True)
def waits_for_something_to_deliver(patch):
    right = Outbox.run_once

    async def run_once(self, worker_id, delivery):
        async with self._queue._store.listen("delivery") as receiver:
            while not await right(self, worker_id, delivery):
                await receiver.recv()
        return True

    patch.setattr(Outbox, "run_once", run_once)


@mutant(kills=["outbox/returning_acks", "outbox/delivery_may_settle"])
def acks_before_it_delivers(patch):
    rewrite(patch, Outbox, "run_once", "await delivery(handle)", "await handle.ack() and await delivery(handle)")


@mutant(kills=["outbox/returning_acks"])
def retries_what_returns_false(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await delivery(handle)",
        "if await delivery(handle) is False:\n            raise LookupError",
    )


@mutant(kills=["outbox/raising_retries", "outbox/last_failure_buries"])
def lets_the_error_out(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await handle.retry(failure_text(error))",
        "await handle.retry(failure_text(error))\n        raise",
    )


@mutant(kills=["outbox/raising_retries", "outbox/last_failure_buries", "outbox/any_error_text_is_kept"])
def keeps_the_repr_of_the_error(patch):
    patch.setattr(outbox, "failure_text", repr)


@mutant(kills=["outbox/raising_retries"])
def buries_at_the_first_failure(patch):
    rewrite(patch, Outbox, "run_once", "handle.retry(", "handle.fail(")


@mutant(kills=["outbox/raising_retries"])
def retries_without_a_pause(patch):
    rewrite(patch, Outbox, "run_once", "failure_text(error))", "failure_text(error), 0)")


@mutant(kills=["outbox/last_failure_buries"])
def gives_a_failed_delivery_back(patch):
    rewrite(patch, Outbox, "run_once", "handle.retry(failure_text(error))", "handle.release()")


@mutant(kills=["outbox/any_error_text_is_kept"])
def takes_the_errors_text_as_it_is(patch):
    patch.setattr(outbox, "failure_text", str)


@mutant(kills=["outbox/delivery_may_settle"])
def buries_what_failed_though_it_was_settled(patch):
    async def run_once(self, worker_id, delivery):
        handle = await self._queue.claim_one(worker_id)
        if handle is None:
            return False
        try:
            await delivery(handle)
        except Exception:
            await self._queue.cancel(handle.job.id)
        await handle.ack()
        return True

    patch.setattr(Outbox, "run_once", run_once)


@mutant(kills=["outbox/cancellation_is_no_failure"])
def takes_a_cancellation_for_a_failure(patch):
    rewrite(patch, Outbox, "run_once", "except Exception as error", "except BaseException as error")


@mutant(kills=["outbox/cancellation_is_no_failure"])
def counts_a_cancellation_as_a_failed_attempt(patch):
    rewrite(patch, Outbox, "run_once", "see_through(handle.release)", "see_through(lambda: handle.retry('cancelled'))")


@mutant(kills=["outbox/cancellation_is_no_failure"])
def acks_what_was_cancelled(patch):
    rewrite(patch, Outbox, "run_once", "see_through(handle.release)", "see_through(handle.ack)")


@mutant(
    kills=[
        "outbox/nothing_heartbeats_by_itself",
        "outbox/late_ack_is_no_error",
        "outbox/slow_delivery_may_happen_again",
    ],
    hangs=True,
)
def holds_a_delivery_for_an_hour(patch):
    rewrite(
        patch, Outbox, "run_once", "await delivery(handle)", "await handle.heartbeat(3600) and await delivery(handle)"
    )


@mutant(kills=["outbox/delivery_may_heartbeat"])
def acks_only_within_the_first_deadline(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await handle.ack()",
        "await self._queue._store.engine.now() < handle.job.claim_expires_at and await handle.ack()",
    )


@mutant(kills=["outbox/slow_delivery_may_happen_again", "outbox/late_ack_is_no_error"])
def raises_where_the_ack_comes_late(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await handle.ack()",
        "if not await handle.ack():\n                raise LookupError('the claim has lapsed')",
    )


@mutant(kills=["outbox/slow_delivery_may_happen_again", "outbox/late_ack_is_no_error"])
def deletes_what_was_delivered_late(patch):
    rewrite(
        patch,
        Outbox,
        "run_once",
        "await handle.ack()",
        "await handle.ack() or await self._queue.cancel(handle.job.id)",
    )


@mutant(kills=["outbox/deliveries_at_once_are_disjoint"])
def shares_claims_among_workers_of_one_name(patch):
    claimed = []

    async def run_once(self, worker_id, delivery):
        claimed.extend([] if claimed else await self._queue.claim_batch(worker_id, 3))
        if not claimed:
            return False
        handle = claimed[0]
        await delivery(handle)
        await handle.ack()
        if handle in claimed:
            claimed.remove(handle)
        return True

    patch.setattr(Outbox, "run_once", run_once)
