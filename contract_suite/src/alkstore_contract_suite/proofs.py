"""How a leg proves that something did not happen, without waiting for it: by a sentinel that must arrive next."""

import uuid

from alkstore_core import EventReceiver, Store, Stream, StreamEvent, Wake, WakeReceiver


async def caught_up(store: Store) -> None:
    """Return once `store` has heard every notify that was committed before this call, by whatever store or process.

    A notify on a channel of its own is the sentinel: wakes come in commit order.
    """
    channel = f"sentinel-{uuid.uuid4().hex}"
    async with store.listen(channel) as sentinel:
        await store.notify(channel)
        wake = await sentinel.recv()
        while wake != Wake(channel):  # told of a reconnection meanwhile
            assert wake is not None, f"the receiver of {channel!r} closed while {store!r} is open"
            wake = await sentinel.recv()


async def heard_nothing(store: Store, *receivers: WakeReceiver) -> None:
    """Prove that no notify committed until now has woken `receivers`, which are of `store`."""
    await caught_up(store)
    for receiver in receivers:
        wake = await receiver.try_recv()
        assert wake is None, f"{receiver!r} heard {wake!r}"


async def mail_caught_up(store: Store, sender: Store) -> None:
    """Return once `store` has heard of all mail that `sender` committed before this call."""
    mailbox = f"sentinel-{uuid.uuid4().hex}"
    async with store.mailbox(mailbox).listen() as wakes:
        for _ in range(2):  # of those that were announced together with the first, the order is not known
            await sender.mailbox(mailbox).send("sentinel")
            assert await wakes.recv() == Wake(mailbox)


async def mail_woke_nobody(store: Store, *receivers: WakeReceiver, sender: Store | None = None) -> None:
    """Prove that no mail that `sender`, or else `store`, committed until now has woken `receivers` of `store`.

    Wakes may be late and repeated (N3): those of what came before must have been `heard`.
    """
    await mail_caught_up(store, sender or store)
    for receiver in receivers:
        wake = await receiver.try_recv()
        assert wake is None, f"{receiver!r} heard {wake!r}"


async def heard(store: Store, *receivers: WakeReceiver, sender: Store | None = None) -> None:
    """Take from `receivers` of `store` the wakes of all mail that `sender`, or else `store`, committed until now."""
    await mail_caught_up(store, sender or store)
    for receiver in receivers:
        while await receiver.try_recv() is not None:
            pass


async def got_nothing(stream: Stream, *receivers: EventReceiver) -> StreamEvent:
    """Prove that no event committed until now reaches `receivers` of `stream`: the sentinel published now is next.

    Returns:
        The sentinel's event.
    """
    payload = f"sentinel-{uuid.uuid4().hex}"
    offset = await stream.publish(payload)
    for receiver in receivers:
        event = await receiver.recv()
        assert event is not None, f"{receiver!r} closed"
        assert (event.offset, event.payload_as(str)) == (offset, payload), f"{receiver!r} got {event!r}"
    [sentinel] = await stream.read_since(offset - 1, 1)
    return sentinel
