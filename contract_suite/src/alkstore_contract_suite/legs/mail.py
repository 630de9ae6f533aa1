"""What the legs of mailboxes share: a consumer, mail, and batches of it."""

import pytest
from alkstore_core import Delivery, Holder, Mailbox, Message, Store
from alkstore_core.errors import (
    ConsumerFencedError,
)


async def attached(store: Store, *, name: str = "run:7", source: str = "run") -> tuple[Mailbox, Holder]:
    """A mailbox with a consumer."""
    mailbox = store.mailbox(name)
    return mailbox, await mailbox.attach(source=source, subject="7")


async def sent(mailbox: Mailbox, *payloads: object, type: str | None = None) -> list[str]:
    """The ids of messages sent one after the other."""
    return [await mailbox.send(payload, type) for payload in payloads]


async def batch_of(mailbox: Mailbox, holder: Holder, limit: int = 50) -> Delivery:
    """The delivery that there must be."""
    delivery = await mailbox.check(holder, limit)
    assert delivery is not None, f"{mailbox!r} gave {holder} nothing"
    return delivery


def ids(delivery: Delivery) -> list[str]:
    """The ids of its messages."""
    return [message.id for message in delivery.messages]


def payloads(messages: "Delivery | list[Message]") -> list[object]:
    """What was sent."""
    listed = list(messages.messages) if isinstance(messages, Delivery) else messages
    return [message.payload_as(object) for message in listed]


async def refused_for_good(mailbox: Mailbox, holder: Holder, delivery_id: str) -> None:
    """Neither of them is accepted."""
    with pytest.raises(ConsumerFencedError):
        await mailbox.check(holder)
    with pytest.raises(ConsumerFencedError):
        await mailbox.acknowledge(holder, delivery_id)
