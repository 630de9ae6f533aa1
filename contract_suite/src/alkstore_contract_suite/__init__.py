"""What every alkstore engine must do, as tests that any engine can be held against.

``alkstore-contract run NAME`` runs all legs on one engine and says whether it is conformant. Engine authors write a
`harness.Harness`; nobody else imports this package.
"""

__version__ = "1.1.0"
CONTRACT_VERSION = "1.1"
"""The contract that this suite tests: its own version's major and minor (X1)."""

__all__ = ["CONTRACT_VERSION"]
