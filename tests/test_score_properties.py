"""What every score must do whatever the table: invariances, and agreement with plain loops."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_table import small_table

from genbench.population.score_record import population_record
from genbench.scoring import (
    NetworkTable,
    cms,
    conditional_independence,
    granulated_kendall,
    pair_counts,
    pgdl_score,
    robust_sign_error,
)
from genbench.scoring.bootstrap import multiplicities
from genbench.scoring.pairs import pairs_within
from genbench.scoring.population import pair_scores

SETTINGS = settings(deadline=None, max_examples=20)


@st.composite
def tables(draw: st.DrawFn, ties: bool = True) -> NetworkTable:
    """Small populations, not all combos complete; with `ties`, readings and gaps repeat."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    seeds = draw(st.integers(2, 4))
    grid = np.array(list(itertools.product(*map(range, sizes), range(seeds))))
    keep = generator.random(len(grid)) < draw(st.sampled_from([1.0, 0.85]))
    keep[:4] = True
    grid = grid[keep]
    gap = 0.05 * grid[:, 0] + generator.uniform(0, 0.3, len(grid))
    readings = np.exp(gap[:, None] * 5 + generator.normal(size=(len(grid), 2)))
    if ties:
        gap, readings = np.round(gap, 2), np.round(readings, 1) + 0.1
    return NetworkTable(
        hyperparameters=tuple(f"h{i}" for i in range(len(sizes))),
        codes=grid[:, :-1],
        levels=tuple(tuple(range(n)) for n in sizes),
        seeds=grid[:, -1],
        targets={"gap": gap},
        measures=("a", "b"),
        readings=readings,
        test_error=np.round(gap, 3),
        test_size=np.full(len(grid), 1000.0),
    )


def sign_error(records: NetworkTable, **options: object) -> pd.DataFrame:
    return robust_sign_error(records, min_n_eff=1.0, resamples=0, **options)  # type: ignore[arg-type]


def kendall(records: NetworkTable) -> pd.DataFrame:
    return granulated_kendall(records, resamples=0)


def independence(records: NetworkTable) -> pd.DataFrame:
    return conditional_independence(records, resamples=0)


def pgdl(records: NetworkTable) -> pd.DataFrame:
    return pgdl_score(records, resamples=0)


def spread(records: NetworkTable) -> pd.DataFrame:
    return cms(records, group_by=("h0",), resamples=0)


def alike(first: pd.DataFrame, second: pd.DataFrame) -> None:
    key = ["measure", "target", "part", "statistic"]
    a, b = (f.set_index(key)[["value", "count"]].sort_index() for f in (first, second))
    assert list(a.index) == list(b.index)
    np.testing.assert_allclose(a["value"], b["value"], atol=1e-9)
    assert (a["count"] == b["count"]).all()


@SETTINGS
@given(tables(), st.sampled_from([np.log, np.sqrt, lambda c: 3 * c + 7, lambda c: c**3]))
def test_increasing_transforms_change_no_ordering_score(records: NetworkTable, transform) -> None:
    changed = replace(records, readings=transform(records.readings))
    for score in (sign_error, kendall, independence):
        alike(score(records), score(changed))


@SETTINGS
@given(tables(), st.floats(1e-3, 1e3))
def test_scaling_changes_no_spread(records: NetworkTable, factor: float) -> None:
    alike(spread(records), spread(replace(records, readings=records.readings * factor)))


@SETTINGS
@given(tables(ties=False))
def test_the_other_sign_gives_one_minus_the_sign_error(records: NetworkTable) -> None:
    turned = replace(records, readings=-records.readings)
    there, back = (sign_error(t, noise_filter=False) for t in (records, turned))
    means = there["statistic"].isin(["mean", "median"])
    np.testing.assert_allclose(back.loc[means, "value"], 1 - there.loc[means, "value"], atol=1e-12)
    assert np.allclose(
        *(f.loc[f["statistic"].isin(["Psi", "psi", "tau"]), "value"] * s for f, s in (
            (kendall(records), 1), (kendall(turned), -1)
        ))
    )  # fmt: skip


