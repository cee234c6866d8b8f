"""The practical sign-error: against plain loops, and the promises of its intervals."""

from __future__ import annotations

import itertools
import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genbench.errors import UserError
from genbench.scoring.pairs import pair_weights
from genbench.scoring.ranking import tied_ranks
from genbench.testbed.cube import class_statistics, make_cube, slices
from genbench.testbed.score_record import practical_record
from genbench.testbed.truth import practical_truth

SEEN, UNSEEN, IMAGES = 4, 2, 10
ZERO_SHOT, SSIM = (0, 2), (0.7, 1.0)


def family(models: int, seed: int, difficulty: np.ndarray | None = None):
    """A cube with known right and wrong images; model i errs with probability `difficulty[i]`."""
    generator = np.random.default_rng(seed)
    difficulty = np.linspace(0.1, 0.7, models) if difficulty is None else difficulty
    labels = np.repeat(np.arange(SEEN + UNSEEN), IMAGES)
    right = generator.random((len(ZERO_SHOT), len(SSIM), models, len(labels))) > difficulty[:, None]
    error = np.full((len(ZERO_SHOT), len(SSIM), models, SEEN + UNSEEN), np.nan)
    for i, z in enumerate(ZERO_SHOT):
        right[i][..., labels >= SEEN + z] = False
        for k in range(SEEN + z):
            error[i, ..., k] = 1 - right[i][..., labels == k].mean(axis=-1)
    cube = make_cube(
        class_statistics(error, error),
        zero_shot=[z / (SEEN + z) for z in ZERO_SHOT],
        ssim=SSIM,
        weights=np.arange(1, models + 1) * 1000,
        models=[f"f{seed}:{i}" for i in range(models)],
        per_class={"error": error},
    )
    return cube.assign(right=(("zero_shot", "ssim", "model", "image"), right.astype(np.uint8))).assign_coords(
        image_class=("image", labels)
    )


@pytest.fixture(scope="module")
def cubes():
    return {"a": family(5, 1), "b": family(4, 2)}


@pytest.fixture(scope="module")
def truth(cubes):
    return practical_truth(cubes, resamples=200, seed=3)


def looped(c: dict[str, float], d: dict[str, float]) -> float:
    """Eq. 7, as printed."""
    total = [
        0.5 * (1 - np.sign(d[w] - d[v]) * np.sign(c[w] - c[v])) for w, v in itertools.combinations(list(d), 2)
    ]
    return float(np.mean(total))


def weighed(difference: float, m: int) -> float:
    """kappa = max(0, chi − ½), as printed."""
    chi = max(0.0, 1 - 2 * math.exp(-2 * m * (difference / 2) ** 2)) ** 2
    return max(0.0, chi - 0.5)


def test_every_part_agrees_with_a_loop_over_pairs(cubes, truth) -> None:
    generator = np.random.default_rng(0)
    readings = {m: float(generator.integers(3)) for models in truth.models.values() for m in models}
    score = truth.score(readings)
    expected = []
    for name, cube in cubes.items():
        models = [str(m) for m in cube["model"].values]
        for slice_, data in slices(cube).items():
            for statistic in ("mean", "sd", "p10"):
                d = dict(zip(models, data[f"error_{statistic}"].values.tolist(), strict=True))
                value = looped({m: readings[m] for m in models}, d)
                (part,) = (
                    p for p in score.parts if (p.family, p.slice, p.statistic) == (name, slice_, statistic)
                )
                assert part.value == pytest.approx(value, abs=1e-12)
                pairs = list(itertools.combinations(models, 2))
                assert part.ties == sum(readings[v] == readings[w] for v, w in pairs)
                weight = {
                    (v, w): max(
                        0.0, max(0.0, 1 - 2 * math.exp(-2 * m * (abs(d[v] - d[w]) / 2) ** 2)) ** 2 - 0.5
                    )
                    for m in [IMAGES * (SEEN if slice_ == "robustness" else SEEN + UNSEEN)]
                    for v, w in pairs
                }
                wrong = {
                    (v, w): 0.5 * (1 - np.sign(d[v] - d[w]) * np.sign(readings[v] - readings[w]))
                    for v, w in pairs
                }
                total = sum(weight.values())
                aware = sum(weight[p] * wrong[p] for p in pairs) / total if total else None
                assert part.noise_aware == (None if aware is None else pytest.approx(aware, abs=1e-12))
                assert part.sure_pairs == sum(value > 0 for value in weight.values())
                if statistic == "mean":
                    expected.append(value)
    assert score.value == pytest.approx(np.mean(expected), abs=1e-12)
    assert score.pairs == 10 + 6


