"""The ledger of one run, as a pytest plugin: it starts the engine, guards the legs, and writes the report."""

import asyncio
import functools
import gc
import platform
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from alkstore_contract_suite import CONTRACT_VERSION, __version__, catalogue
from alkstore_contract_suite.catalogue import DuplicateLegError, described_leg, leg_modules, locked_legs
from alkstore_contract_suite.engines import EngineUnderTest
from alkstore_contract_suite.leg import Leg, leg_id
from alkstore_contract_suite.needs import NEEDS, TRAITS
from alkstore_contract_suite.report import EngineStamp, Exemption, LegResult, Outcome, Report, Variant
from alkstore_contract_suite.verdict import faults_of, is_newer

LEG_TIMEOUT_S = 60.0
"""How long one leg may take before it counts as hung."""

_LEG = "alkstore_leg"
_MISSING = "alkstore_missing"
_FAILURE = "alkstore_failure"


class ContractRun:
    """The run as a pytest plugin; `RUN` finds it in a pytest config.

    Attributes:
        engine: what is tested.
        leg_timeout_s: after how many seconds a leg counts as hung.
        child_setup: ``path.py:function``, called first in every child process; for deliberately wrong engines.
    """

    def __init__(
        self,
        engine: EngineUnderTest,
        *,
        only: Sequence[str] = (),
        leg_timeout_s: float = LEG_TIMEOUT_S,
        child_setup: str | None = None,
    ) -> None:
        self.engine = engine
        self.leg_timeout_s = leg_timeout_s
        self.child_setup = child_setup
        self._only = frozenset(only)
        self._service = ExitStack()
        self._started_at = datetime.now(UTC)
        self._backend = "not reached"
        self._aborted: str | None = None
        self._legs: dict[str, Leg] = {}
        self._files: dict[str, str] = {}
        self._variants: dict[str, dict[str, Variant]] = {}

    # pytest's hooks

    def pytest_configure(self, config: pytest.Config) -> None:
        """Let the fixtures of legs find this run, and failed assertions tell what they compared, whoever makes them."""
        config.addinivalue_line("markers", "leg(description): a leg of alkstore's contract suite")
        config.stash[RUN] = self
        pytest.register_assert_rewrite(*(name for name in leg_modules() if name not in sys.modules))
        if not config.pluginmanager.has_plugin("terminal"):
            config.option.tbstyle = "line"  # nobody reads tracebacks, and making them is most of what a failure costs

    def pytest_sessionstart(self) -> None:
        """Start what the engine runs on; without it there is no run, and no pass."""
        try:
            self._service.enter_context(self.engine.harness.service())
            self._backend = asyncio.run(self.engine.harness.backend())
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self._aborted = f"the harness did not start: {_told(error)}"
            self._service.close()
            pytest.exit(self._aborted, returncode=pytest.ExitCode.TESTS_FAILED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
        """Leave out what was not asked for before anything is made of it: wrong engines are run one leg at a time."""
        unwanted = self._only and name.startswith("test_") and leg_id(collector.path.stem, name) not in self._only
        return [] if unwanted else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note every leg, guard it, and set those apart that this engine cannot run."""
        for item in items:
            if not isinstance(item, pytest.Function) or catalogue.LEGS not in item.path.parents:
                continue
            leg = described_leg(item.function)
            if leg is None:
                self._aborted = f"{item.nodeid} is not a leg: decorate it with @leg(...)"
                raise pytest.UsageError(self._aborted)
            file = item.path.name
            if self._files.setdefault(leg.id, file) != file:
                duplicate = DuplicateLegError(leg.id, (self._files[leg.id], file))
                self._aborted = str(duplicate)
                raise pytest.UsageError(self._aborted) from duplicate
            self._legs[leg.id] = leg
            item.user_properties.append((_LEG, leg.id))
            item.add_marker(pytest.mark.filterwarnings("error"))
            item.obj = _guarded(item.obj, self.leg_timeout_s)
            missing = [need for need in leg.needs if need in self.engine.harness.unsupported]
            if is_newer(leg.since, self.engine.harness.contract):
                item.user_properties.append((_MISSING, Outcome.NEWER))
                item.add_marker(pytest.mark.skip(f"n/a: arrived in {leg.since}"))
            elif missing:
                item.user_properties.append((_MISSING, Outcome.NOT_APPLICABLE))
                reasons = "; ".join(f"{need}: {self.engine.harness.unsupported[need]}" for need in missing)
                item.add_marker(pytest.mark.skip(f"not applicable: {reasons}"))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """A variant that was filtered out has not run, and its leg neither, whatever its other variants say."""
        for item in items:
            leg_id = dict(item.user_properties).get(_LEG)
            if isinstance(leg_id, str):
                name = item.nodeid.partition("::")[2]
                unrun = Variant(name=name, outcome=Outcome.NOT_RUN, duration_s=0.0)
                self._variants.setdefault(leg_id, {})[name] = unrun

    def pytest_collection_finish(self) -> None:
        """Let the collection of garbage after each leg look only at what came since."""
        if not gc.get_freeze_count():
            gc.freeze()
            self._service.callback(gc.unfreeze)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Legs that cannot be read are not merely legs that did not run."""
        if report.failed:
            self._aborted = f"{report.nodeid} cannot be collected"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what ended a leg: its name tells a failed assertion from a broken leg."""
        report = yield
        if call.excinfo is not None and report.failed:
            report.user_properties.append((_FAILURE, call.excinfo.typename))
            item.stash[FAILED] = True
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Enter one phase of one leg in the ledger."""
        properties = dict(report.user_properties)
        leg_id = properties.get(_LEG)
        if not isinstance(leg_id, str) or (report.when != "call" and report.passed):
            return
        if hasattr(report, "wasxfail"):
            outcome = Outcome.XFAILED
        elif report.skipped:
            outcome = Outcome(str(properties.get(_MISSING, Outcome.SKIPPED)))
        elif report.passed:
            outcome = Outcome.PASSED
        else:
            outcome = Outcome.FAILED if report.when == "call" else Outcome.ERROR
        name = report.nodeid.partition("::")[2]
        failure = properties.get(_FAILURE)
        variant = Variant(
            name=name,
            outcome=outcome,
            duration_s=round(report.duration, 4),
            failure=failure if isinstance(failure, str) else None,
            reason=_reason(report),
        )
        variants = self._variants.setdefault(leg_id, {})
        if name not in variants or variants[name].outcome is Outcome.PASSED:
            variants[name] = variant  # the first phase that goes wrong stands, and not what it leaves to the next

    def pytest_keyboard_interrupt(self) -> None:
        """What was not run because somebody stopped it was not merely filtered."""
        self._aborted = self._aborted or "the run was interrupted"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Stop what the engine runs on; whatever is not conformant ends as a failure."""
        self._service.close()
        if session.exitstatus == pytest.ExitCode.OK and not self.report().conformant:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    # the report

    def report(self) -> Report:
        """What is known now."""
        harness = self.engine.harness
        stamp = EngineStamp(
            name=self.engine.name,
            distribution=self.engine.distribution,
            version=self.engine.version,
            contract=harness.contract,
            backend=self._backend,
            durable=harness.durable,
            multi_process=harness.multi_process,
            server=harness.server,
            natives=tuple(harness.natives),
        )
        traits = {trait: bool(getattr(harness, trait)) for trait in TRAITS}
        exemptions = tuple(
            Exemption(need=need, reason=reason, excused=not traits[NEEDS[need].excused_without])
            for need, reason in sorted(harness.unsupported.items())
        )
        locked = locked_legs()
        legs = [self._result(id, leg.rules, leg.since) for id, leg in locked.items()]
        legs += [self._result(id, leg.rules, leg.since) for id, leg in self._legs.items() if id not in locked]
        faults = faults_of(
            contract=CONTRACT_VERSION,
            engine=stamp,
            aborted=self._aborted,
            exemptions=exemptions,
            legs=legs,
            locked=locked,
        )
        return Report(
            suite=__version__,
            contract=CONTRACT_VERSION,
            engine=stamp,
            python=platform.python_version(),
            platform=platform.platform(),
            started_at=self._started_at.isoformat(timespec="seconds"),
            aborted=self._aborted,
            exemptions=exemptions,
            legs=tuple(legs),
            faults=faults,
        ).sealed()

    def _result(self, id: str, rules: tuple[str, ...], since: str) -> LegResult:
        variants = tuple(self._variants.get(id, {}).values())
        outcome = Outcome.worst([variant.outcome for variant in variants]) if variants else Outcome.NOT_RUN
        needs = self._legs[id].needs if id in self._legs and outcome is Outcome.NOT_APPLICABLE else ()
        missing = tuple(need for need in needs if need in self.engine.harness.unsupported)
        return LegResult(id=id, rules=rules, since=since, outcome=outcome, missing=missing, variants=variants)


RUN = pytest.StashKey[ContractRun]()
FAILED = pytest.StashKey[bool]()
"""Set on a leg that failed, for its fixtures."""


def _guarded(
    function: Callable[..., Coroutine[Any, Any, None]], seconds: float
) -> Callable[..., Coroutine[Any, Any, None]]:
    """`function`, which fails as hung after `seconds`."""

    @functools.wraps(function)
    async def guarded(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(seconds):
            await function(*args, **kwargs)

    return guarded


def _reason(report: pytest.TestReport) -> str | None:
    if report.passed:
        return None
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
