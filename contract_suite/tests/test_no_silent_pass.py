"""Whatever keeps a leg from proving something keeps the engine from being called conformant."""

import asyncio
import warnings
from contextlib import contextmanager
from typing import ClassVar

import pytest
from alkstore_contract_suite.catalogue import UnknownLegError
from alkstore_contract_suite.engines import EngineUnderTest
from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.matrix import matrix_of
from alkstore_contract_suite.report import EngineStamp, Exemption, LegResult, Outcome, Report
from alkstore_contract_suite.running import run_legs
from alkstore_contract_suite.verdict import faults_of
from alkstore_core import Queue
from alkstore_mem.harness import MemHarness

pytestmark = pytest.mark.usefixtures("paper")


def run(harness: type[Harness] = MemHarness, **options) -> Report:
    """The three legs of the paper suite on the memory engine, driven by some harness."""
    return run_legs(EngineUnderTest("mem", harness, "alkstore-mem", "1.1.0"), quiet=True, **options)


def outcomes(report: Report) -> dict[str, Outcome]:
    return {result.id: result.outcome for result in report.legs}


def test_a_right_engine_is_conformant():
    """All legs on a right engine: this is what conformant looks like."""
    report = run()
    assert outcomes(report) == {
        "paper/claims": Outcome.PASSED,
        "paper/enqueues": Outcome.PASSED,
        "paper/kills": Outcome.NOT_APPLICABLE,
    }
    assert report.faults == ()
    stamp = f"suite 1.1.0, 3 legs, digest {report.digest[7:19]}, 1 of them not applicable"
    assert report.verdict == f"mem: conformant with contract 1.1 ({stamp})"


def test_a_leg_that_fails():
    """A leg that fails is named, with how it ended."""

    class Harness(MemHarness):
        def open(self, **options):
            opening = super().open(**options)
            self.clock.set(0)
            return opening

        async def start(self):
            await super().start()
            await self._keeper.queue("emails").enqueue("in the way")

    report = run(Harness)
    assert report.faults == ("1 failed: paper/enqueues",)
    [variant] = next(result.variants for result in report.legs if result.id == "paper/enqueues")
    assert (variant.name, variant.outcome, variant.failure) == ("test_enqueues", Outcome.FAILED, "AssertionError")
    assert "assert 2 == 1" in variant.reason


@pytest.mark.parametrize("options", [{"only": ["paper/claims"]}, {"keyword": "claims"}], ids=["id", "keyword"])
def test_a_filtered_run(options):
    """A run of some legs is not conformant, also where all that ran passed."""
    report = run(**options)
    assert outcomes(report)["paper/claims"] is Outcome.PASSED
    assert report.faults == ("filtered run: 1 of 3 legs",)


def test_a_keyword_that_matches_nothing():
    """Where no leg ran, nothing was proved."""
    assert run(keyword="nothing_like_that").faults == ("no leg was run",)


def test_a_leg_that_does_not_exist():
    """A leg id that nobody knows is an error, and not an empty run."""
    with pytest.raises(UnknownLegError):
        run(only=["paper/folds"])


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ConnectionRefusedError("no server"), "ConnectionRefusedError: no server"),
        (pytest.skip.Exception("no server"), "Skipped: no server"),
        (pytest.fail.Exception("no server"), "Failed: no server"),
    ],
    ids=["error", "skip", "fail"],
)
def test_a_service_that_is_missing(failure, told):
    """An engine whose server does not start is not conformant, and the reason stands first."""

    class Harness(MemHarness):
        @classmethod
        @contextmanager
        def service(cls):
            raise failure
            yield

    assert run(Harness).faults == (f"the harness did not start: {told}", "no leg was run")


def test_a_place_that_cannot_be_prepared():
    """A leg whose empty place fails has not run: an error, not a pass."""

    class Harness(MemHarness):
        async def start(self):
            raise OSError("disk full")

    assert run(Harness).faults == ("2 error: paper/claims, paper/enqueues",)


def test_a_place_that_cannot_be_removed():
    """A leg that passed and then left something behind is an error."""

    class Harness(MemHarness):
        async def stop(self):
            await super().stop()
            raise OSError("directory not empty")

    assert run(Harness).faults == ("2 error: paper/claims, paper/enqueues",)


def test_a_run_that_is_interrupted():
    """A run that somebody stops in the middle says so."""

    class Harness(MemHarness):
        def __init__(self, directory):  # noqa: ARG002
            raise KeyboardInterrupt

    assert run(Harness).faults == ("the run was interrupted", "no leg was run")


