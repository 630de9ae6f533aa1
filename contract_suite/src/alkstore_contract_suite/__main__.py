"""``python -m alkstore_contract_suite``: the same as ``alkstore-contract``."""

from alkstore_contract_suite.cli import main

main()
