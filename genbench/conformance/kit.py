"""Runs the checks on a measure, each in a guarded process, and collects what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from msgspec import Struct

from genbench.engine.ask import ProcessEnded, answers_of
from genbench.engine.guard import Limits
from genbench.plugin.registry import Source

__all__ = ["INVARIANCE", "CheckReport", "CheckRequest", "CheckResult", "run_checks"]

INVARIANCE = "same function"
"""How the names of the checks begin that read networks with one function: the invariance card."""


class CheckRequest(Struct, frozen=True):
    """What a process is to check."""

    source: Source
    measure: str
    limits: Limits
    only: str = ""
    """How the names of the checks begin; empty for all."""
    private: str = ""
    """The folder that it may write to, once it is sealed; without one it is not."""


@dataclass(frozen=True)
class CheckResult:
    """What one check found."""

    name: str
    kind: str
    """contract: a promise every measure makes; science: a finding that cannot fail."""
    outcome: str
    """passed, failed, finding or not_applicable."""
    detail: str
    output: str = ""
    """Of a check that failed: what the measure printed, its traceback included."""


@dataclass(frozen=True)
class CheckReport:
    """What all checks found about one measure."""

    measure: str
    results: list[CheckResult]

    @property
    def failed(self) -> list[CheckResult]:
        """Promises that were not kept."""
        return [result for result in self.results if result.outcome == "failed"]

    @property
    def ran(self) -> int:
        """Checks that gave an answer about the measure."""
        return sum(result.outcome != "not_applicable" for result in self.results)

    def summary(self) -> str:
        """One line."""
        passed = sum(result.outcome == "passed" for result in self.results)
        findings = sum(result.outcome == "finding" for result in self.results)
        return (
            f"{self.measure}: {self.ran} of {len(self.results)} checks ran: "
            f"{passed} passed, {len(self.failed)} failed, {findings} findings"
        )

    def assert_passed(self) -> None:
        """Raise AssertionError that lists the promises not kept, or says that there was nothing to check."""
        refusal = self.results[0] if self.results else None
        assert refusal is not None, "no check ran"
        assert refusal.outcome != "not_applicable", f"{self.measure} never gave a number: {refusal.detail}"
        assert not self.failed, "\n".join(f"{r.name}: {r.detail}" for r in self.failed)


def run_checks(
    source: Source,
    measure: str,
    limits: Limits,
    told: Callable[[CheckResult], None] = lambda result: None,
    *,
    only: str = "",
) -> CheckReport:
    """Run every check on `measure` of `source` in a fresh process; `told` hears of each result at once.

    That process is sealed before it imports the plugin, as those of readings are.

    Parameters
    ----------
    only : how the names of the checks begin that are wanted, as INVARIANCE.
    """
    results = []
    try:
        with TemporaryDirectory(prefix="genbench-check-") as private:
            request = CheckRequest(source, measure, limits, only, private)
            for result in answers_of("genbench.conformance.process", CheckResult, request):
                results.append(result)
                told(result)
    except ProcessEnded as end:
        raise RuntimeError(f"the checks themselves failed with {end}") from end
    return CheckReport(measure, results)