@SETTINGS
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(records: NetworkTable, random) -> None:
    order = np.array(random.sample(range(len(records)), len(records)))
    shuffled = replace(
        records,
        codes=records.codes[order],
        seeds=records.seeds[order],
        targets={"gap": records.targets["gap"][order]},
        readings=records.readings[order],
        test_error=records.test_error[order],
        test_size=records.test_size[order],
    )
    for score in (sign_error, kendall, independence, pgdl, spread):
        alike(score(records), score(shuffled))


def sgn(x: float) -> int:
    return int(x > 0) - int(x < 0)


def chi_weight(difference: float, m: float) -> float:
    chi = max(0.0, 1 - 2 * math.exp(-2 * m * (difference / 2) ** 2)) ** 2
    return max(0.0, chi - 0.5)


def loop_pairs(gap: np.ndarray, reading: np.ndarray, drawn: list[int]) -> float:
    """Sign-error over all pairs of the networks `drawn`, which may hold one several times (004 Eq. 7)."""
    wrong = [
        (1 - sgn(gap[i] - gap[j]) * sgn(reading[i] - reading[j])) / 2
        for i, j in itertools.combinations(drawn, 2)
        if i != j and math.isfinite(reading[i]) and math.isfinite(reading[j])
    ]
    return sum(wrong) / len(wrong) if wrong else 0.5


@SETTINGS
@given(tables(), st.sampled_from([0.0, 0.3]), st.integers(0, 100))
def test_pairs_agree_with_a_double_loop(records: NetworkTable, missing: float, seed: int) -> None:
    readings = records.readings.copy()
    readings[np.random.default_rng(seed).random(readings.shape) < missing] = math.nan
    records, gap, n = replace(records, readings=readings), records.targets["gap"], len(records)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=20)
    found = pair_scores(records, resamples=20, seed=seed)
    for place, name in enumerate(records.measures):
        reading = readings[:, place]
        if np.isfinite(reading).sum() < 2:
            assert name not in found
            continue
        score = found[name]
        assert score.value == pytest.approx(loop_pairs(gap, reading, list(range(n))))
        expected = [loop_pairs(gap, reading, list(np.repeat(np.arange(n), times))) for times in draws]
        np.testing.assert_allclose(score.resampled, expected, atol=1e-12)
        low, high = np.quantile(expected, [0.025, 0.975])
        assert score.low == pytest.approx(min(low, score.value))
        assert score.high == pytest.approx(max(high, score.value))
        assert score.dropped == np.isnan(reading).sum()
        assert (score.environments, score.available, score.scores, score.worst) == (0, 0, [], [])


def test_pairs_of_a_perfect_a_wrong_and_a_constant_measure() -> None:
    gap = np.array([0.1, 0.2, 0.3, 0.4])
    records = NetworkTable(
        ("h",), np.arange(4)[:, None], (tuple(range(4)),), np.zeros(4, dtype=np.int64), {"gap": gap},
        ("right", "wrong", "flat"), np.stack([gap, -gap, np.ones(4)], axis=1),
    )  # fmt: skip
    found = pair_scores(records)
    assert [found[name].value for name in records.measures] == [0.0, 1.0, 0.5]
    assert not found["right"].ties_with(found["wrong"])
    assert found["flat"].low == found["flat"].high == 0.5
    assert population_record(found["right"]).value == 0.0


