"""notify and listen: hints that something changed (contract section 5)."""

from alkstore_core import Store, Wake

from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.proofs import heard_nothing


@leg(rules="N2 N3", since="1.0")
async def test_listen_starts_from_now(store: Store, second_store: Store) -> None:
    """A receiver hears every notify committed after `listen` returned, and none from before."""
    await store.notify("orders")
    await second_store.notify("orders")
    async with store.listen("orders") as receiver:
        await heard_nothing(store, receiver)
        for sender in (store, second_store):
            await sender.notify("orders")
            assert await receiver.recv() == Wake("orders")
