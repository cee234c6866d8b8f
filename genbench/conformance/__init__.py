"""The conformance kit: does a measure keep the contract, and what does it do to networks that are the same?

`genbench check` and the pytest fixture of `genbench.testing` run it.
"""

from genbench.conformance.kit import CheckReport, CheckResult, run_checks

__all__ = ["CheckReport", "CheckResult", "run_checks"]
