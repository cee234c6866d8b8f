"""The four questions of a board, against double loops, exact permutations and networks made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_networks import made_population, made_testbed, places

from genbench.scoring import read_table, robust_sign_error, sign_error
from genbench.scoring.adjust import additive_effects, adjustment, curves, surfaces
from genbench.scoring.board_baselines import baseline_readings, judge_baselines, settings_effect
from genbench.scoring.cluster_variance import cluster_sums
from genbench.scoring.intervals import measured_spread, paired_p
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.permutations import freedman_lane_p, null_sign_errors, permutation_p, tie_pattern
from genbench.scoring.questions import Question, ask
from genbench.scoring.resample_networks import draw_networks
from genbench.scoring.signed_pairs import SignedPairs, pairs_of_groups
from genbench.scoring.table_networks import table_networks
from genbench.scoring.verdicts import holm, judge

GOLDEN = Path(__file__).parent / "golden" / "scoring" / "records.csv"
FEW = 2_000


@pytest.fixture(scope="module")
def networks() -> KnownNetworks:
    return made_population()


@pytest.fixture(scope="module")
def bed() -> KnownNetworks:
    return made_testbed()


def asked(known: KnownNetworks, name: str) -> Question:
    question = ask(known)[name]
    assert isinstance(question, Question), question
    return question


def plain_error(pairs: SignedPairs, c: np.ndarray) -> float:
    """½ (1 − Σ w sgn sgn), pair by pair."""
    total = 0.0
    for i, j, weight, larger in zip(pairs.first, pairs.second, pairs.weight, pairs.larger.T, strict=True):
        total += weight * float(np.mean(larger)) * float(np.sign(c[i] - c[j]))
    return 0.5 * (1 - total)


def test_the_headline_of_a_testbed_is_equation_7_averaged_over_slices_and_families(
    bed: KnownNetworks,
) -> None:
    c = np.random.default_rng(0).normal(size=len(bed))
    parts = [
        float(sign_error(c[bed.family == family], truth[bed.family == family]))
        for family in (0, 1)
        for truth in bed.truths
    ]
    assert bed.headline.sign_errors(c[:, None])[0] == pytest.approx(np.mean(parts))


def test_the_headline_of_a_table_is_the_mean_over_environments() -> None:
    table = read_table(GOLDEN).complete()
    table = table.select(table.measures[:3])
    scores = robust_sign_error(table, resamples=0)
    expected = scores[(scores["part"] == "all") & (scores["statistic"] == "mean")].set_index("measure")[
        "value"
    ]
    found = table_networks(table).headline.sign_errors(table.readings)
    assert found == pytest.approx([expected[name] for name in table.measures])


def test_pairs_of_one_backbone_are_averaged_within_families(bed: KnownNetworks) -> None:
    c = np.random.default_rng(1).normal(size=len(bed))
    families = []
    for family in (0, 1):
        errors = [
            0.5 * (1 - np.sign(t[i] - t[j]) * np.sign(c[i] - c[j]))
            for i, j in itertools.combinations(range(len(bed)), 2)
            for t in bed.truths
            if bed.cluster[i] == bed.cluster[j] and bed.family[i] == family
        ]
        families.append(np.mean(errors))
    question = asked(bed, "size")
    assert question.pairs.sign_errors(c[:, None])[0] == pytest.approx(np.mean(families))


@pytest.mark.parametrize("readings", [[3.0, 1.0, 2.0, 5.0, 4.0, 9.0], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]])
def test_a_p_value_is_that_of_all_permutations(readings: list[float]) -> None:
    truth = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    groups = np.zeros(6, dtype=np.int64)
    pairs = pairs_of_groups(groups, groups, truth)
    c = np.array(readings)
    observed = plain_error(pairs, c)
    nulls = [float(sign_error(c[list(order)], truth[0])) for order in itertools.permutations(range(6))]
    exact = np.mean([null <= observed + 1e-9 for null in nulls])
    (p,) = permutation_p(pairs, c[:, None], groups, 20_000)
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000) + 1e-4)


def test_readings_are_permuted_within_their_groups_alone() -> None:
    """Two groups of three: of 36 permutations one is as good as a perfect order."""
    groups = np.array([0, 0, 0, 1, 1, 1])
    pairs = pairs_of_groups(groups, np.zeros(6, dtype=np.int64), np.arange(6.0)[None])
    (p,) = permutation_p(pairs, np.arange(6.0)[:, None], groups, 20_000)
    assert p == pytest.approx(1 / 36, abs=0.004)


def test_all_measures_have_the_p_values_that_each_has_alone(networks: KnownNetworks) -> None:
    generator = np.random.default_rng(2)
    readings = np.column_stack([generator.normal(size=(len(networks), 2)), networks.weights])
    for name in ("chance", "size", "fit"):
        question = asked(networks, name)
        entering = question.entering(readings)
        alone = [question.p(entering[:, [m]], FEW)[0] for m in range(3)]
        assert question.p(entering, FEW) == pytest.approx(alone)


def test_freedman_lane_is_that_of_all_permutations() -> None:
    """Against a loop that fits truths anew by least squares with an intercept per architecture."""
    generator = np.random.default_rng(5)
    architecture = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    family = np.zeros(8, dtype=np.int64)
    x, truth, c = generator.normal(size=(3, 8))
    freed = adjustment(x[:, None], architecture, family)
    design = np.column_stack([architecture == 0, architecture == 1, x]).astype(float)

    def residual(y: np.ndarray) -> np.ndarray:
        return y - design @ np.linalg.lstsq(design, y, rcond=None)[0]

    ranks = lambda y: np.argsort(np.argsort(y)) + 1.0  # noqa: E731
    e, mine = residual(ranks(truth)), residual(ranks(c))
    assert freed.residuals(np.column_stack([truth, c])) == pytest.approx(np.column_stack([e, mine]), abs=1e-6)
    pairs = pairs_of_groups(architecture, family, e[None])

    def error(d: np.ndarray) -> float:
        return float(np.mean([sign_error(mine[:4], d[:4]), sign_error(mine[4:], d[4:])]))

    nulls = [
        error(residual(e[[*one, *(4 + i for i in other)]]))
        for one in itertools.permutations(range(4))
        for other in itertools.permutations(range(4))
    ]
    exact = np.mean(np.array(nulls) <= error(e) + 1e-9)
    (p,) = freedman_lane_p(pairs, e[None], freed, mine[:, None], 20_000)
    assert p == pytest.approx(exact, abs=0.015)


def test_curves_hold_any_smooth_function_and_settings_any_sum_of_effects() -> None:
    generator = np.random.default_rng(6)
    x = generator.uniform(-2, 2, size=200)
    zeros = np.zeros(200, dtype=np.int64)
    basis = adjustment(curves(x, 12), zeros, zeros).basis
    y = np.sin(2 * x) - np.sin(2 * x).mean()
    assert np.abs(y - basis @ (basis.T @ y)).max() < 0.002
    other = generator.uniform(-2, 2, size=200)
    both = adjustment(surfaces(x, other, 49), zeros, zeros).basis
    z = np.sin(x * other) - np.sin(x * other).mean()
    assert np.square(z - both @ (both.T @ z)).sum() < 0.01 * np.square(z).sum()
    assert surfaces(x, other, 9)[:, 0] == pytest.approx((x - x.mean()) * (other - other.mean()))
    settings = {"a": [1, 2, 3, 4] * 50, "b": ["x", "y"] * 100, "c": list(range(200))}
    columns = additive_effects(settings)
    assert columns.shape == (200, 4 + 2 + 2)
    effect = np.array([{1: 5.0, 2: -1.0, 3: 0.0, 4: 2.0}[v] for v in settings["a"]])
    assert np.linalg.lstsq(columns, effect, rcond=None)[1].sum() == pytest.approx(0, abs=1e-18)


MEASURES: dict[str, tuple[Callable[[KnownNetworks], np.ndarray], list[str]]] = {
    "the truth": (lambda known: known.truths[0], ["chance", "size", "fit", "settings"]),
    "size alone": (lambda known: -known.weights, ["chance"]),
    "training loss and size": (
        lambda known: np.log(known.training_loss) - 2 * np.log(known.weights),
        ["chance", "size"],
    ),
    "settings": (
        lambda known: (
            -places(known, "train_size") - 0.6 * places(known, "learning_rate") - places(known, "width")
        ),
        ["chance", "size", "fit"],
    ),
    "nothing": (lambda known: np.random.default_rng(8).normal(size=len(known)), []),
    "a constant": (lambda known: np.ones(len(known)), []),
    "always wrong": (lambda known: -known.truths[0], []),
}


def test_measures_pass_the_questions_that_they_should(networks: KnownNetworks) -> None:
    readings = {name: make(networks) for name, (make, _) in MEASURES.items()}
    board = judge(networks, readings, permutations=FEW, resamples=200)
    assert board.cannot_ask == {}
    assert {name: one.verdict for name, one in board.measures.items()} == {
        name: verdict for name, (_, verdict) in MEASURES.items()
    }
    truth = board.measures["the truth"]
    assert (truth.rank, truth.document().sign_error) == (1, pytest.approx(0.0, abs=1e-12))
    assert {a.value for q, a in board.measures["size alone"].questions.items() if q != "chance"} == {0.5}
    assert board.measures["always wrong"].rank == len(MEASURES)


def test_a_testbed_is_adjusted_for_settings_where_no_two_networks_share_them(bed: KnownNetworks) -> None:
    truth = bed.truths.mean(axis=0)
    settings = places(bed, "rate") - 1.5 * places(bed, "share")
    board = judge(bed, {"truth": truth, "settings": settings}, permutations=FEW, resamples=200)
    assert board.measures["truth"].verdict == ["chance", "size", "fit", "settings"]
    assert board.measures["settings"].verdict == ["chance", "size", "fit"]
    assert board.measures["settings"].questions["settings"].value == 0.5


def test_a_measure_that_fails_a_question_passes_no_later_one(networks: KnownNetworks) -> None:
    """It orders seeds of a combo as the truth does, and combos the wrong way round."""
    combo = networks.combo
    assert combo is not None
    means = (np.bincount(combo, networks.truths[0]) / np.bincount(combo))[combo]
    wrong = networks.truths[0] - means - 10 * means
    board = judge(networks, {"wrong": wrong}, permutations=FEW, resamples=100)
    answers = board.measures["wrong"].questions
    assert (answers["chance"].p, answers["settings"].value) == (1.0, 0.0)
    assert answers["settings"].p_holm is not None
    assert answers["settings"].p_holm < 0.05
    assert board.measures["wrong"].verdict == []


def test_a_question_without_pairs_cannot_be_asked_and_is_never_passed(bed: KnownNetworks) -> None:
    alone = replace(
        bed, architecture=np.arange(len(bed)), cluster=np.arange(len(bed)), settings={}, training_loss=None
    )
    board = judge(alone, {"truth": bed.truths.mean(axis=0)}, permutations=FEW, resamples=100)
    assert set(board.cannot_ask) == {"size", "fit", "settings"}
    assert board.measures["truth"].verdict == ["chance"]
    assert board.measures["truth"].questions["size"].value is None
    unknown = replace(bed, architecture=None)
    assert "not known" in str(ask(unknown)["size"])
    assert "training loss" in str(ask(replace(bed, training_loss=None))["fit"])
    # The runs of 001 as published say neither size nor training loss, and have several seeds.
    published = ask(table_networks(read_table(GOLDEN)))
    assert {name for name, answer in published.items() if isinstance(answer, str)} == {"size", "fit"}


def test_a_missing_reading_leaves_its_network_out_for_its_measure_alone(networks: KnownNetworks) -> None:
    c = np.random.default_rng(9).normal(size=len(networks))
    holed = c.copy()
    holed[[3, 50]] = np.nan, np.inf
    board = judge(networks, {"whole": c, "holed": holed}, permutations=FEW, resamples=100)
    rows = np.isfinite(holed)
    fewer = judge(networks.take(rows), {"holed": c[rows]}, permutations=FEW, resamples=100)
    whole = judge(networks, {"whole": c}, permutations=FEW, resamples=100)
    assert board.measures["holed"].dropped == 2
    for question, answer in board.measures["holed"].questions.items():
        assert answer.value == fewer.measures["holed"].questions[question].value
        assert answer.p == fewer.measures["holed"].questions[question].p
    assert board.measures["whole"].questions["fit"].p == whole.measures["whole"].questions["fit"].p


def test_holm_is_the_step_down_correction() -> None:
    """Holm 1979: sorted p times the number of hypotheses left, never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_the_cluster_variance_is_its_definition(bed: KnownNetworks) -> None:
    small = bed.take(np.isin(bed.cluster, [0, 1, 2, 8, 9]))
    c = np.random.default_rng(10).normal(size=(len(small), 2))
    pairs = small.headline
    g = pairs.larger.mean(axis=0)[:, None] * np.sign(c[pairs.first] - c[pairs.second])
    e = pairs.weight[:, None] * (g - pairs.weight @ g)
    touching, shares, between = {}, {}, {}
    for k, (i, j) in enumerate(zip(small.cluster[pairs.first], small.cluster[pairs.second], strict=True)):
        for one in {int(i), int(j)}:
            touching[one] = touching.get(one, 0.0) + e[k]
            shares[one] = shares.get(one, 0.0) + pairs.weight[k]
        if i != j:
            key = (min(i, j), max(i, j))
            between[key] = between.get(key, 0.0) + e[k]
    whole = {c: sums / (1 - min(0.5, shares[c])) for c, sums in touching.items()}

    def variance(pick: Callable[[np.ndarray], float]) -> float:
        total = sum(pick(sums) ** 2 for sums in whole.values())
        twice = sum(pick(sums) ** 2 for sums in between.values())
        return 0.25 * max(total - twice, 0.5 * total)

    sums = cluster_sums(pairs, c, small.cluster, int(small.cluster.max()) + 1)
    assert sums.variances() == pytest.approx([variance(lambda s, m=m: s[m]) for m in (0, 1)])  # type: ignore[misc]
    assert sums.difference_variances()[0, 1] == pytest.approx(variance(lambda s: s[0] - s[1]))


