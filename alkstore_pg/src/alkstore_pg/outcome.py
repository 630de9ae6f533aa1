"""What became of a transaction whose connection was lost around COMMIT (T14).

The server is asked by the transaction's number. One that crashed has forgotten the numbers that had not reached its
disk, and gives them to others, so that the outcome it tells may be theirs: that a number was not committed is true all
the same, and that it was is not known to be.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

from alkstore_core.errors import AlkstoreError
from alkstore_core.waiting import Backoff

from alkstore_pg.sharing import Records

_log = logging.getLogger("alkstore.pg")


class Outcome(Enum):
    """What the server says, if it can be asked."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


async def resolved(ask: Callable[[], Awaitable[Records]], xid: int, patience_s: float) -> Outcome:
    """The outcome of transaction `xid`.

    While the server cannot be reached it is asked again and again: it may be starting. One that the lost connection
    left open is ended by the asking.

    Args:
        ask: runs the statement that asks, on any connection.
        xid: its number, from ``pg_current_xact_id()``, for the log.
        patience_s: how long to try.
    """
    backoff = Backoff(0.02, 0.5)
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    status, crashed, _ = (await ask())[0]
                except AlkstoreError as error:
                    _log.warning("what became of transaction %d cannot be asked yet: %s", xid, error)
                else:
                    if status == "committed":
                        return Outcome.UNKNOWN if crashed else Outcome.COMMITTED
                    if status == "aborted" or (status == "in progress" and crashed):
                        return Outcome.ROLLED_BACK
                    if status is None:  # too old for the server to remember
                        return Outcome.UNKNOWN
                await asyncio.sleep(backoff.next())
    except TimeoutError:
        return Outcome.UNKNOWN
