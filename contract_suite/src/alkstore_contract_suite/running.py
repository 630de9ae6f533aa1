"""Running legs in this process, the same on every machine: apart from any pytest configuration and plugins around."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from alkstore_contract_suite import catalogue
from alkstore_contract_suite.catalogue import leg_path
from alkstore_contract_suite.engines import EngineUnderTest
from alkstore_contract_suite.ledger import LEG_TIMEOUT_S, ContractRun
from alkstore_contract_suite.report import Report


def run_legs(
    engine: EngineUnderTest,
    *,
    only: Sequence[str] = (),
    keyword: str = "",
    quiet: bool = False,
    leg_timeout_s: float = LEG_TIMEOUT_S,
    child_setup: str | None = None,
) -> Report:
    """Run legs against `engine` in this process, apart from any pytest configuration around it.

    Args:
        engine: see `engines.find_engine`.
        only: leg ids; without it all.
        keyword: pytest's ``-k``.
        quiet: print nothing.
        leg_timeout_s: after how many seconds a leg counts as hung.
        child_setup: see `ContractRun`.

    Returns:
        The report; a filtered run is in it as such.

    Raises:
        UnknownLegError: `only` names one that does not exist.
        DuplicateLegError: `only` names one that several files have.
    """
    run = ContractRun(engine, only=only, leg_timeout_s=leg_timeout_s, child_setup=child_setup)
    arguments = [leg_path(id) for id in only] or [str(catalogue.LEGS)]
    arguments += [
        "-c",
        str(Path(__file__).with_name("run.ini")),
        "--rootdir",
        str(catalogue.LEGS),
        "-p",
        "no:cacheprovider",
    ]
    arguments += ["-k", keyword] if keyword else []
    arguments += ["-s", *_WITHOUT_OUTPUT] if quiet else ["-q", "-rfE"]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # What a leg that failed has left behind is collected when pytest ends, too late to be an error of anything.
        warnings.simplefilter("default")
        # Whatever other plugins are installed here, a run is the same everywhere.
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        pytest.main([*arguments, "-p", "pytest_asyncio.plugin"], plugins=[run])
    return run.report()


_WITHOUT_OUTPUT = [part for plugin in ("terminal", "faulthandler", "logging") for part in ("-p", f"no:{plugin}")]