def test_clusters_are_drawn_whole_and_networks_within_them() -> None:
    cluster, family = np.array([0, 0, 0, 1, 1, 2, 3]), np.array([0, 0, 0, 0, 0, 1, 1])
    draws = draw_networks(cluster, family, 500)
    assert (draws.copies[:, :2].sum(axis=1) == 2).all()
    assert (draws.copies[:, 2:].sum(axis=1) == 2).all()
    for one, size in enumerate([3, 2, 1, 1]):
        assert (draws.times[:, cluster == one].sum(axis=1) == size * draws.copies[:, one]).all()
    assert draws.times.mean(axis=0) == pytest.approx(np.ones(7), abs=0.2)


def test_equal_measures_tie_and_a_better_one_is_told_apart(networks: KnownNetworks) -> None:
    generator = np.random.default_rng(11)
    noisy = networks.truths[0] + 0.1 * generator.normal(size=len(networks))
    readings = np.column_stack([networks.truths[0], noisy, 2 * noisy])
    question = asked(networks, "chance")
    p = paired_p(question.pairs.sign_errors(readings), measured_spread(question, networks, readings))
    assert p[1, 2] == 1.0
    assert p[0, 1] < 0.01
    assert p == pytest.approx(p.T)


def test_the_settings_baseline_never_saw_the_combo_that_it_predicts(networks: KnownNetworks) -> None:
    before = settings_effect(networks)
    assert networks.combo is not None
    own = networks.combo == 7
    truths = networks.truths.copy()
    truths[0, own] += 5.0
    after = settings_effect(replace(networks, truths=truths))
    assert before is not None
    assert after is not None
    assert after[own] == pytest.approx(before[own])
    assert not np.allclose(after[~own], before[~own])


