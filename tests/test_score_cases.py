"""Scores of tables with something missing or special: readings, signs, pairs, combinations of measures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_table import small_table
from test_score_properties import independence, kendall, loop_cms, pgdl, sign_error

from genbench.scoring import (
    NetworkTable,
    add_combination,
    cms,
)
from genbench.scoring.population import pair_scores


@pytest.fixture(scope="module")
def small() -> NetworkTable:
    return small_table()


def test_a_missing_reading_drops_its_row_for_its_measure_alone(small: NetworkTable) -> None:
    both = replace(small, measures=("a", "b"), readings=np.column_stack([small.readings, small.readings]))
    both.readings[3, 1] = np.nan
    keep = np.arange(len(small)) != 3
    for score in (sign_error, kendall, independence, pgdl):
        found = score(both).set_index(["measure", "part", "statistic"])
        alone = score(small).set_index(["measure", "part", "statistic"])
        without = score(small.take(keep)).set_index(["measure", "part", "statistic"])
        for _, part, statistic in alone.index:
            a, b = (found.loc[(name, part, statistic)] for name in ("a", "b"))
            np.testing.assert_equal(a["value"], alone.loc[("a", part, statistic), "value"])
            np.testing.assert_equal(b["value"], without.loc[("a", part, statistic), "value"])
            assert b["dropped"] == 1


def test_a_reading_that_is_not_positive_has_no_cms_and_says_so(small: NetworkTable) -> None:
    negative = replace(small, measures=("a", "log_a"), logarithms=frozenset({"log_a"}),
                       readings=np.column_stack([small.readings - 2, np.log(small.readings)]))  # fmt: skip
    found = cms(negative, deltas=[0.05], resamples=0).set_index(["measure", "part", "statistic"])
    assert np.isnan(found.loc[("a", "delta=0.05", "CMS"), "value"])
    assert found.loc[("a", "delta=0.05", "CMS"), "note"] == "undefined: a reading is not positive"
    expected = loop_cms(small, small.readings[:, 0], 0.05, np.ones(len(small)))
    assert found.loc[("log_a", "delta=0.05", "CMS"), "value"] == pytest.approx(expected, abs=1e-12)


def test_errors_that_are_exactly_delta_apart_are_close() -> None:
    """0.30 − 0.29 is more than 0.01 in floating point; in images of 100 it is one."""
    records = NetworkTable(
        hyperparameters=("h",), codes=np.array([[0], [1], [0], [1]]), levels=((0, 1),),
        seeds=np.array([0, 0, 1, 1]), targets={"gap": np.array([0.1, 0.2, 0.3, 0.4])}, measures=("a",),
        readings=np.array([[1.0], [2.0], [8.0], [64.0]]), test_error=np.array([0.29, 0.30, 0.5, 0.9]),
        test_size=np.full(4, 100.0),
    )  # fmt: skip
    assert 0.30 - 0.29 > 0.01
    row = cms(records, deltas=[0.01], resamples=0).set_index(["part", "statistic"]).loc["delta=0.01"]
    assert row.loc["CMS", "value"] == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("errors", "missing"), [([0.1, 0.1, 0.5, 0.9], "CMS_inter"), ([0.1, 0.5, 0.1, 0.9], "CMS_seed")]
)
def test_ecms_is_undefined_without_pairs_of_either_kind(errors: list[float], missing: str) -> None:
    records = NetworkTable(
        hyperparameters=("h",), codes=np.array([[0], [0], [1], [1]]), levels=((0, 1),),
        seeds=np.array([0, 1, 0, 1]), targets={"gap": np.array([0.1, 0.2, 0.3, 0.4])}, measures=("a",),
        readings=np.array([[1.0], [2.0], [8.0], [64.0]]), test_error=np.array(errors),
    )  # fmt: skip
    found = cms(records, deltas=[0.01], resamples=20).set_index(["part", "statistic"]).loc["delta=0.01"]
    assert np.isfinite(found.loc["CMS", "value"])
    assert np.isnan(found.loc[missing, "value"])
    assert np.isnan(found.loc["eCMS", "value"])
    assert (found.loc["eCMS", "count"], found.loc["eCMS", "available"]) == (0, 1)


READINGS = np.array([[1.0, 10.0], [2.0, 40.0], [3.0, 30.0], [3.0, 20.0]])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("avg", [5.5, 21.0, 16.5, 11.5]),
        ("prod", [10.0, 80.0, 90.0, 60.0]),
        ("prod+avg", [15.5, 101.0, 106.5, 71.5]),
        ("avg_rank", [1.0, 3.0, 3.25, 2.75]),
    ],
)
def test_combinations(small: NetworkTable, method: str, expected: list[float]) -> None:
    records = replace(small.take(np.arange(len(small)) < 4), measures=("x", "y"), readings=READINGS)
    combined = add_combination(records, method, ["x", "y"])
    assert combined.measures[-1] == f"{method}(x,y)"
    np.testing.assert_allclose(combined.readings[:, -1], expected)


def test_principal_components_against_scikit_learn(small: NetworkTable) -> None:
    from sklearn.decomposition import PCA

    generator = np.random.default_rng(2)
    common = generator.normal(size=(len(small), 1))
    readings = common * [1.0, 2.0, 0.5] + 0.3 * generator.normal(size=(len(small), 3))
    records = replace(small, measures=("x", "y", "z"), readings=readings)
    standard = (readings - readings.mean(axis=0)) / readings.std(axis=0)
    for method, data in (("pca", readings), ("npca", standard)):
        ours = add_combination(records, method, ["x", "y", "z"]).readings[:, -1]
        theirs = PCA(1).fit_transform(data)[:, 0]
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-9)
        # All three rise with the common cause, so the combination must.
        assert np.corrcoef(ours, common[:, 0])[0, 1] > 0.9


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_networks_have_no_pairs(small, count) -> None:
    assert pair_scores(small.take(np.arange(len(small)) < count)) == {}
