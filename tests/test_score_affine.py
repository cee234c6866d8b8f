"""The affine oracle is optimal: certificate, a second solver, closed forms; the families of 001 B.2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from genbench.scoring import NetworkTable, affine_oracle, read_table
from genbench.scoring.minimax import Quadratics, solve_minimax

TABLE = Path(__file__).parent / "golden" / "scoring" / "records.csv"


def random_problems(seed: int, batch: int, environments: int, runs: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(batch, environments, 1)) + 0.3 * generator.normal(
        size=(batch, environments, runs)
    )
    slope = generator.normal(size=(batch, 1, 1))
    return x, slope * x + generator.normal(size=(batch, environments, 1)) + 0.2 * generator.normal(
        size=x.shape
    )


def quadratics(x: np.ndarray, y: np.ndarray) -> Quadratics:
    return Quadratics(*(m.mean(axis=-1) for m in (x * x, x, x * y, y, y * y)))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), environments=st.integers(1, 60))
def test_the_bound_meets_the_value(seed: int, environments: int) -> None:
    x, y = random_problems(seed, 8, environments)
    solved = solve_minimax(quadratics(x, y))
    # The value is one that (a, b) really has, from the runs themselves.
    errors = np.square(solved.a[:, None, None] * x + solved.b[:, None, None] - y).mean(axis=-1)
    np.testing.assert_allclose(errors.max(axis=1), solved.value, rtol=1e-9, atol=1e-12)
    assert (solved.a >= 0).all()
    assert (np.abs(solved.gap) <= 1e-10 * np.maximum(1, solved.value)).all()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_no_point_nearby_is_better(seed: int) -> None:
    x, y = random_problems(seed, 1, 12)
    solved = solve_minimax(quadratics(x, y))
    generator = np.random.default_rng(seed)
    steps = generator.normal(size=(2000, 2)) * 10.0 ** generator.uniform(-6, 0, size=(2000, 1))
    a, b = np.maximum(solved.a + steps[:, 0], 0), solved.b + steps[:, 1]
    others = np.square(a[:, None, None] * x[0] + b[:, None, None] - y[0]).mean(axis=-1).max(axis=1)
    assert others.min() >= solved.value[0] - 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_a_second_solver_agrees(seed: int) -> None:
    x, y = random_problems(seed, 1, 20)
    solved = solve_minimax(quadratics(x, y))

    def errors(z: np.ndarray) -> np.ndarray:
        return np.square(z[0] * x[0] + z[1] - y[0]).mean(axis=-1)

    other = minimize(
        lambda z: z[2], [0.5, 0.0, 100.0], method="SLSQP", bounds=[(0, None), (None, None), (None, None)],
        constraints={"type": "ineq", "fun": lambda z: z[2] - errors(z)},
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert other.success
    assert solved.value[0] == pytest.approx(errors(other.x).max(), rel=1e-6)
    assert solved.value[0] <= errors(other.x).max() + 1e-9


def test_one_environment_is_least_squares() -> None:
    x = np.array([[[0.0, 1.0, 2.0, 4.0]]])
    y = 3 * x + 1 + np.array([0.5, -0.5, -0.5, 0.5])
    slope, intercept = np.polyfit(x[0, 0], y[0, 0], 1)
    solved = solve_minimax(quadratics(x, y))
    assert (solved.a[0], solved.b[0]) == (pytest.approx(slope, abs=1e-6), pytest.approx(intercept, abs=1e-6))


def test_every_golden_fit_carries_its_certificate() -> None:
    table = affine_oracle(read_table(TABLE).complete(), resamples=0)
    gaps = table[table["statistic"] == "duality_gap"]
    assert len(gaps) == 3 * 25
    assert gaps["value"].abs().max() <= 1e-10
    robust = table[table["statistic"] == "robust_rmse"].set_index(["measure", "part"])["value"]
    counts = table.drop_duplicates("part").set_index("part")["count"]
    # 3·3·3·2·2 combos; one hyperparameter free: 36 + 36 + 36 + 54 + 54; one fixed: 3 + 3 + 3 + 2 + 2.
    assert counts.to_dict() == {"combos": 108, "one_varies": 216, "one_fixed": 13}
    for measure in table["measure"].unique():
        # An affine fit can always ignore its measure, and pooling combos can only lower the worst mean.
        for family in counts.index:
            assert robust[measure, family] <= robust["bias only", family] + 1e-9
        assert robust[measure, "one_varies"] <= robust[measure, "combos"] + 1e-9
        assert robust[measure, "one_fixed"] <= robust[measure, "one_varies"] + 1e-9


def test_a_weaker_family_is_solved_over_its_own_environments() -> None:
    """Two hyperparameters, three values each: every family's worst mean squared error, by hand."""
    generator = np.random.default_rng(3)
    codes = np.array([[i, j] for i in range(3) for j in range(3) for _ in range(4)])
    reading = generator.normal(size=len(codes))
    gap = 0.1 * reading + 0.05 * codes[:, 0] + 0.02 * generator.normal(size=len(codes))
    records = NetworkTable(
        hyperparameters=("lr", "depth"),
        codes=codes,
        levels=((0, 1, 2), (0, 1, 2)),
        seeds=np.tile(np.arange(4), 9),
        targets={"gap": gap},
        measures=("m",),
        readings=reading[:, None],
    )
    table = affine_oracle(records, resamples=0)
    found = table[table["measure"] == "m"].set_index(["part", "statistic"])["value"]
    standard = (reading - reading.mean()) / reading.std()
    members = {
        "combos": [(codes == [i, j]).all(axis=1) for i in range(3) for j in range(3)],
        "one_varies": [codes[:, k] == i for k in range(2) for i in range(3)],
        "one_fixed": [codes[:, k] == i for k in range(2) for i in range(3)],
    }
    for family, environments in members.items():
        a, b = found[family, "a"], found[family, "b"]
        errors = [np.mean(np.square(a * standard[rows] + b - gap[rows])) for rows in environments]
        assert np.sqrt(max(errors)) == pytest.approx(found[family, "robust_rmse"], abs=1e-10)
        assert np.mean(np.sqrt(errors)) == pytest.approx(found[family, "mean_rmse"], abs=1e-10)
