"""Whether a run proves conformance: one pure function, asked by the run and again by ``alkstore-contract verify``."""

from collections import Counter
from collections.abc import Collection, Sequence

from alkstore_contract_suite import CONTRACT_VERSION, __version__
from alkstore_contract_suite.catalogue import locked_legs
from alkstore_contract_suite.needs import NEEDS
from alkstore_contract_suite.report import EngineStamp, Exemption, LegResult, Outcome, Report

_BAD = (Outcome.FAILED, Outcome.ERROR, Outcome.XFAILED, Outcome.SKIPPED)


def faults_of(
    *,
    contract: str,
    engine: EngineStamp,
    aborted: str | None,
    exemptions: Sequence[Exemption],
    legs: Sequence[LegResult],
    locked: Collection[str],
) -> tuple[str, ...]:
    """Why this is not conformant; empty if it is.

    Conformant is an engine of the suite's own contract version of which every locked leg ran and passed. A leg that is
    not applicable is as good only where every hook it misses is excused. An engine of an older contract is said to be
    one, and that it was not asked for the legs that arrived since is no further fault.
    """
    faults: list[str] = [] if aborted is None else [aborted]
    if engine.contract != contract:
        faults.append(f"the engine implements contract {engine.contract}")
    faults += [
        f"the harness lacks {exemption.need!r}, from which nothing excuses this engine ({exemption.reason})"
        for exemption in exemptions
        if not exemption.excused
    ]
    faults += _incomplete(legs, locked)
    by_outcome: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
    for result in legs:
        by_outcome[result.outcome].append(result.id)
    if not_run := by_outcome[Outcome.NOT_RUN]:
        ran = len(legs) - len(not_run)
        faults.append(f"filtered run: {ran} of {len(legs)} legs" if ran else "no leg was run")
    faults += [f"{len(by_outcome[bad])} {bad}: {_some(by_outcome[bad])}" for bad in _BAD if by_outcome[bad]]
    if asked := [
        result.id for result in legs if result.outcome is Outcome.NEWER and not is_newer(result.since, engine.contract)
    ]:
        faults.append(f"{len(asked)} said to be newer than the engine's contract, and not: {_some(asked)}")
    excused = {exemption.need for exemption in exemptions if exemption.excused}
    if unexcused := [
        result.id
        for result in legs
        if result.outcome is Outcome.NOT_APPLICABLE and not (result.missing and excused.issuperset(result.missing))
    ]:
        faults.append(f"{len(unexcused)} not applicable without an excuse: {_some(unexcused)}")
    return tuple(faults)


def is_newer(since: str, contract: str) -> bool:
    """Whether a leg that arrived in contract `since` is too new for an engine of `contract`."""
    return tuple(map(int, since.split("."))) > tuple(map(int, contract.split(".")))


def _incomplete(legs: Sequence[LegResult], locked: Collection[str]) -> list[str]:
    times = Counter(result.id for result in legs)
    faults = [] if locked else ["there are no legs"]
    if missing := sorted(set(locked) - set(times)):
        faults.append(f"{len(missing)} legs are not reported: {_some(missing)}")
    if strange := sorted(set(times) - set(locked)):
        faults.append(f"{len(strange)} legs are not in legs.lock: {_some(strange)}")
    if repeated := sorted(id for id, count in times.items() if count > 1):
        faults.append(f"{len(repeated)} legs are reported twice: {_some(repeated)}")
    return faults


def _some(ids: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(ids) - shown} more" if len(ids) > shown else ""
    return ", ".join(ids[:shown]) + more


def check_report(report: Report) -> list[str]:
    """What is wrong with a report that somebody hands over; empty if it proves conformance.

    The digest tells an altered report from a whole one; it is no signature.
    """
    problems: list[str] = []
    if report.computed_digest() != report.digest:
        problems.append(
            f"the digest is {report.digest!r} and the content's {report.computed_digest()!r}: it was altered"
        )
    if (report.suite, report.contract) != (__version__, CONTRACT_VERSION):
        problems.append(
            f"it was made by suite {report.suite} for contract {report.contract}, and this is suite {__version__} for "
            f"contract {CONTRACT_VERSION}: verify it with that one"
        )
    locked = locked_legs()
    misnamed = [
        leg.id
        for leg in report.legs
        if leg.id in locked and (leg.since, leg.rules) != (locked[leg.id].since, locked[leg.id].rules)
    ]
    if misnamed:
        problems.append(f"legs are not as in legs.lock: {', '.join(misnamed)}")
    for leg in report.legs:
        outcomes = [variant.outcome for variant in leg.variants]
        if leg.outcome is not (Outcome.worst(outcomes) if outcomes else Outcome.NOT_RUN):
            problems.append(
                f"{leg.id} is said to be {leg.outcome}, and its variants are {', '.join(outcomes) or 'none'}"
            )
    traits = report.engine.model_dump()
    problems += [
        f"{exemption.need!r} is said to be excused, and is not"
        for exemption in report.exemptions
        if exemption.need not in NEEDS or exemption.excused is bool(traits[NEEDS[exemption.need].excused_without])
    ]
    faults = faults_of(
        contract=report.contract,
        engine=report.engine,
        aborted=report.aborted,
        exemptions=report.exemptions,
        legs=report.legs,
        locked=locked,
    )
    if faults != report.faults:
        problems.append(f"it says {list(report.faults)}, and its legs say {list(faults)}")
    return problems + list(faults)
