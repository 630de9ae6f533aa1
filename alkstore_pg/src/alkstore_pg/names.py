"""Names as the tables hold them (V4).

Names are indexed, and Postgres has no room in an index entry for more than about 2,600 bytes. A longer name is
therefore known by its hash, under a prefix that no shared name has; other columns hold such a name itself where
it has to be told again. Nothing about a name of the ordinary kind changes.
"""

import hashlib

LONGEST_INDEXED_BYTES = 1000
"""The longest name that is indexed as it is: two of them and some numbers fit in an index entry."""
_HASHED = "__alkstore_long:"
_SURELY_SHORT = LONGEST_INDEXED_BYTES // 4


def key_of(name: str) -> str:
    """What stands for `name` in the tables: itself, or its hash. No two names have the same.

    A consumer's name may start with the prefix of the hashes, and is then hashed itself.
    """
    if name.startswith(_HASHED):
        return _hashed(name)
    if len(name) <= _SURELY_SHORT or len(name.encode()) <= LONGEST_INDEXED_BYTES:
        return name
    return _hashed(name)


def _hashed(name: str) -> str:
    return _HASHED + hashlib.sha256(name.encode()).hexdigest()