def test_a_skip_is_no_pass():
    """A leg that skips itself keeps the engine from being conformant."""

    class Harness(MemHarness):
        async def start(self):
            pytest.skip("not today")

    assert run(Harness).faults == ("2 skipped: paper/claims, paper/enqueues",)


def test_an_expected_failure_is_no_pass():
    """A leg that is expected to fail keeps the engine from being conformant."""

    class Harness(MemHarness):
        async def start(self):
            pytest.xfail("known")

    assert run(Harness).faults == ("2 xfailed: paper/claims, paper/enqueues",)


@pytest.mark.parametrize("mark", ["skip(reason='not today')", "xfail(reason='known')", "skipif(True, reason='no')"])
def test_a_marked_leg_is_no_pass(mark, paper):
    """A leg that is marked to be skipped or to fail keeps the engine from being conformant, also if it would pass."""
    file = paper / "test_paper.py"
    file.write_text(file.read_text().replace('@leg(rules="Q1"', f'@pytest.mark.{mark}\n@leg(rules="Q1"'))
    file.write_text("import pytest\n" + file.read_text())
    [fault] = run().faults
    assert fault in ("1 skipped: paper/claims", "1 xfailed: paper/claims")


def test_a_warning_is_a_failure(monkeypatch):
    """A leg during which the engine warns fails."""
    right = Queue.enqueue

    async def enqueue(self, payload):
        warnings.warn("this will break", DeprecationWarning, stacklevel=2)
        return await right(self, payload)

    monkeypatch.setattr(Queue, "enqueue", enqueue)
    assert run().faults == ("2 failed: paper/claims, paper/enqueues",)


def test_a_leg_that_hangs(monkeypatch):
    """A leg that waits for ever fails after its time, by a TimeoutError."""

    async def claim_one(self, worker_id):  # noqa: ARG001
        await asyncio.Event().wait()

    monkeypatch.setattr(Queue, "claim_one", claim_one)
    report = run(leg_timeout_s=0.1, only=["paper/claims"])
    [variant] = report.legs[0].variants
    assert (variant.outcome, variant.failure) == (Outcome.FAILED, "TimeoutError")


def test_an_engine_that_never_opens():
    """An engine that never opens ends its legs as errors, and not the run as a whole."""

    class Harness(MemHarness):
        async def start(self):
            await asyncio.Event().wait()

    assert run(Harness, leg_timeout_s=0.1).faults == ("2 error: paper/claims, paper/enqueues",)


def test_a_hook_that_is_missing_unsaid():
    """A leg that needs a hook which the harness lacks without saying so fails."""

    class Harness(MemHarness):
        multi_process = True
        unsupported: ClassVar = {need: why for need, why in MemHarness.unsupported.items() if need != "child"}

    report = run(Harness)
    assert report.faults == ("1 failed: paper/kills",)
    assert report.legs[2].variants[0].failure == "HarnessError"


def test_a_hook_that_nothing_excuses():
    """An engine that several processes can share, and whose harness has no address for them, is not conformant."""

    class Harness(MemHarness):
        multi_process = True

    report = run(Harness)
    assert report.exemptions[0] == Exemption(need="child", reason="the data lives in one process", excused=False)
    assert report.faults == (
        "the harness lacks 'child', from which nothing excuses this engine (the data lives in one process)",
        "1 not applicable without an excuse: paper/kills",
    )


def test_an_engine_of_a_later_contract():
    """An engine that implements a later contract than the suite tests is not called conformant."""

    class Harness(MemHarness):
        contract = "1.2"

    assert run(Harness).faults == ("the engine implements contract 1.2",)


def test_an_engine_of_an_earlier_contract(paper):
    """An engine of an older contract is said to be one; legs that arrived since are not asked, and no further fault."""

    class Harness(MemHarness):
        contract = "0.9"

    file = paper / "test_paper.py"
    file.write_text(file.read_text().replace('rules="Q1", since="1.0"', 'rules="Q1", since="0.9"'))
    report = run(Harness)
    assert outcomes(report) == {
        "paper/claims": Outcome.PASSED,
        "paper/enqueues": Outcome.NEWER,
        "paper/kills": Outcome.NEWER,
    }
    assert report.faults == ("the engine implements contract 0.9",)
    assert report.verdict.startswith("mem: NOT conformant with contract 1.1")
    assert [variant.reason for variant in report.legs[1].variants] == ["n/a: arrived in 1.0"]
    matrix = matrix_of([report])
    assert "| `paper/enqueues` | n/a: arrived in 1.0 |" in matrix
    assert "| `paper/claims` | yes |" in matrix
    assert "| T3 all at the commit, nothing after a rollback | n/a: arrived in 1.0 |" in matrix