def loop_sign_errors(records: NetworkTable, reading: np.ndarray, w: np.ndarray) -> dict[tuple, float]:
    """Sign-error of each environment with a positive weight, by a loop over pairs; w are multiplicities."""
    sums: dict[tuple, list[float]] = defaultdict(lambda: [0.0, 0.0])
    gap = records.targets["gap"]
    for i, j in itertools.combinations(range(len(records)), 2):
        if (records.codes[i] != records.codes[j]).sum() == 1:
            kappa = w[i] * w[j] * chi_weight(gap[i] - gap[j], records.test_size[i])
            key = tuple(sorted((tuple(records.codes[i]), tuple(records.codes[j]))))
            sums[key][0] += kappa
            sums[key][1] += kappa * 0.5 * (1 - sgn(reading[i] - reading[j]) * sgn(gap[i] - gap[j]))
    return {key: wrong / weight for key, (weight, wrong) in sums.items() if weight > 0}


@SETTINGS
@given(tables())
def test_sign_error_is_what_a_loop_over_pairs_gives(records: NetworkTable) -> None:
    found = sign_error(records).set_index(["measure", "part", "statistic"])["value"]
    errors = list(loop_sign_errors(records, records.readings[:, 0], np.ones(len(records))).values())
    if errors:
        assert found["a", "all", "mean"] == pytest.approx(np.mean(errors), abs=1e-12)
        assert found["a", "all", "max"] == pytest.approx(max(errors), abs=1e-12)
        assert found["a", "all", "p90"] == pytest.approx(np.quantile(errors, 0.9), abs=1e-12)
    else:
        assert np.isnan(found["a", "all", "mean"])


def loop_k(records: NetworkTable, reading: np.ndarray, w: np.ndarray) -> float:
    """K by counting ordered pairs of distinct runs, each w_i·w_j times."""
    gap, rows = records.targets["gap"], range(len(records))
    values = []
    for size in range(3):
        for axes in itertools.combinations(range(records.codes.shape[1]), size):
            joint: Counter = Counter()
            for i, j in itertools.permutations(rows, 2):
                group = (tuple(records.codes[i, list(axes)]), tuple(records.codes[j, list(axes)]))
                joint[sgn(reading[i] - reading[j]), sgn(gap[i] - gap[j]), group] += w[i] * w[j]
            total = sum(joint.values())
            by_gap, by_measure, by_group = Counter(), Counter(), Counter()
            for (c, g, u), n in joint.items():
                by_gap[g, u] += n
                by_measure[c, u] += n
                by_group[u] += n
            entropy = -sum(n / total * math.log(n / by_group[u]) for (_, u), n in by_gap.items() if n)
            information = sum(
                n / total * math.log(n * by_group[u] / (by_measure[c, u] * by_gap[g, u]))
                for (c, g, u), n in joint.items()
                if n
            )
            if entropy > 1e-12:
                values.append(information / entropy)
    return min(values)


@settings(deadline=None, max_examples=6)
@given(tables())
def test_k_is_what_counting_pairs_gives(records: NetworkTable) -> None:
    found = conditional_independence(records, resamples=0).set_index(["measure", "statistic", "part"])
    expected = loop_k(records, records.readings[:, 0], np.ones(len(records)))
    assert found.loc[("a", "K", "all"), "value"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("few", [0.0, 1.0])
@pytest.mark.parametrize("exact", [2**12, 0])
def test_k_is_the_same_however_ties_and_sums_are_kept(
    monkeypatch: pytest.MonkeyPatch, few: float, exact: int
) -> None:
    """Ties listed or visited, both signs in one sum or in two: every resample against the loop."""
    generator = np.random.default_rng(9)
    grid = np.array(list(itertools.product(range(2), range(2), range(2), range(2), range(3))))
    grid = grid[generator.random(len(grid)) < 0.8]
    gap = np.round(0.1 * grid[:, 0] + generator.uniform(0, 0.3, len(grid)), 2)
    readings = np.round(np.column_stack([gap + 0.3 * generator.random(len(grid)), gap[::-1]]), 1)
    records = NetworkTable(
        ("h0", "h1", "h2", "h3"), grid[:, :4], ((0, 1),) * 4, grid[:, 4], {"gap": gap}, ("a", "b"), readings
    )
    monkeypatch.setattr(pair_counts, "_FEW", few)
    monkeypatch.setattr(pair_counts, "_EXACT", [(np.float32, exact), (np.float64, 0)])
    drawn = multiplicities(records, 4, seed=0)
    found = conditional_independence(records, resamples=4)
    for place, name in enumerate(records.measures):
        values = [loop_k(records, readings[:, place], w.astype(int)) for w in drawn]
        row = found[(found["measure"] == name) & (found["statistic"] == "K")].iloc[0]
        value = loop_k(records, readings[:, place], np.ones(len(records)))
        assert row["value"] == pytest.approx(value, abs=1e-9)
        assert row["low"] == pytest.approx(min(value, np.quantile(values, 0.025)), abs=1e-9)
        assert row["high"] == pytest.approx(max(value, np.quantile(values, 0.975)), abs=1e-9)
    alone = conditional_independence(records.select(["b"]), resamples=4)
    mine = found[found["measure"] == "b"].reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, alone)


