"""The report of one run: what was run against what, and how it ended."""

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict


class Outcome(StrEnum):
    """How a leg ended, the worst first. Good are `PASSED`, an excused `NOT_APPLICABLE`, and, where it must be, `NEWER`.

    `NEWER` is a leg that arrived after the contract which the engine implements: it was not asked for.
    """

    ERROR = "error"
    FAILED = "failed"
    XFAILED = "xfailed"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"
    NEWER = "newer"
    NOT_APPLICABLE = "not_applicable"
    PASSED = "passed"

    @classmethod
    def worst(cls, outcomes: Iterable["Outcome"]) -> "Outcome":
        """The worst of `outcomes`, at least one."""
        return min(outcomes, key=lambda outcome: list(cls).index(outcome))


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Variant(_Record):
    """One run of a leg; a leg that is parametrised has several."""

    name: str
    outcome: Outcome
    duration_s: float
    failure: str | None = None
    reason: str | None = None


class LegResult(_Record):
    """How one leg ended.

    Attributes:
        outcome: the worst of its variants; `Outcome.NOT_RUN` without any.
        missing: the hooks that it needs and the harness lacks.
    """

    id: str
    rules: tuple[str, ...]
    since: str
    outcome: Outcome
    missing: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()


class EngineStamp(_Record):
    """The engine that was tested; for its traits, and the kinds of connection it enlists, see `harness.Harness`."""

    name: str
    distribution: str
    version: str
    contract: str
    backend: str
    durable: bool
    multi_process: bool
    server: bool
    natives: tuple[str, ...]


class Exemption(_Record):
    """A hook that the engine's harness lacks; excused where one of its traits makes the hook impossible."""

    need: str
    reason: str
    excused: bool


class Report(_Record):
    """One run.

    Attributes:
        aborted: why the run as a whole could not be done; None if it was.
        legs: every leg of legs.lock, and after them what ran without being locked.
        faults: why this is not conformant, by `verdict.faults_of`; conformant if empty.
        digest: the sha256 of the canonical JSON of everything else.
    """

    suite: str
    contract: str
    engine: EngineStamp
    python: str
    platform: str
    started_at: str
    aborted: str | None
    exemptions: tuple[Exemption, ...]
    legs: tuple[LegResult, ...]
    faults: tuple[str, ...]
    digest: str = ""

    @property
    def conformant(self) -> bool:
        """Whether the engine does what the contract says, as far as this suite can tell."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """The whole report in one line."""
        stamp = f"suite {self.suite}, {len(self.legs)} legs, digest {self.digest.removeprefix('sha256:')[:12]}"
        if self.faults:
            return f"{self.engine.name}: NOT conformant with contract {self.contract} ({stamp}): " + "; ".join(
                self.faults
            )
        apart = sum(result.outcome is Outcome.NOT_APPLICABLE for result in self.legs)
        note = f", {apart} of them not applicable" if apart else ""
        return f"{self.engine.name}: conformant with contract {self.contract} ({stamp}{note})"

    def computed_digest(self) -> str:
        """The digest that this report must carry."""
        content = self.model_dump(mode="json", exclude={"digest"})
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()

    def sealed(self) -> Self:
        """The report with its digest."""
        return self.model_copy(update={"digest": self.computed_digest()})