def test_a_leg_that_is_not_newer():
    """A leg that is said to have arrived after the engine's contract, and did not, is a fault."""
    newer = passed("a/b").model_copy(update={"outcome": Outcome.NEWER})
    assert faults([newer], {"a/b"}) == ("1 said to be newer than the engine's contract, and not: a/b",)


def test_a_module_that_cannot_be_read(paper):
    """A file of legs that does not import is a fault of the run, and not a filter."""
    (paper / "test_broken.py").write_text("import nothing_like_that\n")
    assert run().faults == ("test_broken.py cannot be collected", "no leg was run")


def test_a_test_that_is_no_leg(paper):
    """A test among the legs that is not described as one stops the run."""
    (paper / "test_strange.py").write_text("def test_nothing():\n    pass\n")
    assert run().faults == ("test_strange.py::test_nothing is not a leg: decorate it with @leg(...)", "no leg was run")


def test_one_id_in_two_files(paper):
    """Legs of one id in two files stop the run: neither passes for the other."""
    (paper / "test_paper_again.py").write_text((paper / "test_paper.py").read_text())
    assert run().faults == (
        "paper/enqueues is the id of legs in several files: test_paper.py, test_paper_again.py",
        "no leg was run",
    )


def test_a_leg_that_is_not_locked(paper):
    """A leg that passed without standing in legs.lock makes the lock stale, and the run not conformant."""
    file = paper / "test_paper.py"
    file.write_text(file.read_text().replace("test_claims", "test_takes"))
    assert run().faults == ("1 legs are not in legs.lock: paper/takes", "filtered run: 3 of 4 legs")


def test_a_variant_that_was_filtered_out(paper):
    """A leg of which one variant was deselected has not run, though the others passed."""
    file = paper / "test_paper.py"
    file.write_text(
        "import pytest\n"
        + file.read_text()
        .replace('@leg(rules="Q1", since', "@pytest.mark.parametrize('n', ['one', 'two'])\n@leg(rules=\"Q1\", since")
        .replace("test_claims(store)", "test_claims(store, n)")
    )
    report = run(keyword="not two")
    assert report.faults == ("filtered run: 2 of 3 legs",)
    assert outcomes(report)["paper/claims"] is Outcome.NOT_RUN


def test_a_leg_with_a_failing_variant(paper):
    """A leg is as bad as the worst of its variants, each of which is reported."""
    file = paper / "test_paper.py"
    file.write_text(
        "import pytest\n"
        + file.read_text()
        .replace('@leg(rules="Q1", since', "@pytest.mark.parametrize('n', [1, 2])\n@leg(rules=\"Q1\", since")
        .replace("test_claims(store)", "test_claims(store, n)")
        .replace("is not None", "is not None and n == 1")
    )
    report = run()
    assert report.faults == ("1 failed: paper/claims",)
    variants = [(variant.name, variant.outcome) for variant in report.legs[0].variants]
    assert variants == [("test_claims[1]", Outcome.PASSED), ("test_claims[2]", Outcome.FAILED)]


STAMP = EngineStamp(
    name="mem",
    distribution="alkstore-mem",
    version="1.0.0",
    contract="1.0",
    backend="dicts",
    durable=False,
    multi_process=False,
    server=False,
    natives=("connection",),
)


def faults(legs: list[LegResult], locked: set[str]) -> tuple[str, ...]:
    return faults_of(contract="1.0", engine=STAMP, aborted=None, exemptions=(), legs=legs, locked=locked)


def passed(leg_id: str) -> LegResult:
    return LegResult(id=leg_id, rules=("Q1",), since="1.0", outcome=Outcome.PASSED)


def test_no_legs_at_all():
    """A suite without legs proves nothing."""
    assert faults([], set()) == ("there are no legs",)


def test_a_leg_that_is_not_reported():
    """A leg of the lock that the report leaves out is a fault."""
    assert faults([passed("a/b")], {"a/b", "a/c"}) == ("1 legs are not reported: a/c",)


def test_a_leg_that_is_reported_twice():
    """A leg that is reported twice is a fault, whatever it says."""
    assert faults([passed("a/b"), passed("a/b")], {"a/b"}) == ("1 legs are reported twice: a/b",)
