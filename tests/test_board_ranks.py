"""Ranks on a board: those that follow on paper, and those of plain loops with draws of their own."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student
from test_leaderboard import records
from test_records import make_record, write

from genbench.leaderboard.board import read_boards
from genbench.suites.evidence_packs import shipped_evidence
from genbench.testbed.evidence import TestbedEvidence

pytestmark = pytest.mark.xdist_group("test_leaderboard")  # which knows the evidence of `mini`


def error_of_every_network() -> dict[str, float]:
    """The truth of `mini` itself: the mean error over both slices of its family's cube."""
    found = {}
    evidence = shipped_evidence("mini")
    assert isinstance(evidence, TestbedEvidence)
    for family, models in evidence.suite.families().items():
        error = evidence.cubes[family]["error"].mean("class")
        for model, adaptation in product(models, evidence.suite.adaptation_names):
            own = error.sel(model=model, adaptation=adaptation)
            robustness, zero_shot = own.sel(zero_shot=0), own.sel(ssim=1)
            found[f"{model}/{adaptation}"] = float(robustness.mean() + zero_shot.mean())
    return found


def test_ranks_that_follow_from_the_truth(tmp_path) -> None:
    """Readings made of the truth have ranks that need no scoring: right, no answer, wrong."""
    truth = error_of_every_network()
    for name, values in {
        "right": truth,
        "right_too": {s: v**3 for s, v in truth.items()},
        "no_answer": dict.fromkeys(truth, 1.0),
        "no_answer_either": dict.fromkeys(truth, -7.0),
        "wrong": {s: -v for s, v in truth.items()},
        "silent": dict.fromkeys(truth, None),
    }.items():
        write(tmp_path / "records", make_record(name, values))
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    # Two are better than a constant, which is a coin for every pair; four are better than the reverse.
    assert [(row.name, row.rank, row.tied) for row in board.rows] == [
        ("right", 1, ["right_too"]),
        ("right_too", 1, ["right"]),
        ("no_answer", 3, ["no_answer_either"]),
        ("no_answer_either", 3, ["no_answer"]),
        ("wrong", 5, []),
        ("silent", None, []),
    ]
    value = {row.name: row.score.value for row in board.rows if row.score is not None}
    assert value["no_answer"] == 0.5
    assert value["wrong"] == pytest.approx(1 - value["right"])


def errors_by_hand(cube: Any, draws: int, *, exact: bool = False) -> list[NDArray[np.float64]]:
    """(draws, networks) in each slice of a cube: the errors of networks on held-out images drawn anew.

    Class by class and level by level; the mean over classes, then over levels. `exact`: once, on all images.
    """
    draws = 1 if exact else draws
    labels, present = cube["image_class"].values, np.isfinite(cube["error"])
    found = []
    for fixed, axis in (("zero_shot", "ssim"), ("ssim", "zero_shot")):
        generator = np.random.default_rng(2026)  # the same images in both slices and all families
        at = {fixed: 0.0 if fixed == "zero_shot" else 1.0}
        name = "right_robustness" if fixed == "zero_shot" else "right_zero_shot"
        right = cube[name].transpose(axis, "model", "adaptation", "image").values
        wrong = 1.0 - right.reshape(len(right), -1, right.shape[-1])
        inside = present.sel(at).isel(model=0, adaptation=0).transpose(axis, "class").values
        means = np.full((draws, *wrong.shape[:2], inside.shape[1]), np.nan)
        for label in range(inside.shape[1]):
            images = np.flatnonzero(labels == label)
            for draw_ in range(draws):
                chosen = images if exact else generator.choice(images, len(images))
                means[draw_, ..., label] = wrong[:, :, chosen].mean(axis=-1)
        levels = [np.mean(means[:, i][..., kept], axis=-1) for i, kept in enumerate(inside)]
        found.append(np.mean(levels, axis=0))
    return found


