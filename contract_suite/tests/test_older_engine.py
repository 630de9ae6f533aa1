"""An engine of an older contract: said to be one, and not failed for what arrived since (X1, M0)."""

import re

import pytest
from alkstore_contract_suite import CONTRACT_VERSION, engines
from alkstore_contract_suite.catalogue import locked_legs
from alkstore_contract_suite.cli import main
from alkstore_contract_suite.report import Outcome
from alkstore_contract_suite.running import run_legs
from alkstore_mem.engine import MemEngine
from alkstore_mem.harness import MemHarness
from click.testing import CliRunner


@pytest.fixture
def older(monkeypatch):
    """The memory engine, as it was before mailboxes."""
    monkeypatch.setattr(MemHarness, "contract", "1.0")
    monkeypatch.setattr(MemEngine, "contract", "1.0")
    return engines.find_engine("mem")


def test_newer_legs_are_not_asked(older):
    """The legs of mailboxes are not applicable, what it says of its version is right, and that is its only fault."""
    mail = [id for id, leg in locked_legs().items() if leg.since == "1.1"]
    assert {id.partition("/")[0] for id in mail} == {"mailboxes"}
    report = run_legs(older, only=["versions/one_contract", "queues/claim_order", *mail], quiet=True)
    outcomes = {leg.id: leg.outcome for leg in report.legs if leg.outcome is not Outcome.NOT_RUN}
    assert outcomes == {
        **dict.fromkeys(mail, Outcome.NEWER),
        "versions/one_contract": Outcome.PASSED,
        "queues/claim_order": Outcome.PASSED,
    }
    ran = len(outcomes)
    assert report.faults == ("the engine implements contract 1.0", f"filtered run: {ran} of {len(report.legs)} legs")
    reasons = {variant.reason for leg in report.legs for variant in leg.variants if leg.id in mail}
    assert reasons == {"n/a: arrived in 1.1"}


@pytest.mark.usefixtures("older")
def test_the_command_says_how_many(monkeypatch):
    """What a person reads: how many legs are newer, and which contract the engine is of."""
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(main, ["run", "mem", "-k", "pending or claim_order"])
    assert result.exit_code == 1
    assert re.search(r"n/a: arrived in 1\.1, after this engine's contract 1\.0: \d legs", result.output), result.output
    assert f"NOT conformant with contract {CONTRACT_VERSION}" in result.output
    assert "the engine implements contract 1.0" in result.output