def test_baselines_know_what_they_say_they_know(networks: KnownNetworks) -> None:
    readings = {"truth": networks.truths[0], "coin": np.random.default_rng(12).normal(size=len(networks))}
    found = judge_baselines(networks, readings, resamples=200)
    assert set(found) == set(baseline_readings(networks))
    assert found["baseline_constant"].sign_error == 0.5
    one, other = found["baseline_size"].sign_error, found["baseline_size_reversed"].sign_error
    assert one + other == pytest.approx(1.0)
    assert other < 0.5
    assert found["baseline_settings"].sign_error < 0.15
    assert found["baseline_settings"].surely_beaten_by == ["truth"]
    assert found["baseline_settings"].beaten_by == ["truth"]
    low, high = found["baseline_random"].band or [1.0, 0.0]
    draws = np.random.default_rng(13).normal(size=(len(networks), 400))
    inside = networks.headline.sign_errors(draws)
    assert np.mean((inside >= low) & (inside <= high)) == pytest.approx(0.9, abs=0.05)


def test_too_few_clusters_tell_nothing_apart(networks: KnownNetworks) -> None:
    """Two combos are one environment: it has no spread, and an interval must not say that it is certain."""
    assert networks.combo is not None
    few = networks.take(np.isin(networks.combo, [0, 1]))
    coin = np.random.default_rng(14).normal(size=len(few))
    board = judge(few, {"truth": few.truths[0], "coin": coin}, permutations=FEW, resamples=200)
    answer = board.measures["coin"].questions["chance"]
    assert answer.low is not None
    assert answer.high is not None
    assert answer.high - answer.low > 0.1
    assert [one.rank for one in board.measures.values()] == [1, 1]


