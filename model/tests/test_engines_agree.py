"""Every engine does the same with the same operations."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from drivers import DRIVERS, Driver
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Machine, is_deep
from mailbox_operations import MailboxOperations
from queue_operations import OutboxOperations, QueueOperations, ScheduleOperations
from store_operations import StoreOperations, TimeOperations
from stream_operations import LockOperations, StreamOperations
from transaction_operations import TransactionOperations


class Queues(QueueOperations, TimeOperations):
    """Jobs, and time."""


class Schedules(ScheduleOperations, LockOperations, TimeOperations):
    """Schedules, the lock that their leader holds, and other locks."""


class Transactions(TransactionOperations, StreamOperations, StoreOperations):
    """Transactions, streams, and stores that end."""


class Mailboxes(MailboxOperations, TimeOperations):
    """Mail, and time."""


class MailTransactions(MailboxOperations, TransactionOperations):
    """Mail, and the transactions that it rides on."""


class Everything(
    QueueOperations,
    OutboxOperations,
    ScheduleOperations,
    StreamOperations,
    LockOperations,
    MailboxOperations,
    TransactionOperations,
    StoreOperations,
    TimeOperations,
):
    """All that there is."""


def compare(
    machine: type[Machine], drivers: Sequence[type[Driver]], *, times: int = 1, again: bool = True, **options: Any
) -> None:
    """Let the machine compare these engines.

    Args:
        machine: what it does with them.
        drivers: which engines.
        times: for how many times the runs of a quick comparison.
        again: whether always in the same runs, or in others each time.
        options: settings of Hypothesis.
    """
    chosen = settings(
        max_examples=times * min(driver.examples for driver in drivers),
        stateful_step_count=60,
        derandomize=again,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    run_state_machine_as_test(partial(machine, drivers), settings=chosen)


@pytest.mark.parametrize("driver", DRIVERS[1:], ids=lambda driver: driver.name)
@pytest.mark.parametrize("machine", [Queues, Schedules, Transactions, Mailboxes, MailTransactions, Everything])
def test_engines_agree(machine: type[Machine], driver: type[Driver]) -> None:
    """Every engine gives the same answers, refusals and rows as memory, step by step."""
    compare(machine, (DRIVERS[0], driver), times=10 if is_deep() else 1, again=not is_deep())
