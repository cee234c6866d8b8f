"""The cube: statistics, marginals and slices against golden values and numpy; files, right and wrong."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kappa import GOLDEN as KAPPA
from test_kappa import INPUT, labels_of

from genbench.errors import UserError
from genbench.testbed.cube import (
    COLUMNS,
    STATISTICS,
    class_error,
    class_statistics,
    make_cube,
    marginals,
    read_cube,
    slices,
    summaries,
    write_cube,
)

FOLDER = Path(__file__).parent / "golden" / "scoring"
CSV = FOLDER / "cube.csv"
GOLDEN = json.loads((FOLDER / "golden_cube.json").read_text())

GOLDEN_NAMES = {
    "M_g": "error_mean",
    "SD_g": "error_sd",
    "P10_g": "error_p10",
    "M_k": "kappa_mean",
    "SD_k": "kappa_sd",
    "P10_k": "kappa_p10",
}


@pytest.fixture(scope="module")
def cube():
    return read_cube(CSV)


@pytest.mark.parametrize("name", INPUT["confusion"])
def test_statistics_of_classes_agree_with_the_golden_values(name) -> None:
    golden = KAPPA["code_variant"][name]
    truth, prediction = labels_of(INPUT["confusion"][name])
    error = class_error(truth, prediction, len(INPUT["confusion"][name]))
    np.testing.assert_allclose(error[np.isfinite(error)], golden["error_of_classes_with_samples"], atol=1e-9)
    # Classes without images take no part in the statistics.
    found = class_statistics(error, golden["one_minus_kappa"])
    expected = {**golden["error_stats"], **golden["kappa_stats"]}
    for letter, prefix in (("g", "error"), ("k", "kappa")):
        assert found[f"{prefix}_mean"] == pytest.approx(expected[f"M_{letter}"], abs=1e-9)
        assert found[f"{prefix}_sd"] == pytest.approx(expected[f"SD_{letter}_ddof0"], abs=1e-9)
        assert found[f"{prefix}_p10"] == pytest.approx(expected[f"P10_{letter}"], abs=1e-9)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.booleans())
def test_statistics_of_classes_agree_with_numpy(seed, classes, some_absent) -> None:
    generator = np.random.default_rng(seed)
    values = generator.random((2, 3, 4, classes))
    if some_absent:
        values[..., : generator.integers(0, classes)] = np.nan
    found = class_statistics(values[0], values[1])
    assert tuple(found) == STATISTICS
    for name, x in (("error", values[0]), ("kappa", values[1])):
        np.testing.assert_allclose(found[f"{name}_mean"], np.nanmean(x, axis=-1), atol=1e-12)
        np.testing.assert_allclose(found[f"{name}_sd"], np.nanstd(x, axis=-1), atol=1e-12)
        np.testing.assert_allclose(found[f"{name}_p10"], np.nanpercentile(x, 10, axis=-1), atol=1e-12)


@pytest.mark.parametrize(("golden", "dim"), [("ssim", "ssim"), ("zeroshot", "zero_shot"), ("size", "model")])
@pytest.mark.parametrize("statistic", GOLDEN_NAMES)
def test_marginals_agree_with_the_golden_cube(cube, golden, dim, statistic) -> None:
    expected = GOLDEN["eq5"][golden][statistic]
    found = marginals(cube)[dim][GOLDEN_NAMES[statistic]]
    np.testing.assert_allclose(found, expected["mean"], rtol=0, atol=1e-9)
    levels = found["weights"] / 1e6 if dim == "model" else found[dim]
    np.testing.assert_allclose(levels, expected["at"], rtol=1e-12)


@pytest.mark.parametrize(("golden", "name"), [("robust", "robustness"), ("zeroshot", "zero_shot")])
@pytest.mark.parametrize("statistic", ["M_g", "SD_g", "P10_g"])
def test_slices_agree_with_the_golden_cube(cube, golden, name, statistic) -> None:
    expected = GOLDEN["eq6"][golden][statistic]
    found = slices(cube)[name][GOLDEN_NAMES[statistic]]
    np.testing.assert_allclose(found, expected["mean"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["weights"] / 1e6, expected["size"], rtol=1e-12)


def test_slices_need_their_levels(cube) -> None:
    with pytest.raises(UserError, match="no level zero_shot = 0"):
        slices(cube.isel(zero_shot=slice(1, None)))
    with pytest.raises(UserError, match="no level ssim = 1"):
        slices(cube.isel(ssim=slice(None, -1)))


def test_every_row_of_a_file_lands_at_its_grid_point(cube) -> None:
    with CSV.open() as file:
        rows = list(csv.DictReader(file))
    assert dict(cube.sizes) == {"zero_shot": 6, "ssim": 9, "model": 8}
    for row in rows[::17]:
        cell = cube.swap_dims(model="weights").sel(
            {axis: float(row[axis]) for axis in ("ssim", "zero_shot", "weights")}
        )
        assert [float(cell[name]) for name in STATISTICS] == [float(row[name]) for name in STATISTICS]


def test_a_cube_keeps_models_classes_and_provenance_in_netcdf(tmp_path) -> None:
    generator = np.random.default_rng(0)
    error, kappa = generator.random((2, 2, 3, 4, 5))
    made = make_cube(
        class_statistics(error, kappa),
        zero_shot=[0, 1 / 6],
        ssim=[1.0, 0.6, 0.8],
        weights=[30, 10, 40, 20],
        models=["c", "a", "d", "b"],
        classes=list("vwxyz"),
        per_class={"error": error, "kappa": kappa},
        provenance={"family": "mini", "seed": 3},
    )
    write_cube(made, tmp_path / "cube.nc")
    again = read_cube(tmp_path / "cube.nc")
    assert again["model"].values.tolist() == ["a", "b", "c", "d"]
    assert again["weights"].values.tolist() == [10, 20, 30, 40]
    assert again["ssim"].values.tolist() == [0.6, 0.8, 1.0]
    assert again.attrs == {"family": "mini", "seed": 3}
    assert again["error"].dims == ("zero_shot", "ssim", "model", "class")
    # Model d is the third given, SSIM .6 the second.
    at = {"zero_shot": 1, "ssim": 0, "model": 3}
    np.testing.assert_array_equal(again["error"].isel(at), error[1, 1, 2])
    np.testing.assert_array_equal(again["error_mean"].isel(at), error[1, 1, 2].mean())


@pytest.mark.parametrize("suffix", [".nc", ".csv"])
def test_writing_and_reading_changes_nothing(cube, tmp_path, suffix) -> None:
    path = tmp_path / f"again{suffix}"
    write_cube(cube, path)
    again = read_cube(path)
    for name in (*STATISTICS, "ssim", "zero_shot", "weights"):
        np.testing.assert_array_equal(again[name].values, cube[name].values)


def test_csv_in_any_order_with_other_columns_and_a_byte_order_mark(cube, tmp_path) -> None:
    lines = CSV.read_text().splitlines()
    body = [f"x,{line}" for line in reversed(lines[1:])]
    path = tmp_path / "shuffled.csv"
    path.write_text("\ufeff" + "\n".join([f"note,{lines[0]}", *body, "", ""]))
    again = read_cube(path)
    for name in STATISTICS:
        np.testing.assert_array_equal(again[name].values, cube[name].values)


def test_levels_printed_with_different_digits_are_one_level(tmp_path) -> None:
    path = tmp_path / "digits.csv"
    rows = [
        [ssim, zero_shot, weights] + [0.5] * 6
        for ssim in (0.6, 1.0)
        for weights, third in ((10, 0.3333333333333333), (20, 0.33333333333))
        for zero_shot in (0.0, third)
    ]
    path.write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *rows]))
    assert dict(read_cube(path).sizes) == {"zero_shot": 2, "ssim": 2, "model": 2}


def replaced(line: int, column: str, text: str) -> str:
    lines = [row.split(",") for row in CSV.read_text().splitlines()]
    lines[line - 1][COLUMNS.index(column)] = text
    return "\n".join(map(",".join, lines))


WHOLE = CSV.read_text()
LINES = WHOLE.splitlines()

WRONG = {
    "missing column": (WHOLE.replace("error_sd", "error_std"), ["line 1", "'error_sd'"]),
    "a word": (replaced(5, "error_p10", "high"), ["line 5", "'error_p10'", "'high'"]),
    "nan": (replaced(7, "kappa_sd", "nan"), ["line 7", "'kappa_sd'", "nan"]),
    "infinite": (replaced(7, "kappa_sd", "-inf"), ["line 7", "'kappa_sd'", "inf"]),
    "empty": (replaced(433, "kappa_mean", ""), ["line 433", "'kappa_mean'", "missing"]),
    "short row": ("\n".join([*LINES[:9], "0.6,0.0"]), ["line 10", "'weights'", "missing"]),
    "percent": (replaced(3, "zero_shot", "16.7"), ["line 3", "'zero_shot'", "16.7"]),
    "negative ssim": (replaced(3, "ssim", "-0.1"), ["line 3", "'ssim'", "-0.1"]),
    "no weights": (replaced(3, "weights", "0"), ["line 3", "'weights'", "positive"]),
    "duplicate": ("\n".join([*LINES, LINES[2]]), ["line 434", "line 3", "ssim = 0.65", "weights = 5300000"]),
    "missing point": ("\n".join(LINES[:3] + LINES[4:]), ["ssim = 0.7", "zero_shot = 0,", "1 of 432"]),
    "only a header": (LINES[0], ["no rows"]),
    "nothing": ("", ["line 1", "'ssim'"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_csv_gives_one_sentence_that_says_where(name, tmp_path) -> None:
    text, fragments = WRONG[name]
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_cube(path)
    message = str(caught.value)
    assert "\n" not in message
    for fragment in [str(path), *fragments]:
        assert fragment in message


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("absent.csv", None, "no file"),
        ("absent.nc", None, "no file"),
        ("cube.xlsx", b"x", "neither .nc nor .csv"),
        ("broken.nc", b"not netCDF", "cannot be read as a cube"),
        ("binary.csv", b"\xff\xfe\x00\x01", "cannot be read as a cube"),
    ],
)
def test_unreadable_files_give_one_sentence(name, content, fragment, tmp_path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=fragment) as caught:
        read_cube(path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_cube_and_an_absent_folder_takes_none(cube, tmp_path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        read_cube(tmp_path / "folder.csv")
    for suffix in (".csv", ".nc"):
        with pytest.raises(UserError, match="cannot be written"):
            write_cube(cube, tmp_path / "absent" / f"cube{suffix}")


def test_wrong_netcdf_gives_one_sentence(cube, tmp_path) -> None:
    holed = cube.copy(deep=True)
    holed["kappa_sd"][2, 3, 1] = np.nan
    wrong = {
        "has no variable 'error_p10'": cube.drop_vars("error_p10"),
        "no coordinate 'weights' along a dimension 'model'": cube.drop_vars("weights"),
        "no coordinate 'ssim'": cube.rename(ssim="noise"),
        r"no finite 'kappa_sd' at ssim = 0.75, zero_shot = 0.28\d*, weights = 7800000": holed,
        "ssim = 60 is not an SSIM": cube.assign_coords(ssim=cube["ssim"] * 100),
        "levels of weights must be .* all different": cube.assign_coords(weights=("model", [1e6] * 8)),
        "'error_sd' does not hold numbers": cube.assign(error_sd=cube["error_sd"].astype(str) + "x"),
    }
    for number, (pattern, data) in enumerate(wrong.items()):
        path = tmp_path / f"{number}.nc"
        data.to_netcdf(path)
        with pytest.raises(UserError, match=pattern) as caught:
            read_cube(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_importing_the_cube_loads_nothing_heavy() -> None:
    code = (
        "import sys, genbench.testbed.cube, genbench.testbed.kappa, genbench.testbed.tradeoff, "
        "genbench.cli.tradeoff; sys.exit(str(sorted({'torch', 'xarray', 'pandas', 'scipy', 'gekko'} "
        "& set(sys.modules)) or ''))"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.stderr.strip() == ""


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_tenth_percentile_is_numpys_to_the_bit(kind: type) -> None:
    generator = np.random.default_rng(0)
    for classes in (1, 2, 6, 10, 11, 50, 95, 101):
        values = (generator.binomial(40, 0.3, size=(7, classes)) / 40).astype(kind)
        values = np.moveaxis(np.ascontiguousarray(values.T), 0, -1)  # classes are not neighbours in memory
        found = summaries(values)
        assert (found["p10"] == np.quantile(values.astype(np.float64), 0.1, axis=-1)).all()
        assert (found["sd"] == values.astype(np.float64).std(axis=-1)).all()