def ranks_by_hand(of: list[dict[str, Any]], draws: int = 300) -> dict[str, int | None]:
    """Ranks of records as SPEC defines them, by loops and with random draws of their own.

    One more than the measures that are better by a paired cluster test at 5 % after Holm over all others; a
    backbone is a cluster, and of fewer than ten nothing can be told.
    """
    evidence = shipped_evidence("mini")
    assert isinstance(evidence, TestbedEvidence)
    errors = {family: errors_by_hand(cube, draws) for family, cube in evidence.cubes.items()}
    truth = {
        family: [errors_by_hand(cube, 1, exact=True)[k][0] for k in range(2)]
        for family, cube in evidence.cubes.items()
    }
    drawn: dict[str, NDArray[np.float64]] = {}
    value: dict[str, float] = {}
    near: dict[str, dict[str, float]] = {}
    between: dict[str, dict[tuple[str, str], float]] = {}
    clusters: dict[str, set[str]] = {}
    families: dict[str, int] = {}
    for record in of:
        name, worse = record["measure"]["name"], 1 if record["measure"]["higher_means"] == "worse" else -1
        reading = {r["subject"]: r["value"] for r in record["readings"] if r["value"] is not None}
        networks = {
            family: [f"{one}/{how}" for one, how in product(cube["model"].values, cube["adaptation"].values)]
            for family, cube in evidence.cubes.items()
        }
        pairs = {
            family: [
                pair for pair in combinations(range(len(own)), 2) if {own[i] for i in pair} <= reading.keys()
            ]
            for family, own in networks.items()
        }
        pairs = {family: some for family, some in pairs.items() if some}
        if not pairs:
            continue
        rows = []
        anew = np.zeros(draws)
        for family, some in pairs.items():
            weight = 1 / len(pairs) / len(some)
            for i, j in some:
                one, other = networks[family][i], networks[family][j]
                says = worse * np.sign(reading[one] - reading[other])
                is_so = np.mean([np.sign(t[i] - t[j]) for t in truth[family]])
                backbones = (one.partition("/")[0], other.partition("/")[0])
                rows.append((*backbones, weight, float(says * is_so)))
                again = np.mean([np.sign(e[:, i] - e[:, j]) for e in errors[family]], axis=0)
                anew += weight * (0.5 - 0.5 * says * again)
        mean = sum(weight * agreement for _, _, weight, agreement in rows)
        value[name], drawn[name], families[name] = 0.5 - 0.5 * mean, anew, len(pairs)
        touched = {one for row in rows for one in row[:2]}
        clusters[name] = touched
        near[name], between[name] = {}, {}
        for cluster in touched:
            own = [row for row in rows if cluster in row[:2]]
            left = 1 - min(sum(row[2] for row in own), 0.5)
            near[name][cluster] = sum(row[2] * (row[3] - mean) for row in own) / left
        for one, other, weight, agreement in rows:
            if one != other:
                known = between[name].get((one, other), 0.0)
                between[name][one, other] = known + weight * (agreement - mean)

    def p_value(one: str, other: str) -> float:
        if min(len(clusters[one]), len(clusters[other])) < 10:
            return 1.0
        psi = [near[one].get(c, 0.0) - near[other].get(c, 0.0) for c in clusters[one] | clusters[other]]
        dyads = between[one].keys() | between[other].keys()
        shared = sum((between[one].get(d, 0.0) - between[other].get(d, 0.0)) ** 2 for d in dyads)
        whole = sum(number**2 for number in psi)
        variance = max(whole - shared, whole / 2) / 4 + np.var(drawn[one] - drawn[other])
        difference = abs(value[one] - value[other])
        if variance < 1e-18:
            return 0.0 if difference > 1e-9 else 1.0
        freedom = min(len(clusters[name]) - families[name] for name in (one, other))
        return float(2 * student.sf(difference / np.sqrt(variance), freedom))

    def surely_better(name: str) -> list[str]:
        ordered = sorted((p_value(name, other), other) for other in value if other != name)
        found = []
        for place, (p, other) in enumerate(ordered):
            if p * (len(ordered) - place) > 0.05:
                break
            found.append(other)
        return [other for other in found if value[other] < value[name]]

    ranks: dict[str, int | None] = dict.fromkeys((r["measure"]["name"] for r in of), None)
    return ranks | {name: 1 + len(surely_better(name)) for name in value}


