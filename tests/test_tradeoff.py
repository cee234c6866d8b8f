"""The trade-off point against golden values and an independent brute force; what happens without GEKKO."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

import genbench.cli
from genbench.errors import UserError
from genbench.testbed.cube import STATISTICS, make_cube, marginals, read_cube, write_cube
from genbench.testbed.tradeoff import SCALES, TradeOff, trade_off

FOLDER = Path(__file__).parent / "golden" / "scoring"
CSV = FOLDER / "cube.csv"

# GEKKO 1.3.3 under numpy 2; nothing a user sees.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

GOLDEN = json.loads((FOLDER / "golden_tradeoff.json").read_text())


@pytest.fixture(scope="module")
def cube():
    return read_cube(CSV)


class Reference:
    """The objective of SPEC.md on (zero_shot, ssim, weights), from SciPy's interpolator; c by brute force."""

    def __init__(self, cube, scales: str, weights=(1, 1, 1)) -> None:
        self.axes = [cube[axis].values for axis in ("zero_shot", "ssim", "weights")]
        total = sum(cube[name].values for name in STATISTICS)
        raw = [1 - self.axes[0], self.axes[1], self.axes[2]]
        ends = [(v.min(), v.max()) for v in raw]
        scaled = [scales == "normalised", scales == "normalised", True]
        if scales == "normalised":
            total = (total - total.min()) / (total.max() - total.min())
            weights = np.array(weights) / sum(weights)
        self.sum = RegularGridInterpolator(self.axes, total)
        self.prices = [
            self.price(end, scale, weight, scales == "released")
            for end, scale, weight in zip(ends, scaled, weights, strict=True)
        ]

    @staticmethod
    def price(end, scaled: bool, weight: float, walls: bool) -> Callable[[np.ndarray], np.ndarray]:
        low, high = (0.0, 1.0) if scaled else end
        grid = np.linspace(low, high, 20001)
        wall = 0.5 * (np.exp(-10 * (grid - low)) + np.exp(-10 * (high - grid))) if walls else 0 * grid
        # The cheapest c at or above each v of the grid.
        bound = np.minimum.accumulate((weight * grid**2 + wall)[::-1])[::-1]

        def of(v: np.ndarray) -> np.ndarray:
            v = (v - end[0]) / (end[1] - end[0]) if scaled else v
            return np.interp(v, grid, bound + wall)

        return of

    def __call__(self, zero_shot, ssim, weights) -> np.ndarray:
        zero_shot, ssim, weights = map(np.asarray, (zero_shot, ssim, weights))
        values = [1 - zero_shot, ssim, weights]
        prices = sum(price(v) for price, v in zip(self.prices, values, strict=True))
        return self.sum(np.stack(np.broadcast_arrays(zero_shot, ssim, weights), axis=-1)) + prices

    def minimum(self, points: int) -> float:
        """Least value on an even grid over each axis, grid levels of the cube included."""
        levels = [np.union1d(np.linspace(a[0], a[-1], points), a) for a in self.axes]
        return float(self(*np.meshgrid(*levels, indexing="ij", sparse=True)).min())


def gap_to_brute_force(cube, result: TradeOff, points: int) -> float:
    """How far the result lies above an independent scan; checks that its objective is what it says."""
    reference = Reference(cube, result.scales, result.weights)
    value = float(reference(result.zero_shot, result.ssim, result.model_size).item())
    assert value == pytest.approx(result.objective, abs=1e-6)
    return (value - reference.minimum(points)) / abs(value)


@pytest.mark.parametrize("scales", SCALES)
def test_agrees_with_the_golden_values(cube, scales) -> None:
    golden = GOLDEN[scales]
    result = trade_off(cube, scales)
    assert result.objective == pytest.approx(golden["objective"], abs=1e-6)
    assert result.ssim == pytest.approx(golden["ssim"], abs=1e-3)
    assert result.zero_shot == pytest.approx(golden["zero_shot"], abs=1e-3)
    assert result.model_size == pytest.approx(golden["weights"], rel=1e-3)
    assert (result.solver, result.reason) == ("GEKKO IPOPT", "")
    assert result.certified
    assert result.scanned_points > 1_000_000
    assert gap_to_brute_force(cube, result, points=90) <= 1e-3