def loop_pgdl(records: NetworkTable, reading: np.ndarray) -> float:
    """PGDL by counting ordered pairs of combos, one with itself included."""
    combos = sorted({tuple(row) for row in records.codes})
    rows = [np.flatnonzero((records.codes == combo).all(axis=1)) for combo in combos]
    c, g = ([round(float(v[r].mean()), 12) for r in rows] for v in (reading, records.targets["gap"]))
    values = []
    varying = [axis for axis in range(records.codes.shape[1]) if len(set(records.codes[:, axis])) > 1]
    for axes in itertools.combinations(varying, 2):
        groups: dict = defaultdict(Counter)
        for i, j in itertools.product(range(len(combos)), repeat=2):
            group = tuple((combos[i][a], combos[j][a]) for a in axes)
            groups[group][c[i] > c[j], g[i] > g[j]] += 1
        information = entropy = 0.0
        for joint in groups.values():
            total = sum(joint.values())
            by_c, by_g = Counter(), Counter()
            for (v_c, v_g), n in joint.items():
                by_c[v_c] += n
                by_g[v_g] += n
            entropy -= sum(n / total * math.log(n / total) for n in by_g.values())
            information += sum(
                n / total * math.log(n * total / (by_c[v_c] * by_g[v_g])) for (v_c, v_g), n in joint.items()
            )
        if entropy > 1e-12:
            values.append(100 * information / entropy)
    return min(values, default=math.nan)


@SETTINGS
@given(tables(), st.booleans())
def test_pgdl_is_what_counting_pairs_gives(records: NetworkTable, more: bool) -> None:
    if more:
        # A fourth hyperparameter, so that cells are made of several combos.
        extra = np.arange(len(records)) % 2
        records = replace(
            records, hyperparameters=(*records.hyperparameters, "x"), levels=(*records.levels, (0, 1)),
            codes=np.column_stack([records.codes, extra]),
        )  # fmt: skip
    found = pgdl(records).set_index(["measure", "statistic"])
    expected = [loop_pgdl(records, column) for column in records.readings.T]
    np.testing.assert_allclose([found.loc[(m, "pgdl"), "value"] for m in "ab"], expected, atol=1e-9)


def loop_psi(records: NetworkTable, reading: np.ndarray, axis: int, w: np.ndarray) -> float:
    """psi of one axis; a pair weighs w_i·w_j over the number of pairs of its group."""
    groups = defaultdict(list)
    for row in range(len(records)):
        others = (*np.delete(records.codes[row], axis), records.seeds[row])
        groups[others].append(row)
    above = below = 0.0
    gap = records.targets["gap"]
    for members in groups.values():
        pairs = list(itertools.combinations(members, 2))
        for i, j in pairs:
            above += w[i] * w[j] * sgn(reading[i] - reading[j]) * sgn(gap[i] - gap[j]) / len(pairs)
            below += w[i] * w[j] / len(pairs)
    return above / below if below else math.nan


@pytest.fixture(scope="module")
def small() -> NetworkTable:
    return small_table()


