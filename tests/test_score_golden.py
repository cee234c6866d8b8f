"""Scores of record tables against golden values from the papers' authors' own pipelines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from genbench.scoring import (
    NetworkTable,
    affine_oracle,
    cms,
    conditional_independence,
    granulated_kendall,
    pgdl_score,
    read_table,
    robust_sign_error,
    sign_error_environments,
)

FOLDER = Path(__file__).parent / "golden" / "scoring"
TABLE = FOLDER / "records.csv"
EXACT = 1e-9
QUANTITIES = {"mean": "mean", "p90": "p90_unordered", "max": "max"}


def golden(name: str) -> dict:
    return json.loads((FOLDER / f"golden_{name}.json").read_text())


def plain(name: str) -> str:
    """The golden files' names as genbench shows them."""
    name = name.replace("hp.train_size", "hp.train_dataset_size")
    return name.replace("hp.", "").replace("complexity.", "")


@pytest.fixture(scope="module")
def records() -> NetworkTable:
    """The rows behind all golden values but one: converged, and finite in every column."""
    return read_table(TABLE).complete()


def lookup(frame: pd.DataFrame) -> dict[tuple[str, str, str], dict]:
    return {(r["measure"], r["part"], r["statistic"]): r for r in frame.to_dict("records")}


def test_the_authors_columns_are_read_without_a_mapping(records: NetworkTable) -> None:
    everything = read_table(TABLE)
    assert (len(everything), everything.left_out) == (1070, 10)
    assert len(records) == golden("sign_error")["n_rows"] == 1068
    assert records.hyperparameters == ("lr", "model_depth", "model_width", "dataset", "train_dataset_size")
    assert len(records.measures) == 24
    assert records.levels[records.hyperparameters.index("lr")] == (0.001, 0.00316, 0.01)


@pytest.mark.parametrize(("section", "noise_filter"), [("filter", True), ("nofilter", False)])
def test_sign_error(records: NetworkTable, section: str, noise_filter: bool) -> None:
    ours = lookup(robust_sign_error(records, noise_filter=noise_filter, resamples=0))
    expected = golden("sign_error")[section]
    assert len(expected["measures"]) == 24
    for measure, parts in expected["measures"].items():
        for part, numbers in parts.items():
            counts = expected["counts"] if part == "all" else expected["counts"][part]
            for statistic, key in QUANTITIES.items():
                row = ours[plain(measure), plain(part), statistic]
                assert row["value"] == pytest.approx(numbers[key], abs=EXACT)
                assert row["count"] == numbers["n_env_unordered"] == counts["kept_unordered"]
                assert row["available"] == counts["available_unordered"]


def test_sign_error_of_the_pooled_family(records: NetworkTable) -> None:
    ours = lookup(robust_sign_error(records, family="pooled", resamples=0))
    expected = golden("sign_error")["weaker_family"]
    for measure, numbers in expected["measures"].items():
        for statistic, key in QUANTITIES.items():
            row = ours[plain(measure), "all", statistic]
            assert row["value"] == pytest.approx(numbers[key], abs=EXACT)
            assert (row["count"], row["available"]) == (
                expected["kept_unordered"],
                expected["available_unordered"],
            )


def test_the_drill_down_holds_the_distribution_behind_the_sign_error(records: NetworkTable) -> None:
    environments = sign_error_environments(records)
    expected = golden("sign_error")["filter"]["measures"]
    for measure, parts in expected.items():
        own = environments[environments["measure"] == plain(measure)]
        assert len(own) == 321
        assert own["sign_error"].iloc[0] == pytest.approx(parts["all"]["max"], abs=EXACT)
        assert own["sign_error"].is_monotonic_decreasing
        widths = own[own["hyperparameter"] == "model_width"]["sign_error"]
        assert widths.mean() == pytest.approx(parts["hp.model_width"]["mean"], abs=EXACT)
    assert (environments["n_eff"] >= 12).all()


