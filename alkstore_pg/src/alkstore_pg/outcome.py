"""What became of a transaction whose connection was lost around COMMIT (T14)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import asyncpg
from alkstore_core.errors import AlkstoreError
from alkstore_core.waiting import Backoff

from alkstore_pg.sharing import Records

_log = logging.getLogger("alkstore.pg")


class Outcome(Enum):
    """What the server says, if it can be asked."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


async def resolved(xid: int, ask: Callable[[int], Awaitable[Records]], patience_s: float) -> Outcome:
    """The outcome of transaction `xid`.

    While the server cannot be reached it is asked again and again: it may be starting. One that the lost connection
    left open is ended by the asking. A server that has crashed meanwhile, or another one that took over, may have given
    the number of a transaction that was lost to a later one: that it says "committed" then tells nothing.

    Args:
        xid: its number, from ``pg_current_xact_id()``.
        ask: runs the statement that asks, on any connection, about the life of the server that numbered it.
        patience_s: how long to try.
    """
    backoff = Backoff(0.02, 0.5)
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    status, same_life, _ = (await ask(xid))[0]
                except AlkstoreError as error:
                    if isinstance(error.__cause__, asyncpg.InvalidParameterValueError):
                        return Outcome.ROLLED_BACK  # a number that is not given out yet, any more
                    _log.warning("what became of transaction %d cannot be asked yet: %s", xid, error)
                else:
                    if status == "committed":
                        return Outcome.COMMITTED if same_life else Outcome.UNKNOWN
                    if status == "aborted":
                        return Outcome.ROLLED_BACK
                    if status is None:  # too old for the server to remember
                        return Outcome.UNKNOWN
                await asyncio.sleep(backoff.next())
    except TimeoutError:
        return Outcome.UNKNOWN
