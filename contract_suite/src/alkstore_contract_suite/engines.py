"""Which engines are installed: found by entry point, so that the suite knows none of their names."""

from dataclasses import dataclass
from importlib.metadata import entry_points

from alkstore_contract_suite.harness import ENTRY_POINT_GROUP, Harness, check_declarations


class UnknownEngineError(LookupError):
    """No installed distribution registers a harness under that name."""


@dataclass(frozen=True, slots=True)
class EngineUnderTest:
    """One engine: the name of its harness, the harness, and the distribution that it came in."""

    name: str
    harness: type[Harness]
    distribution: str
    version: str


def installed() -> list[str]:
    """The names of all installed harnesses, sorted."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP).names)


def find_engine(name: str) -> EngineUnderTest:
    """The engine registered as `name`.

    Raises:
        UnknownEngineError: there is none; the message lists those that there are.
        HarnessError: its harness does not declare what it must.
    """
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise UnknownEngineError(
            f"no harness is registered as {name!r} (installed: {known}): install the engine, which registers one in "
            f"the entry point group {ENTRY_POINT_GROUP!r}"
        )
    entry = found[name]
    harness: type[Harness] = entry.load()
    check_declarations(harness)
    if entry.dist is None:
        return EngineUnderTest(name, harness, "unknown", "unknown")
    return EngineUnderTest(name, harness, entry.dist.name, entry.dist.version)
