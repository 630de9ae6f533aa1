"""All legs there are, and the file that freezes their ids."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from alkstore_contract_suite import legs
from alkstore_contract_suite.leg import Leg, leg_id

LOCK = Path(__file__).with_name("legs.lock")
LEGS = Path(__file__).with_name("legs")

_HEADER = """\
# The legs of the contract suite: id, contract version it arrived in, rules it proves. One line each, sorted.
# Ids never change and never go once released. Rewrite with: alkstore-contract legs --update
"""


class UnknownLegError(LookupError):
    """No leg has that id."""


class DuplicateLegError(LookupError):
    """Legs in several files have the same id."""

    def __init__(self, id: str, files: Iterable[str]) -> None:
        super().__init__(f"{id} is the id of legs in several files: {', '.join(files)}")


@dataclass(frozen=True, slots=True)
class LockedLeg:
    """What legs.lock keeps of a leg."""

    id: str
    since: str
    rules: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.id, self.since, *self.rules))


def locked_legs() -> dict[str, LockedLeg]:
    """The legs in legs.lock by id, sorted."""
    lines = [line.split() for line in LOCK.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {line[0]: LockedLeg(line[0], line[1], tuple(line[2:])) for line in sorted(lines)}


def leg_modules() -> list[str]:
    """The modules of legs and what is beside them, by their whole names."""
    return [module.name for module in pkgutil.iter_modules(legs.__path__, f"{legs.__name__}.")]


def written_legs() -> dict[str, Leg]:
    """The legs in the code by id, sorted. Imports every module of legs.

    Raises:
        DuplicateLegError: two modules have a leg of the same id.
    """
    found: dict[str, Leg] = {}
    files: dict[str, str] = {}
    for module_name in leg_modules():
        file = f"{module_name.rpartition('.')[2]}.py"
        if file.startswith("test_"):
            module = importlib.import_module(module_name)
            for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
                if name.startswith("test_") and (described := described_leg(function)) is not None:
                    if files.setdefault(described.id, file) != file:
                        raise DuplicateLegError(described.id, (files[described.id], file))
                    found[described.id] = described
    return dict(sorted(found.items()))


def described_leg(function: object) -> Leg | None:
    """What `leg` noted on a function; None for a function that is no leg."""
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "leg":
            described: Leg = mark.args[0]
            return described
    return None


def write_lock(found: Iterable[Leg]) -> None:
    """Freeze `found`."""
    lines = sorted(str(LockedLeg(leg.id, leg.since, leg.rules)) for leg in found)
    LOCK.write_text(_HEADER + "".join(f"{line}\n" for line in lines), "utf-8")


def leg_path(id: str) -> str:
    """What to give pytest to run one leg: its file and function. Reads the mechanism's files, and imports none of them.

    Raises:
        UnknownLegError: no leg in legs.lock has this id, or none in the code.
        DuplicateLegError: legs in several files have it.
    """
    if id not in locked_legs():
        raise UnknownLegError(f"there is no leg {id!r}: see alkstore-contract legs")
    function = f"test_{id.partition('/')[2]}"
    written = re.compile(rf"^async def {function}\(", re.MULTILINE)
    candidates = [file for file in sorted(LEGS.glob("test_*.py")) if leg_id(file.stem, function) == id]
    files = [file for file in candidates if written.search(file.read_text("utf-8"))]
    if not files:
        raise UnknownLegError(f"the leg {id!r} is in legs.lock and not in the code")
    if len(files) > 1:
        raise DuplicateLegError(id, [file.name for file in files])
    return f"{files[0]}::{function}"
