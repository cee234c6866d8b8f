"""A kind of suite that a plugin brings: linear classifiers, judged by their held-out errors."""

from __future__ import annotations

from pathlib import Path

from genbench.plugin import SuiteFile, SuiteKind, hookimpl


def linear() -> object:
    from genbench_linear.kind import LinearKind

    return LinearKind()


@hookimpl
def genbench_suite_kinds() -> list[SuiteKind]:
    return [SuiteKind("linear", "linear classifiers of handwritten digits", linear)]


@hookimpl
def genbench_suites() -> list[SuiteFile]:
    return [SuiteFile("linear-digits", Path(__file__).with_name("linear-digits.toml"))]