@pytest.mark.parametrize("section", ["all_finite_rows", "converged_rows"])
def test_affine_oracle(section: str) -> None:
    table = read_table(TABLE, keep_unconverged=section == "all_finite_rows").complete()
    expected = golden("affine_oracle")[section]
    assert len(table) == expected["n_rows"]
    ours = lookup(affine_oracle(table, resamples=0))
    for measure, numbers in [("bias only", expected["bias_only"]), *expected["measures"].items()]:
        name = plain(measure)
        row = ours[name, "combos", "robust_rmse"]
        assert row["value"] == pytest.approx(numbers["robust_rmse"], abs=1e-8)
        assert row["count"] == numbers["n_env"]
        assert ours[name, "combos", "mean_rmse"]["value"] == pytest.approx(numbers["mean_rmse"], abs=1e-6)
        assert ours[name, "combos", "p90_rmse"]["value"] == pytest.approx(numbers["p90_rmse"], abs=1e-6)
        assert ours[name, "combos", "a"]["value"] == pytest.approx(numbers["a"], abs=1e-5)
        assert ours[name, "combos", "b"]["value"] == pytest.approx(numbers["b"], abs=1e-5)


def test_granulated_kendall(records: NetworkTable) -> None:
    ours = lookup(granulated_kendall(records, resamples=0))
    expected = golden("kendall")
    for measure, numbers in expected["per_seed"].items():
        name = plain(measure)
        for axis, psi in numbers["psi"].items():
            row = ours[name, plain(axis), "psi"]
            assert row["value"] == pytest.approx(psi, abs=EXACT)
            assert row["count"] == numbers["n_subspaces"][axis]
        assert ours[name, "all", "Psi"]["value"] == pytest.approx(numbers["Psi_axis_mean"], abs=EXACT)
        overall = expected["overall_tau_all_runs"][measure]
        assert ours[name, "all", "tau"]["value"] == pytest.approx(overall, abs=EXACT)


def test_conditional_independence(records: NetworkTable) -> None:
    ours = lookup(conditional_independence(records, resamples=0))
    for measure, numbers in golden("cmi")["K_all_runs"].items():
        name = plain(measure)
        assert ours[name, "all", "K"]["value"] == pytest.approx(numbers["K"], abs=EXACT)
        assert len(numbers["ncmi"]) == 16
        for conditioned, value in numbers["ncmi"].items():
            assert ours[name, plain(conditioned), "ncmi"]["value"] == pytest.approx(value, abs=EXACT)
        if numbers["K"] > 1e-6:
            least = "+".join(map(plain, numbers["argmin"])) or "(empty)"
            assert ours[name, "all", "K"]["note"] == f"smallest given {least}"


def test_pgdl(records: NetworkTable) -> None:
    ours = lookup(pgdl_score(records, resamples=0))
    for measure, numbers in golden("cmi")["pgdl_seed_mean_self_pairs"].items():
        name = plain(measure)
        assert ours[name, "all", "pgdl"]["value"] == pytest.approx(100 * numbers["CMI"], abs=100 * EXACT)
        for conditioned, value in numbers["ncmi"].items():
            assert ours[name, plain(conditioned), "cmi"]["value"] == pytest.approx(
                100 * value, abs=100 * EXACT
            )


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("group_dataset", ()),
        ("group_dataset_depth_width", ("dataset", "model_depth", "model_width")),
    ],
)
def test_cms(records: NetworkTable, section: str, key: tuple[str, ...]) -> None:
    ours = lookup(cms(records, group_by=key, resamples=0))
    names = key or ("dataset",)
    for delta, measures in golden("cms")[section].items():
        for measure, numbers in measures.items():
            for statistic in ("CMS", "eCMS"):
                row = ours[plain(measure), f"delta={delta}", statistic]
                assert same(row["value"], numbers[f"{statistic}_med"])
                assert row["count"] / row["available"] == numbers[f"coverage_{statistic}"]
            for group, values in numbers["groups"].items():
                words = ", ".join(f"{n}={v}" for n, v in zip(names, group.split("|"), strict=True))
                for statistic in ("CMS", "eCMS", "CMS_seed", "CMS_inter"):
                    row = ours[plain(measure), f"delta={delta}, {words}", statistic]
                    assert same(row["value"], values[statistic])
                assert row["count"] == values["n_inter_pairs"]
                assert row["available"] == values["n_pairs"]


def same(value: float, expected: float | None) -> bool:
    return np.isnan(value) if expected is None else abs(value - expected) <= EXACT