def test_the_truth_itself_is_a_perfect_measure_and_its_negative_the_worst(cubes) -> None:
    # One slice alone orders the models alike in both, so that a perfect measure exists.
    easy = {"a": family(4, 7, np.array([0.02, 0.3, 0.6, 0.95]))}
    truth = practical_truth(easy, resamples=100)
    d = {m: known.robustness.mean for m, known in truth.known().items()}
    perfect, reversed_ = truth.score(d), truth.score({m: -v for m, v in d.items()})
    assert (perfect.value, reversed_.value) == (0.0, 1.0)
    assert perfect.worst == []
    assert len(reversed_.worst) == 12
    assert [p.certainty for p in reversed_.worst] == sorted(
        (p.certainty for p in reversed_.worst), reverse=True
    )
    assert all(p.error_better < p.error_worse and p.reading_better > p.reading_worse for p in reversed_.worst)


def test_missing_readings_drop_their_models_alone(truth) -> None:
    readings = {m: float(i) for i, m in enumerate(m for models in truth.models.values() for m in models)}
    whole = truth.score(readings)
    first = truth.models["a"][0]
    partly = truth.score({**readings, first: math.nan})
    assert (whole.dropped, partly.dropped) == (0, 1)
    assert partly.pairs == whole.pairs - 4
    assert [p for p in partly.parts if p.family == "b"] == [p for p in whole.parts if p.family == "b"]
    only_b = truth.score({m: readings[m] for m in truth.models["b"]})
    assert {p.family for p in only_b.parts} == {"b"}
    assert truth.score({first: 1.0}) is None


def test_measures_scored_together_have_the_scores_they_have_alone(truth) -> None:
    generator = np.random.default_rng(1)
    models = [m for models in truth.models.values() for m in models]
    several = [{m: float(generator.integers(4)) for m in models} for _ in range(3)]
    several[1][models[0]] = math.nan
    together = truth.scores([*several, {models[0]: 1.0}])
    assert together[-1] is None
    for one, readings in zip(together[:-1], several, strict=True):
        alone = truth.score(readings)
        assert one == alone
        assert (one.resampled == alone.resampled).all()


def test_the_interval_covers_what_new_images_give() -> None:
    """Of twenty fresh draws of the images, most intervals hold the SE against the true difficulties."""
    difficulty = np.array([0.2, 0.3, 0.4, 0.45, 0.5, 0.8])
    order = np.array([2, 0, 1, 5, 3, 4])
    covered = 0
    for seed in range(501, 521):
        truth = practical_truth({"x": family(6, seed, difficulty)}, resamples=300, seed=seed)
        score = truth.score({f"f{seed}:{i}": float(order[i]) for i in range(6)})
        exact = looped(dict(enumerate(map(float, order))), dict(enumerate(difficulty)))
        covered += score.low - 1e-9 <= exact <= score.high + 1e-9
    assert covered >= 16


def test_resamples_are_the_same_for_all_measures(truth) -> None:
    models = [m for names in truth.models.values() for m in names]
    one = truth.score({m: float(i) for i, m in enumerate(models)})
    two = truth.score({m: math.exp(i) for i, m in enumerate(models)})
    opposite = truth.score({m: -float(i) for i, m in enumerate(models)})
    np.testing.assert_array_equal(one.resampled, two.resampled)
    assert one.ties_with(two)
    assert not one.ties_with(opposite)
    # No ties in readings: what one gets right the other gets wrong (up to ties of the resampled truth).
    np.testing.assert_allclose(one.resampled + opposite.resampled, 1, atol=1e-9)
    ranks = tied_ranks([one, two, opposite, None])
    assert ranks[0] == ranks[1]
    assert sorted(r for r in ranks if r is not None) in ([1, 1, 3], [1, 2, 2])
    assert ranks[3] is None


