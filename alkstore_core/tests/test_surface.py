"""What is public, to the name: a new one is a decision, not an accident."""

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import alkstore_core
import pytest
from alkstore_core import errors, testing

ROOT = [
    "CONTRACT_VERSION",
    "LISTENER_RECONNECTED",
    "Acknowledgement",
    "Clock",
    "Delivery",
    "EventReceiver",
    "Holder",
    "Job",
    "JobHandle",
    "JobState",
    "Lock",
    "Mailbox",
    "Message",
    "Opening",
    "Outbox",
    "Queue",
    "QueueOptions",
    "Schedule",
    "ScheduleOptions",
    "StopToken",
    "Store",
    "Stream",
    "StreamEvent",
    "Transaction",
    "Wake",
    "WakeReceiver",
    "Worker",
    "encode_payload",
    "open_store",
]
ERRORS = [
    "AlkstoreError",
    "ClosedError",
    "CodecError",
    "CommitUnknownError",
    "ConsumerFencedError",
    "DatabaseError",
    "InvalidNameError",
    "InvalidSpecError",
    "LeadershipLostError",
    "PayloadTooLargeError",
    "ReservedNameError",
    "StaleDeliveryError",
]


def test_the_public_names_are_exactly_these() -> None:
    """Of the package root, of `errors` and of `testing`."""
    assert alkstore_core.__all__ == ROOT
    assert errors.__all__ == ERRORS
    assert testing.__all__ == ["ManualClock", "running_tasks"]
    for module in (alkstore_core, errors, testing):
        assert all(hasattr(module, name) for name in module.__all__)


def test_every_error_is_an_alkstore_error_and_only_the_unknown_commit_is_another_one() -> None:
    """The tree of section 3: flat, but for `CommitUnknownError`."""
    tree = {name: getattr(errors, name).__bases__ for name in ERRORS}
    assert tree == {
        **dict.fromkeys(ERRORS, (errors.AlkstoreError,)),
        "AlkstoreError": (Exception,),
        "CommitUnknownError": (errors.DatabaseError,),
    }


def test_errors_carry_what_a_caller_can_act_on() -> None:
    """The attributes that the contract names."""
    too_large = errors.PayloadTooLargeError(7999, 8000)
    assert (too_large.limit, too_large.size) == (7999, 8000)
    assert str(too_large).startswith("the encoded payload has 8000 bytes and notify carries at most 7999: ")
    assert errors.InvalidNameError("m", "n").name == errors.ReservedNameError("m", "n").name == "n"
    assert errors.InvalidSpecError("m", "s").spec == "s"
    assert errors.ConsumerFencedError("m", "h").holder == "h"
    assert errors.StaleDeliveryError("m", "d").delivery_id == "d"


def test_the_version_is_the_contract_s() -> None:
    """Major and minor, and the literal version of the distribution (X1)."""
    assert alkstore_core.__version__ == version("alkstore-core")
    assert alkstore_core.__version__.rpartition(".")[0] == alkstore_core.CONTRACT_VERSION
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert project["version"] == alkstore_core.__version__


@pytest.mark.parametrize("name", [name for name in ROOT if inspect.isclass(getattr(alkstore_core, name))])
def test_every_public_thing_says_what_it_is(name: str) -> None:
    """A docstring on each public class and on each public member that it defines itself."""
    thing = getattr(alkstore_core, name)
    assert thing.__doc__
    inherited = {member for base in thing.__mro__[1:] for member in vars(base)}
    for member, value in vars(thing).items():
        if not member.startswith("_") and member not in inherited and (callable(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{member}"
