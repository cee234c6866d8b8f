"""What the site's figures show, as JSON values; `assets/figures.js` draws them with plotly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from genbench.leaderboard.board import Row
from genbench.scoring.practical import HEADLINE, SLICES, PracticalScore
from genbench.suites.evidence_old import TestbedEvidence
from genbench.testbed.cube_tables import short_count, short_name

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from genbench.scoring.population import PopulationScore

__all__ = [
    "SLICE_NAMES",
    "STATISTIC_NAMES",
    "cube_figures",
    "environment_errors",
    "gap_scatter",
    "scatter",
]

SLICE_NAMES = {"robustness": "robustness", "zero_shot": "zero-shot"}
STATISTIC_NAMES = {
    "error_mean": "error, M",
    "error_sd": "error, SD",
    "error_p10": "error, P10",
    "kappa_mean": "kappa, M",
    "kappa_sd": "kappa, SD",
    "kappa_p10": "kappa, P10",
}
_AXES = {"ssim": "SSIM", "zero_shot": "zero-shot share", "weights": "model size (weights)"}
_MOST_LINES = 12
"""Wrong pairs that a scatter plot joins."""
_FAR = 100.0
"""Positive readings that span more than this factor are drawn on a logarithmic axis."""


def scatter(row: Row, evidence: TestbedEvidence) -> dict[str, Any] | None:
    """Readings against the mean held-out error, one panel per slice; None without two values."""
    assert row.score is None or isinstance(row.score, PracticalScore)
    values = {r["subject"]: r["value"] for r in row.record["readings"] if r["value"] is not None}
    if len(values) < 2:
        return None
    truth = evidence.truth.record()
    panels = []
    for name in SLICES:
        groups: dict[str, list[Any]] = {}
        for subject, value in values.items():
            point = {"x": value, "y": round(truth[subject][name][HEADLINE], 5), "name": short_name(subject)}
            groups.setdefault(truth[subject]["family"], []).append(point)
        worst = [pair for pair in (row.score.worst if row.score else []) if pair.slice == name]
        lines = [
            [[values[model], round(truth[model][name][HEADLINE], 5)] for model in (pair.better, pair.worse)]
            for pair in worst[:_MOST_LINES]
        ]
        panels.append({"title": SLICE_NAMES[name], "groups": groups, "wrong": lines})
    return {
        "x": row.name,
        "y": "mean held-out error",
        "log": _far_apart(values.values()),
        "panels": panels,
    }


def _far_apart(values: Collection[float]) -> bool:
    return 0 < min(values) * _FAR < max(values)


def gap_scatter(row: Row, subjects: Sequence[str]) -> dict[str, Any] | None:
    """Readings in the order of `subjects`; the gaps are in the suite's `runs.js`. None without two values."""
    values = {r["subject"]: r["value"] for r in row.record["readings"]}
    known = [value for value in values.values() if value is not None]
    if len(known) < 2:
        return None
    readings = [_significant(values[subject]) for subject in subjects]
    return {"x": row.name, "log": _far_apart(known), "readings": readings}


def _significant(value: float | None) -> float | None:
    """Five digits, more than a mark on a screen can show; whole numbers without a point, to save bytes."""
    if value is None:
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded


def environment_errors(score: PopulationScore, errors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Sign-errors of the environments of every hyperparameter, and what boards say of all together."""
    shown = {"mean": "mean", "90th percentile": "p90", "max": "max"}
    found = {label: score.number("sign_error", name)["value"] for label, name in shown.items()}
    return {
        "groups": {name: [round(error, 3) for error in sorted(values)] for name, values in errors.items()},
        "marks": {label: round(value, 3) for label, value in found.items() if value is not None},
    }


def cube_figures(cube: xr.Dataset, point: Mapping[str, Any]) -> dict[str, Any]:
    """The cube of a family: heat maps of six statistics per model, and the marginals, with the star."""
    import numpy as np

    models = [str(model) for model in cube["model"].values]
    starred = int(np.abs(cube["weights"].values - point["model_size"]).argmin())
    return {
        "ssim": _list(cube["ssim"].values, 3),
        "zero_shot": _list(cube["zero_shot"].values, 3),
        "models": [
            f"{short_name(model)} · {short_count(float(count))}"
            for model, count in zip(models, cube["weights"].values, strict=True)
        ],
        "maps": {
            label: [
                _list(one, 3) for one in cube[name].transpose("model", "zero_shot", "ssim").values
            ]
            for name, label in STATISTIC_NAMES.items()
        },
        "star": {"model": starred, "ssim": point["ssim"], "zero_shot": point["zero_shot"]},
        "marginals": [_marginal(cube, axis, point) for axis in _AXES],
    }  # fmt: skip


def _marginal(cube: xr.Dataset, axis: str, point: Mapping[str, Any]) -> dict[str, Any]:
    from genbench.testbed.cube import marginals

    curves = marginals(cube)["model" if axis == "weights" else axis]
    return {
        "axis": _AXES[axis],
        "levels": _list(cube[axis].values, 3),
        "curves": {label: _list(curves[name].values, 4) for name, label in STATISTIC_NAMES.items()},
        "star": {
            "x": point["model_size" if axis == "weights" else axis],
            "y": [point["generalization"][axis], point["diversity"][axis]],
        },
    }


def _list(values: np.ndarray[Any, Any], digits: int) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(digits).tolist()
    return rounded
