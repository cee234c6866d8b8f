"""What a plugin may hand to genbench."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys

import pytest

import genbench
import genbench.plugin
from genbench.errors import ContractError
from genbench.plugin.contract import Measure, MeasureInfo


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
        ({"cost": "huge"}, "use 'low', 'medium' or 'high'"),
    ],
)
def test_wrong_metadata_is_refused_with_a_reason(options, sentence) -> None:
    def some(subject):
        """Summary."""

    with pytest.raises(ContractError, match=sentence) as decorated:
        genbench.measure(**options)(some)
    with pytest.raises(ContractError) as built:
        Measure("some", some, "Summary.", **options)
    assert str(built.value) == str(decorated.value)


@pytest.mark.parametrize(
    ("name", "function", "summary", "sentence"),
    [
        ("My-Measure", _no_docstring, "Summary.", "use lower-case letters, digits and underscores"),
        (5, _no_docstring, "Summary.", "measure name 5 is not valid"),
        ("five", 5, "Summary.", "which is not a function"),
        ("two", _two_arguments, "Summary.", "one argument, the subject"),
        ("none", _no_argument, "Summary.", "one argument, the subject"),
        ("waits", _coroutine, "Summary.", "plain function of one argument"),
        ("silent", _no_docstring, " ", "has no docstring"),
    ],
)
def test_a_measure_built_by_hand_is_held_to_the_same(name, function, summary, sentence) -> None:
    with pytest.raises(ContractError, match=sentence):
        Measure(name, function, summary)


def test_a_measure_built_by_hand_may_be_written_shortly() -> None:
    by_hand = Measure("mine", _no_docstring, "Summary.", needs="gradients", version=2)
    assert by_hand.needs == frozenset({"gradients"})
    assert by_hand.version == "2"


def test_what_is_known_of_a_measure_without_its_function() -> None:
    @genbench.measure(
        name="mine", category="norm", needs={"trace"}, higher_means="better", randomness="seeded",
        logarithm=True, cost="high", paper="001 (27)", version="3",
    )  # fmt: skip
    def mine(subject):
        """Summary.

        More.
        """

    assert mine.info == MeasureInfo(
        name="mine", summary="Summary.", description="Summary.\n\nMore.", category="norm",
        needs=frozenset({"trace"}), higher_means="better", randomness="seeded", logarithm=True,
        cost="high", paper="001 (27)", version="3",
    )  # fmt: skip
    fields = {field.name for field in dataclasses.fields(Measure)} - {"function"}
    assert {field.name for field in dataclasses.fields(MeasureInfo)} == fields | {"description"}


def test_public_names_are_few_and_there() -> None:
    assert set(genbench.__all__) == {
        "Estimate", "Measure", "Monitor", "NotApplicable", "Subject", "__version__", "compare", "hookimpl",
        "load_suite", "measure", "read", "run", "score",
    }  # fmt: skip
    for name in genbench.__all__:
        assert getattr(genbench, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = genbench.nothing_here


def test_what_plugins_need_is_public_and_documented() -> None:
    assert genbench.plugin.__doc__ is not None
    assert sorted(genbench.plugin.__all__) == dir(genbench.plugin)
    for name in genbench.plugin.__all__:
        assert inspect.getdoc(getattr(genbench.plugin, name)) or name == "hookimpl"
        assert f"`{name}`" in genbench.plugin.__doc__
    with pytest.raises(AttributeError, match=r"'genbench.plugin' has no attribute 'nothing_here'"):
        _ = genbench.plugin.nothing_here


def test_what_plugins_need_costs_no_torch_but_where_it_holds_tensors() -> None:
    """A plugin that imports its names at the top must not slow every command down."""
    heavy = {"FileImages", "ImageData", "ImageSplit", "TensorImages", "LoadedBackbone"}
    light = sorted(set(genbench.plugin.__all__) - heavy)
    code = (
        f"import sys, json; from genbench.plugin import {', '.join(light)}; "
        "print(json.dumps(sorted({'torch', 'numpy', 'timm', 'torchvision'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