def test_multiplicities_keep_the_size_of_every_combo(small: NetworkTable) -> None:
    drawn = multiplicities(small, 200, seed=1)
    for combo in range(8):
        assert (drawn[:, small.combo == combo].sum(axis=1) == 4).all()
    # Drawn with replacement: a run is missing with probability (3/4)^4.
    assert (drawn == 0).mean() == pytest.approx(0.75**4, abs=0.03)
    assert drawn.mean(axis=0) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("score", ["sign_error", "K", "psi", "pgdl", "cms"])
def test_intervals_are_quantiles_of_loops_over_resampled_runs(small: NetworkTable, score: str) -> None:
    """Every resample scored by a plain loop over weighted pairs, then the 2.5th and 97.5th percentile."""
    resamples = 20
    drawn = multiplicities(small, resamples, seed=0)
    reading = small.readings[:, 0]
    if score == "sign_error":
        table = robust_sign_error(small, min_n_eff=1.0, resamples=resamples)
        kept = loop_sign_errors(small, reading, np.ones(len(small)))
        values = [
            np.mean([e for key, e in loop_sign_errors(small, reading, w).items() if key in kept])
            for w in drawn
        ]
        row = table[(table["part"] == "all") & (table["statistic"] == "mean")]
    elif score == "K":
        table = conditional_independence(small, resamples=resamples)
        values = [loop_k(small, reading, w) for w in drawn]
        row = table[table["statistic"] == "K"]
    elif score == "psi":
        table = granulated_kendall(small, resamples=resamples)
        values = [loop_psi(small, reading, 1, w) for w in drawn]
        row = table[(table["part"] == "depth") & (table["statistic"] == "psi")]
    elif score == "pgdl":
        table = pgdl_score(small, resamples=resamples)
        values = [repeated_score(pgdl_score, small, w, "pgdl") for w in drawn]
        row = table[table["statistic"] == "pgdl"]
    else:
        table = cms(small, deltas=[0.05], resamples=resamples)
        values = [loop_cms(small, reading, 0.05, w) for w in drawn]
        row = table[(table["part"] == "delta=0.05") & (table["statistic"] == "CMS")]
    low, high = np.quantile(values, [0.025, 0.975])
    assert row["resamples"].item() == resamples
    assert row["low"].item() == pytest.approx(low, abs=1e-6)
    assert row["high"].item() == pytest.approx(high, abs=1e-6)


def repeated_score(score, records: NetworkTable, w: np.ndarray, statistic: str) -> float:
    """The score of a table in which rows really are repeated; for scores of means over seeds."""
    rows = np.repeat(np.arange(len(records)), w.astype(int))
    table = replace(
        records,
        codes=records.codes[rows],
        seeds=np.arange(len(rows)),
        targets={"gap": records.targets["gap"][rows]},
        readings=records.readings[rows],
        test_error=records.test_error[rows],
        test_size=records.test_size[rows],
    )
    frame = score(table, resamples=0)
    return float(frame.loc[frame["statistic"] == statistic, "value"].item())


def loop_cms(records: NetworkTable, reading: np.ndarray, delta: float, w: np.ndarray) -> float:
    spreads: list[float] = []
    for i, j in itertools.combinations(range(len(records)), 2):
        if round(abs(records.test_error[i] - records.test_error[j]) * 1000) <= delta * 1000:
            spreads += [abs(math.log(reading[i]) - math.log(reading[j]))] * int(w[i] * w[j])
    return float(np.median(spreads))


@given(st.lists(st.integers(0, 4), max_size=30))
def test_pairs_within_are_all_pairs_of_equal_labels(labels: list[int]) -> None:
    first, second = pairs_within(labels)
    found = sorted(tuple(sorted(p)) for p in zip(first.tolist(), second.tolist(), strict=True))
    pairs = itertools.combinations(range(len(labels)), 2)
    assert found == [(i, j) for i, j in pairs if labels[i] == labels[j]]
