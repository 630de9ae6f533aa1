"""Mailboxes: attach, send, check, acknowledge, suppress, settle, adopt, reroute."""

import draws
from alkstore_core import Acknowledgement, Holder
from alkstore_core.errors import ConsumerFencedError, StaleDeliveryError
from draws import MAILBOXES, Newest
from hypothesis import strategies as st
from machine import Machine, anytime, free, in_tx, operation
from side import Side

consumers = st.sampled_from((("run", "7"),) * 6 + (("fed", "7"), ("run", "8")))
"""A source and a subject."""
off = st.sampled_from((0, 0, 0, 0, 0, -1, 1))
"""How far a holder's generation is from its consumer's latest."""
types = st.sampled_from((None, "a", "b"))
wanted = st.sampled_from((None, None, None, ["a"], ["b"], ["b", "a"], []))
some = st.lists(draws.back, min_size=1, max_size=4)
"""Messages, by how far back they were sent."""


class MailboxOperations(Machine):
    """One consumer after the other, in two mailboxes."""

    def holder(self, mailbox: str, consumer: tuple[str, str], off: int) -> Holder:
        """The consumer in its latest generation, or in another one."""
        return Holder(*consumer, self.model.generations.get((mailbox, *consumer), 0) + off)

    @operation(5, free, on=draws.stores, mailbox=draws.mailboxes, payload=draws.payloads, type=types)
    def send(self, on, mailbox, payload, type):
        self.step(
            "send",
            lambda side: side.stores[on].mailbox(mailbox).send(payload, type),
            lambda side, sent: side.made_message(sent),
        )

    @operation(4, in_tx, mailbox=draws.mailboxes, payload=draws.payloads, type=types)
    def tx_send(self, mailbox, payload, type):
        self.step(
            "tx.send",
            lambda side: side.tx.send(mailbox, payload, type),
            lambda side, sent: side.made_message(sent),
            owned=True,
        )

    @operation(3, free, on=draws.stores, mailbox=draws.mailboxes, consumer=consumers)
    def attach(self, on, mailbox, consumer):
        source, subject = consumer

        async def call(side: Side) -> Holder:
            holder = await side.stores[on].mailbox(mailbox).attach(source=source, subject=subject)
            side.generations[mailbox, source, subject] = holder.generation
            return holder

        self.step("attach", call)

    @operation(1, free, on=draws.stores, mailbox=draws.mailboxes, consumer=consumers)
    def adopt(self, on, mailbox, consumer):
        source, subject = consumer
        self.step("adopt", lambda side: side.stores[on].mailbox(mailbox).adopt(source=source, subject=subject))

    @operation(
        8,
        free,
        on=draws.stores,
        mailbox=draws.mailboxes,
        consumer=consumers,
        off=off,
        limit=draws.limits,
        wanted=wanted,
    )
    def check_mail(self, on, mailbox, consumer, off, limit, wanted):
        holder = self.holder(mailbox, consumer, off)
        self.step(
            "check",
            lambda side: side.stores[on].mailbox(mailbox).check(holder, limit, wanted),
            lambda side, delivery: side.delivery(delivery),
        )

    @operation(
        7,
        free,
        on=draws.stores,
        mailbox=draws.mailboxes,
        consumer=consumers,
        off=off,
        which=st.one_of(draws.newest, draws.newest, st.sampled_from(("message", "nothing"))),
    )
    def acknowledge(self, on, mailbox, consumer, off, which):
        holder = self.holder(mailbox, consumer, off)

        async def call(side: Side) -> Acknowledgement | tuple[str, str]:
            id = (
                side.delivery_id(which)
                if isinstance(which, Newest)
                else side.message_id(0)
                if which == "message"
                else "x"
            )
            try:
                return await side.stores[on].mailbox(mailbox).acknowledge(holder, id)
            except (ConsumerFencedError, StaleDeliveryError) as error:  # the id in it is the engine's own
                return type(error).__name__, str(error).replace(repr(id), "it")

        self.step("acknowledge", call)

    @operation(3, free, on=draws.stores, mailbox=draws.mailboxes, which=some)
    def mark_read(self, on, mailbox, which):
        self.step(
            "mark_read",
            lambda side: side.stores[on].mailbox(mailbox).mark_read([side.message_id(back) for back in which]),
        )

    @operation(3, free, on=draws.stores, mailbox=draws.mailboxes, back=draws.back)
    def suppress_a_batch(self, on, mailbox, back):
        """Mark all messages of a delivery read, so that it is outstanding no more."""
        self.step(
            "mark_read of a batch", lambda side: side.stores[on].mailbox(mailbox).mark_read(side.batch(Newest(back)))
        )

    @operation(3, in_tx, mailbox=draws.mailboxes, which=some)
    def tx_mark_read(self, mailbox, which):
        self.step(
            "tx.mark_read",
            lambda side: side.tx.mark_read(mailbox, [side.message_id(back) for back in which]),
            owned=True,
        )

    @operation(1, free, on=draws.stores, mailbox=draws.mailboxes, consumer=consumers, settled=st.booleans())
    def settle(self, on, mailbox, consumer, settled):
        source, subject = consumer

        async def call(side: Side) -> bool:
            box = side.stores[on].mailbox(mailbox)
            return await (box.settle if settled else box.reopen)(source=source, subject=subject)

        self.step("settle" if settled else "reopen", call)

    @operation(1, free, on=draws.stores, mailbox=draws.mailboxes, to=draws.mailboxes)
    def reroute(self, on, mailbox, to):
        self.step("reroute", lambda side: side.stores[on].mailbox(mailbox).reroute(to=to))

    @operation(3, anytime)
    def look_at_the_rows(self):
        """What is stored is the same, by who reads it with none of the engines' code."""

        async def call(side: Side) -> object:
            return [side.mail_rows(await side.harness.witness.mailbox(name)) for name in MAILBOXES]

        rows = self.step("the rows of mailboxes", call)
        for _, _, outstanding in rows:
            self.expect("how many deliveries are outstanding", len(outstanding) <= 1, True)
