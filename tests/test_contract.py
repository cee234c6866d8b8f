"""What a plugin may hand to genbench."""

from __future__ import annotations

import dataclasses

import pytest

import genbench
from genbench.errors import ContractError
from genbench.plugin.contract import Measure


def test_a_measure_in_five_lines() -> None:
    @genbench.measure(category="norm", needs={"weights"})
    def mymeasure(subject):
        """One line that `genbench measures` shows."""
        return 2.0

    assert isinstance(mymeasure, Measure)
    assert (mymeasure.name, mymeasure.category, mymeasure.higher_means) == ("mymeasure", "norm", "worse")
    assert mymeasure.summary == "One line that `genbench measures` shows."
    assert mymeasure(None) == 2.0


def test_the_decorator_works_without_parentheses() -> None:
    @genbench.measure
    def plain(subject):
        """Nothing said but this."""

    assert plain.needs == {"weights"}


def test_metadata_is_frozen() -> None:
    @genbench.measure
    def fixed(subject):
        """Summary."""

    with pytest.raises(dataclasses.FrozenInstanceError):
        fixed.higher_means = "better"


def _no_docstring(subject):
    return 1.0


def _two_arguments(subject, other):
    """Summary."""


def _no_argument():
    """Summary."""


async def _coroutine(subject):
    """Summary."""


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        (_no_docstring, {}, "has no docstring"),
        (_two_arguments, {}, "one argument, the subject"),
        (_no_argument, {}, "one argument, the subject"),
        (_coroutine, {}, "plain function of one argument"),
        (lambda subject: 1.0, {}, "not valid"),
        (_no_docstring, {"name": "My-Measure"}, "lower-case letters"),
        (_two_arguments, {"needs": {"heldout_data"}}, "one argument"),
    ],
)
def test_a_wrong_measure_is_refused_with_a_reason(function, options, sentence) -> None:
    with pytest.raises(ContractError, match=sentence):
        genbench.measure(**options)(function)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"needs": {"heldout_data"}}, "needs heldout_data, but a measure can need only"),
        ({"higher_means": "good"}, "use 'worse' or 'better'"),
        ({"randomness": "yes"}, "use 'none' or 'seeded'"),
    ],
)
def test_wrong_metadata_is_refused_with_a_reason(options, sentence) -> None:
    def some(subject):
        """Summary."""

    with pytest.raises(ContractError, match=sentence):
        genbench.measure(**options)(some)


def test_public_names_are_few_and_there() -> None:
    assert set(genbench.__all__) == {
        "Estimate", "Measure", "NotApplicable", "Subject", "__version__", "hookimpl", "measure",
    }  # fmt: skip
    for name in genbench.__all__:
        assert getattr(genbench, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = genbench.nothing_here