def test_a_kept_null_distribution_is_that_of_its_pairs_groups_and_draws() -> None:
    """Kept by what it follows from: anything else has one of its own, and the same gives the same bits."""
    from genbench.scoring import permutations

    generator = np.random.default_rng(0)
    groups = np.repeat([0, 1], 8)
    truths = generator.normal(size=(1, 16))
    pairs, others = (pairs_of_groups(groups, np.zeros(16, dtype=np.int64), t) for t in (truths, -truths))
    pattern = tie_pattern(np.arange(16.0), groups)
    tied = tie_pattern(np.repeat(np.arange(8.0), 2), groups)

    def null(*arguments) -> np.ndarray:
        return null_sign_errors(*arguments)[0].copy()

    first = null(pairs, [pattern], groups, 500, 0)
    assert (null(pairs, [pattern], groups, 500, 0) == first).all()
    assert (null_sign_errors(pairs, [tied, pattern], groups, 500, 0)[1] == first).all()
    for other in ((others, [pattern], groups, 500, 0), (pairs, [tied], groups, 500, 0),
                  (pairs, [pattern], groups, 500, 1)):  # fmt: skip
        assert (null(*other) != first).any()
    permutations._nulls.clear()
    assert (null(pairs, [pattern], groups, 500, 0) == first).all()