@given(st.lists(st.floats(-5, 5), min_size=9, max_size=9, unique=True))
@settings(max_examples=30, deadline=None)
def test_invariant_to_increasing_transforms(values) -> None:
    truth = _TRUTH
    models = [m for names in truth.models.values() for m in names]
    score = truth.score(dict(zip(models, values, strict=True)))
    moved = truth.score({m: math.atan(v) * 3 + 1 for m, v in zip(models, values, strict=True)})
    if len({math.atan(v) * 3 + 1 for v in values}) == 9:  # atan may round two neighbours together
        assert moved.value == score.value
        assert moved.parts == score.parts


_TRUTH = practical_truth({"a": family(5, 1), "b": family(4, 2)}, resamples=50)


def test_resolved_counts_pairs_beyond_the_noise() -> None:
    apart = practical_truth({"x": family(3, 9, np.array([0.05, 0.5, 0.95]))}, resamples=200)
    assert set(apart.resolved().values()) == {1.0}
    alike = practical_truth({"x": family(6, 9, np.full(6, 0.5))}, resamples=200)
    assert max(alike.resolved().values()) <= 0.4


def test_weights_of_pairs_are_those_of_the_robust_sign_error() -> None:
    # chi = 0.25 at 2·exp(−2m(D/2)²) = 1/2, below ½: no weight; nearly ½ for a sure pair.
    m, d = 100, 2 * math.sqrt(math.log(4) / 200)
    assert pair_weights(np.array([d, 0.0, 1.0]), m).tolist() == [0.0, 0.0, pytest.approx(0.5, abs=1e-9)]


def test_a_truth_is_kept_for_the_same_cubes_alone(cubes) -> None:
    truth = practical_truth(cubes, resamples=200, seed=3)
    assert (
        practical_truth({name: cube.copy() for name, cube in cubes.items()}, resamples=200, seed=3) is truth
    )
    others = [practical_truth(cubes, resamples=200, seed=4), practical_truth(cubes, resamples=100, seed=3)]
    # In place, as nobody should: it is what is in the cubes that counts.
    changed = {name: cube.copy(deep=True) for name, cube in cubes.items()}
    changed["a"]["right"].values[..., 0, :] ^= 1
    others.append(practical_truth(changed, resamples=200, seed=3))
    renamed = {**cubes, "b": cubes["b"].assign_coords(model=[f"g{i}" for i in range(4)])}
    others.append(practical_truth(renamed, resamples=200, seed=3))
    marginals = [one.slices["a", "robustness"].truth["mean"] for one in (truth, others[2])]
    assert not np.array_equal(*marginals)
    assert others[3].models["b"] == ["g0", "g1", "g2", "g3"]
    assert len({id(one) for one in (truth, *others)}) == 5


def test_a_cube_without_images_cannot_give_intervals(cubes) -> None:
    with pytest.raises(UserError, match="which images were classified right"):
        practical_truth({"a": cubes["a"].drop_vars("right")})


def test_the_record_is_json(truth) -> None:
    models = [m for names in truth.models.values() for m in names]
    score = truth.score({m: float(i) for i, m in enumerate(models)})
    assert json.loads(msgspec.json.encode(practical_record(score)))["pairs"] == 16
    assert json.loads(msgspec.json.encode(truth.known()))[models[0]]["weights"] == 1000


def test_no_rank_is_below_that_of_a_measure_with_a_lower_value() -> None:
    """Ties are not transitive: one may tie with the best where another, which lies between them, does not."""

    class Given:
        def __init__(self, value: float, ties: set[float]) -> None:
            self.value, self.ties = value, ties

        def ties_with(self, other: Given) -> bool:
            return other.value in self.ties

    first, second, third = Given(0.1, {0.3}), Given(0.2, {0.3}), Given(0.3, {0.1, 0.2})
    last, twin = Given(0.4, set()), Given(0.4, set())
    assert tied_ranks([third, last, None, first, second, twin]) == [2, 4, None, 1, 2, 4]
