"""The hooks that not every engine can have, and what excuses an engine from each.

A leg that uses one names it in ``needs``. An engine whose harness lacks it says why in ``Harness.unsupported``; the leg
is then reported as not applicable, with that reason. The engine can still be conformant where one of its traits makes
the hook impossible: only a process can be killed that can share the data, and only a server can be cut off.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """One such hook.

    Attributes:
        what: what the harness must offer.
        excused_without: the trait (an attribute of `harness.Harness`) whose absence excuses an engine from it.
    """

    what: str
    excused_without: str


NEEDS = {
    "child": Need("an address that a child process can open: Harness.address", "multi_process"),
    "durable": Need("data that outlives its stores: close them all, Harness.restart, open again", "durable"),
    "schema": Need("a stored schema version that can be moved: Harness.move_schema_version", "durable"),
    "spoil": Need("a transaction whose COMMIT the driver refuses: Harness.spoil", "durable"),
    "outage": Need("a time in which no write succeeds: Harness.outage", "durable"),
    "insert": Need("deliveries that plain SQL inserts past the engine: Harness.insert_delivery", "durable"),
    "sever": Need("cutting the connections that stores hold: Harness.sever", "server"),
}
"""By name, as legs and ``Harness.unsupported`` write it."""

TRAITS = ("durable", "multi_process", "server")
