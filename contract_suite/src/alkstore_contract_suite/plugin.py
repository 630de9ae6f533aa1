"""``pytest --pyargs alkstore_contract_suite.legs --engine NAME``: without ``--engine`` this plugin does nothing.

It is loaded into every pytest that has the suite installed, so it imports nothing of it before it is asked to.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--engine``."""
    group = parser.getgroup("alkstore contract suite")
    group.addoption("--engine", metavar="NAME", help="run the legs of the contract suite against this engine")


def pytest_configure(config: pytest.Config) -> None:
    """Start a run if an engine is named."""
    config.addinivalue_line("markers", "leg(description): a leg of alkstore's contract suite")
    name: str | None = config.getoption("engine")
    if name is not None:
        from alkstore_contract_suite.engines import UnknownEngineError, find_engine
        from alkstore_contract_suite.ledger import ContractRun

        try:
            engine = find_engine(name)
        except UnknownEngineError as error:
            raise pytest.UsageError(str(error)) from error
        config.pluginmanager.register(ContractRun(engine), "alkstore-contract-run")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say the verdict at the end."""
    run = config.pluginmanager.get_plugin("alkstore-contract-run")
    if run is not None:
        report = run.report()
        terminalreporter.section("alkstore contract", sep="-")
        terminalreporter.write_line(report.verdict, green=report.conformant, red=not report.conformant)
