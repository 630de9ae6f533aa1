"""What several databases carry together when load is uneven: ``python -m benchmarks.sharding``.

Queues (or tenants) are given to databases by a hash of their name. The busiest database is full first, so all of them
carry ``total / share of the busiest``: arithmetic for equal queues in great number, and not for a few busy ones, whose
loads follow a power law. This draws such loads and looks.
"""

import hashlib
import statistics
import sys
from collections.abc import Sequence
from functools import cache

from benchmarks.report import table

_NAMINGS = 200
"""How many sets of names are tried: which queues meet in one database is a matter of their names."""


@cache
def _hashed(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def place_of(name: str, databases: int) -> int:
    """Which of so many databases a name belongs to: always the same, in every process."""
    return _hashed(name) % databases


def loads(queues: int, skew: float) -> list[float]:
    """The share of each queue in the whole load: by Zipf's law, where the n-th is n ** skew times below the first."""
    weights = [(rank + 1) ** -skew for rank in range(queues)]
    whole = sum(weights)
    return [weight / whole for weight in weights]


def carried(shares: Sequence[float], databases: int, naming: int) -> float:
    """How many times one database's load all of them carry before the busiest of them is full."""
    filled = [0.0] * databases
    for number, share in enumerate(shares):
        filled[place_of(f"{naming}/{number}", databases)] += share
    return sum(filled) / max(filled)


def simulated(queues: int, skew: float, databases: int, namings: int = _NAMINGS) -> tuple[float, float]:
    """The median of `carried` over sets of names, and what nine in ten of them reach."""
    shares = loads(queues, skew)
    found = sorted(carried(shares, databases, naming) for naming in range(namings))
    return statistics.median(found), found[len(found) // 10]


@cache
def simulation() -> str:
    """The table that docs/scale.md has."""
    rows = []
    for queues in (10, 100, 1000):
        for skew, called in ((0.0, "all alike"), (0.5, "uneven"), (1.0, "a few busy ones")):
            cells = [simulated(queues, skew, databases) for databases in (2, 4, 8)]
            rows.append([str(queues), called, *(f"{median:.1f} ({least:.1f})" for median, least in cells)])
    return table(["queues", "their loads", "2 databases", "4 databases", "8 databases"], rows)


if __name__ == "__main__":
    sys.stdout.write(simulation())