def random_cube(seed: int, noise: float):
    """A cube of random size, levels and shape: sigmoids of random quadratic forms and waves."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 7, size=3)
    zero_shot = np.sort(generator.choice(51, sizes[0], replace=False)) / 100
    ssim = np.sort(generator.choice(np.arange(40, 101), sizes[1], replace=False)) / 100
    weights = np.sort(generator.choice(np.arange(1, 400), sizes[2], replace=False)) * 1e6
    x = np.stack(np.meshgrid(2 * zero_shot, -ssim, -np.log(weights / 1e8), indexing="ij"), axis=-1)
    statistics = {}
    for name in STATISTICS:
        slope, wave = np.abs(generator.normal(size=3)), generator.normal(size=3)
        form = generator.normal(size=(3, 3))
        height = (
            x @ slope + np.einsum("...i,ij,...j", x, form, x) / 2 + generator.normal() * np.sin(3 * x @ wave)
        )
        shape = 1 / (1 + np.exp(-height)) * (0.3 if name.endswith("sd") else 1)
        statistics[name] = shape + noise * generator.normal(size=shape.shape)
    return make_cube(statistics, zero_shot=zero_shot, ssim=ssim, weights=weights)


def worst_gap(seeds: range, noise: float) -> float:
    gaps = []
    for seed in seeds:
        cube = random_cube(seed, noise)
        weights = (
            tuple(np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 3)) if seed % 4 == 0 else (1, 1, 1)
        )
        result = trade_off(cube, SCALES[seed % 3], weights)
        assert result.certified
        assert result.reason == ""
        gaps.append(gap_to_brute_force(cube, result, points=48))
    return max(gaps)


# In four parts: whichever worker is free takes the next.
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_within_a_thousandth_of_brute_force_on_200_smooth_cubes(first: int) -> None:
    gap = worst_gap(range(first, first + 50), noise=0.0)
    print(f"worst gap {gap:.2e}")
    assert gap <= 1e-3


@pytest.mark.slow
def test_within_a_thousandth_of_brute_force_on_noisy_cubes() -> None:
    gap = worst_gap(range(1000, 1040), noise=0.15)
    print(f"worst gap {gap:.2e}")
    assert gap <= 1e-3


def test_a_linear_cube_has_its_optimum_where_calculus_puts_it() -> None:
    # Ŝ = ½(1 − ŝ) + ½(1 − ŵ) with u free: û = 0, and ŝ²/3 − ŝ/2, ŵ²/3 − ŵ/2 are least at ¾.
    zero_shot, ssim, weights = np.array([0.0, 0.5]), np.array([0.6, 0.8, 1.0]), np.array([1e7, 2e7, 5e7])
    s, w = (ssim - 0.6) / 0.4, (weights - 1e7) / 4e7
    total = 0.5 * (1 - s[None, :, None]) + 0.5 * (1 - w[None, None, :]) + 0 * zero_shot[:, None, None]
    cube = make_cube(dict.fromkeys(STATISTICS, total / 6), zero_shot=zero_shot, ssim=ssim, weights=weights)
    result = trade_off(cube)
    assert result.ssim == pytest.approx(0.6 + 0.4 * 0.75, abs=1e-6)
    assert result.model_size == pytest.approx(1e7 + 4e7 * 0.75, rel=1e-6)
    # û² is flat at its end, so the point is softer here than the objective.
    assert result.zero_shot == pytest.approx(0.5, abs=1e-3)
    assert result.objective == pytest.approx(1 - 2 * 3 / 16, abs=1e-9)
    # Three times the weight on SSIM: 3ŝ²/5 − ŝ/2 is least at 5/12; scaling all weights changes nothing.
    heavier = trade_off(cube, weights=(1, 3, 1))
    assert heavier.ssim == pytest.approx(0.6 + 0.4 * 5 / 12, abs=1e-6)
    assert trade_off(cube, weights=(3, 9, 3)).objective == pytest.approx(heavier.objective, abs=1e-9)


def test_bounds_are_means_of_the_three_marginals_at_the_point(cube) -> None:
    result = trade_off(cube)
    for statistic, bound, readings in (
        ("error_mean", result.generalization_bound, result.generalization),
        ("kappa_mean", result.diversity_bound, result.diversity),
    ):
        curves = {dim: data[statistic].swap_dims(model="weights") if dim == "model" else data[statistic]
                  for dim, data in marginals(cube).items()}  # fmt: skip
        expected = [
            float(curves["zero_shot"].interp(zero_shot=result.zero_shot)),
            float(curves["ssim"].interp(ssim=result.ssim)),
            float(curves["model"].interp(weights=result.model_size)),
        ]
        assert list(readings.values()) == pytest.approx(expected, abs=1e-12)
        assert bound == pytest.approx(np.mean(expected), abs=1e-12)


def test_a_constant_cube_still_has_a_point() -> None:
    flat = make_cube(
        {name: np.full((2, 2, 2), 0.5) for name in STATISTICS},
        zero_shot=[0, 0.5], ssim=[0.6, 1], weights=[1e6, 2e6],
    )  # fmt: skip
    result = trade_off(flat)
    assert (result.ssim, result.zero_shot) == pytest.approx((0.6, 0.5), abs=1e-3)
    assert result.objective == pytest.approx(0, abs=1e-6)
    assert result.certified


def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gekko", None)


def without_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(8, "Exec format error")

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.parametrize("break_gekko", [without_module, without_binary])
@pytest.mark.parametrize("scales", SCALES)
def test_scipy_solves_where_gekko_cannot_run_and_says_why(cube, scales, break_gekko, monkeypatch) -> None:
    break_gekko(monkeypatch)
    result = trade_off(cube, scales)
    assert result.solver == "SciPy L-BFGS-B"
    assert result.reason.startswith("GEKKO cannot run here (")
    assert ("Exec format error" in result.reason) == (break_gekko is without_binary)
    assert result.certified
    golden = GOLDEN[scales]
    assert result.objective == pytest.approx(golden["objective"], abs=1e-6)
    assert (result.ssim, result.zero_shot) == pytest.approx((golden["ssim"], golden["zero_shot"]), abs=1e-3)
    assert result.model_size == pytest.approx(golden["weights"], rel=1e-3)


def test_a_solver_that_claims_success_far_from_the_optimum_is_not_believed(cube, monkeypatch) -> None:
    import gekko

    def lie(model, **_: object) -> None:
        for variable in model._variables:
            variable.value = [0.0]
        model.options.APPSTATUS = (True, 1)  # the way GEKKO itself writes an output

    monkeypatch.setattr(gekko.GEKKO, "solve", lie)
    result = trade_off(cube)
    assert "above the brute-force scan" in result.reason
    assert result.solver == "SciPy L-BFGS-B"
    assert result.certified
    assert result.objective == pytest.approx(GOLDEN["normalised"]["objective"], abs=1e-6)


def test_a_solver_that_finds_nothing_is_named(cube, monkeypatch) -> None:
    import gekko

    def fail(model, **_: object) -> None:
        raise Exception(" @error: Solution Not Found\n")  # as GEKKO words it

    monkeypatch.setattr(gekko.GEKKO, "solve", fail)
    result = trade_off(cube)
    assert result.reason == "GEKKO found no solution (Exception: @error: Solution Not Found)"
    assert result.objective == pytest.approx(GOLDEN["normalised"]["objective"], abs=1e-6)


@pytest.mark.parametrize("break_gekko", [None, without_binary])
def test_no_temporary_folder_is_left(cube, break_gekko, monkeypatch, tmp_path, capfd) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if break_gekko:
        break_gekko(monkeypatch)
    trade_off(cube)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


def test_what_cannot_be_solved_is_refused_in_one_sentence(cube) -> None:
    with pytest.raises(UserError, match="one level of weights"):
        trade_off(cube.isel(model=[0]))
    with pytest.raises(UserError, match="no scales 'raw'"):
        trade_off(cube, "raw")
    for weights in ((0, 0, 0), (1, -1, 1), (1, float("nan"), 1)):
        with pytest.raises(UserError, match="three numbers of at least 0"):
            trade_off(cube, weights=weights)


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """`genbench tradeoff ...` in this process: exit code, standard output, standard error."""
    monkeypatch.setitem(genbench.cli._COMMANDS, "tradeoff", "genbench.cli.tradeoff:tradeoff")

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            genbench.cli.main(["tradeoff", *map(str, arguments)])
        return (caught.value.code or 0, *capsys.readouterr())

    return run


def test_the_command_prints_the_papers_table(command) -> None:
    code, out, err = command("--cube", CSV)
    assert (code, err) == (0, "")
    rows = dict(line.split("\t") for line in out.splitlines()[2:])
    assert list(rows)[:5] == [
        "generalization bound", "diversity bound", "SSIM (lower bound)", "zero-shot (upper bound)",
        "model size",
    ]  # fmt: skip
    assert rows["SSIM (lower bound)"] == f"{GOLDEN['normalised']['ssim']:.3f}"
    assert rows["zero-shot (upper bound)"] == f"{GOLDEN['normalised']['zero_shot']:.3f}"
    assert rows["model size"] == "19M"


def test_the_command_prints_json_of_a_netcdf_cube(command, cube, tmp_path) -> None:
    path = tmp_path / "mine.nc"
    write_cube(cube.assign_attrs(family="EfficientNet"), path)
    code, out, _ = command("--cube", path, "--scales", "squared", "--weights", "1, 1, 1", "--json")
    (record,) = json.loads(out)
    assert code == 0
    assert record["family"] == "EfficientNet"
    assert record["objective"] == pytest.approx(GOLDEN["squared"]["objective"], abs=1e-6)
    assert record["certified"] is True


def test_the_command_says_when_scipy_solved(command, monkeypatch) -> None:
    without_module(monkeypatch)
    code, out, err = command("--cube", CSV)
    assert code == 0
    assert "SciPy" in out
    assert "because GEKKO cannot run here" in err


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--cube", "absent.csv"], "no file absent.csv"),
        (["--cube", CSV, "--weights", "1,2"], "is not three numbers"),
        (["--cube", CSV, "--weights", "a,b,c"], "is not three numbers"),
        (["--cube", CSV, "--weights", "0,0,0"], "not all 0"),
        (["--cube", CSV, "--scales", "raw"], "'raw' is not one of"),
        (["--cube", CSV, "--suite", "mini"], "--cube"),
    ],
)
def test_wrong_words_give_one_sentence_and_exit_2(command, arguments, fragment) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert fragment in err
    assert err.count("\n") == 1


def test_the_command_imports_no_torch() -> None:
    code = (
        "import sys; from genbench.cli.tradeoff import tradeoff; "
        f"tradeoff(['--cube', {str(CSV)!r}], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert result.returncode == 0