def disagreements(among: str = "") -> list[float]:
    """Of each family: the share of pairs of networks of which one is better on degraded images and the other
    on unseen classes.

    Parameters
    ----------
    among : how the names begin of the networks that are looked at.
    """
    found = []
    for cube in shipped_evidence("mini").families().values():
        error = cube.cube["error"].mean("class")
        error = error.isel(model=[str(name).startswith(among) for name in error["model"].values])
        means = zip(
            error.sel(zero_shot=0).mean("ssim").values.flat,
            error.sel(ssim=1).mean("zero_shot").values.flat,
            strict=True,
        )
        pairs = [(one[0] - other[0]) * (one[1] - other[1]) for one, other in combinations(means, 2)]
        if pairs:
            found.append(sum(one < 0 for one in pairs) / len(pairs))
    return found


def test_rows_are_ranked_with_ties(tmp_path) -> None:
    """Ranks that follow on paper.

    Judged by its mean error, a network agrees with both slices or, where they disagree, with one: no measure
    can do better than `near`. With q_f the share of a family's pairs in which the slices disagree, its
    sign-error is ½ mean(q_f); that of `far`, which says the opposite, is 1 less that, and that of `coin`,
    which says nothing, ½. Between them lie .3 to .5, and two measures of 174 networks are told apart whose
    sign-errors differ by .1. Readings in the same order differ by nothing. `few` has one backbone, and of
    fewer than ten nothing is told.
    """
    best, least = np.mean(disagreements()) / 2, np.mean(disagreements("mini-clip:short2")) / 2
    assert best < 0.2
    truth = error_of_every_network()
    opposite = {network: -error for network, error in truth.items()}
    for record in (
        make_record("near", truth),
        make_record("near_cubed", {network: error**3 for network, error in truth.items()}),
        make_record("near_said_better", opposite, higher_means="better"),
        make_record("coin", dict.fromkeys(truth, 1.0)),
        make_record("far", opposite),
        make_record("few", {s: v if "short2/" in s else None for s, v in opposite.items()}),
        make_record("silent", dict.fromkeys(truth, None)),
    ):
        write(tmp_path / "records", record)
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    rows = {row.name: row for row in board.rows}
    assert {name: row.rank for name, row in rows.items()} == {
        "near": 1, "near_cubed": 1, "near_said_better": 1,
        "coin": 1 + 3, "far": 1 + 3 + 1, "few": 1, "silent": None,
    }  # fmt: skip
    values = {name: row.score and row.score.value for name, row in rows.items()}
    assert values == {
        "near": pytest.approx(best), "near_cubed": pytest.approx(best),
        "near_said_better": pytest.approx(best), "coin": 0.5, "far": pytest.approx(1 - best),
        "few": pytest.approx(1 - least), "silent": None,
    }  # fmt: skip
    assert set(rows["near"].tied) == {"near_cubed", "near_said_better", "few"}
    assert set(rows["far"].tied) == {"few"} == set(rows["coin"].tied)
    assert set(rows["near"].same_order) == {"near_cubed", "near_said_better"}
    assert rows["far"].same_order == [] == rows["coin"].same_order


def test_ranks_are_those_of_loops_with_other_draws(tmp_path) -> None:
    """Random readings too, most of which cannot be told apart."""
    truth = error_of_every_network()
    networks = list(truth)
    swapped = {**truth, networks[0]: truth[networks[1]], networks[1]: truth[networks[0]]}
    told = [
        *records(),
        make_record("near", truth),
        make_record("swapped", swapped),
        make_record("far", {network: -error for network, error in truth.items()}),
    ]
    for record in told:
        write(tmp_path / "records", record)
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    assert {row.name: row.rank for row in board.rows} == ranks_by_hand(told)
    rows = {row.name: row for row in board.rows}
    assert "twin_of_second" in rows["second"].tied
    assert rows["second"].same_order == ["twin_of_second"]
