"""`genbench cube` and `genbench tradeoff --suite`: numbers, exports, figures, wrong input."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import xarray as xr
from conftest import Run, in_process

pytestmark = pytest.mark.xdist_group("quick_store")  # one worker builds that store for all

SUITE = ("--suite", "mini-quick")
STATISTICS = ("error_mean", "error_sd", "error_p10", "kappa_mean", "kappa_sd", "kappa_p10")
FAMILIES = ("mini-clip", "mini-efficientnet")


@pytest.fixture(scope="module")
def built(quick_store: Path) -> tuple[Path, dict[str, Any]]:
    """A store with the cubes of mini-quick, and what `genbench cube --json` says about them."""
    shown = in_process("cube", *SUITE, "--store", quick_store, "--json", cwd=quick_store.parent)
    assert shown.returncode == 0, shown.stderr
    return quick_store, json.loads(shown.stdout)


@pytest.fixture(scope="module")
def cubes(built: tuple[Path, dict[str, Any]]) -> dict[str, xr.Dataset]:
    """The stored netCDF files, by family."""
    files = [xr.load_dataset(path) for path in built[0].rglob("cube.nc")]
    return {str(cube.attrs["family"]): cube for cube in files}


def family(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in document["families"] if entry["family"] == name]
    return dict(found)


@pytest.mark.parametrize("name", FAMILIES)
def test_statistics_are_those_of_the_per_class_arrays(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset], name: str
) -> None:
    shown, cube = family(built[1], name), cubes[name]
    for quantity, source in (("error", "error"), ("kappa", "kappa_conflict")):
        per_class = cube[source].values
        expected = {
            "mean": np.nanmean(per_class, axis=-1),
            "sd": np.nanstd(per_class, axis=-1),
            "p10": np.nanquantile(per_class, 0.1, axis=-1),
        }
        for statistic, values in expected.items():
            np.testing.assert_allclose(shown["statistics"][f"{quantity}_{statistic}"], values, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_marginals_and_slices_average_the_statistics(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset], name: str
) -> None:
    shown, cube = family(built[1], name), cubes[name]
    for statistic in STATISTICS:
        values = cube[statistic].values  # zero_shot, ssim, model
        for axis, others in (("zero_shot", (1, 2)), ("ssim", (0, 2)), ("weights", (0, 1))):
            np.testing.assert_allclose(shown["marginals"][axis][statistic], values.mean(axis=others))
        np.testing.assert_allclose(shown["slices"]["robustness"][statistic], values[0].mean(axis=0))
        np.testing.assert_allclose(shown["slices"]["zero_shot"][statistic], values[:, -1].mean(axis=0))


def test_json_has_everything_but_the_arrays_over_images(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset]
) -> None:
    for name in FAMILIES:
        shown, cube = family(built[1], name), cubes[name]
        arrays = {*shown["statistics"], *shown["per_class"]}
        assert arrays == {str(key) for key in cube.data_vars} - {"right"}
        assert shown["coordinates"]["unseen_classes"] == [0, 5, 10]
        wanted, reached = (shown["coordinates"][key] for key in ("ssim", "achieved_ssim"))
        assert np.abs(np.subtract(wanted, reached)).max() <= 0.01
        # With no unseen class in the test, the 10 unseen classes have no error.
        error = np.array(shown["per_class"]["error"]["values"], dtype=object)
        assert (error[0, :, :, 10:] == None).all()  # noqa: E711
        assert set(shown["resolved"]) == {"robustness", "zero_shot"}
        assert shown["trade_off"]["certified"]


def test_resolved_pairs_agree_with_an_own_bootstrap(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset]
) -> None:
    """Every pair that is clearly apart, or clearly not, in other resamples than genbench's."""
    generator = np.random.default_rng(123)
    for name in FAMILIES:
        cube = cubes[name].isel(zero_shot=0)
        labels = cube["image_class"].values
        wrong = 1 - cube["right"].values.astype(float).mean(axis=0)[:, labels < 10]  # model, image
        labels = labels[labels < 10]
        draws = []
        for _ in range(400):
            means = [
                wrong[:, generator.choice(np.flatnonzero(labels == c), size=int((labels == c).sum()))].mean(
                    axis=1
                )
                for c in range(10)
            ]
            draws.append(np.mean(means, axis=0))
        means = np.mean([wrong[:, labels == c].mean(axis=1) for c in range(10)], axis=0)
        first, second = np.triu_indices(len(means), k=1)
        spread = np.std(np.array(draws)[:, first] - np.array(draws)[:, second], axis=0)
        distance = np.abs(means[first] - means[second]) / spread
        share = family(built[1], name)["resolved"]["robustness"]
        assert np.mean(distance > 1.96 * 1.15) <= share <= np.mean(distance > 1.96 / 1.15)


def test_the_table_shows_models_slices_marginals_and_on_request_every_point(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset], run: Run
) -> None:
    shown = run("cube", *SUITE, "--store", built[0], "--full")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    start = lines.index("# mini-clip: every grid point")
    rows = list(csv.DictReader(lines[start + 1 : start + 29], delimiter="\t"))
    assert len(rows) == 27
    for row in rows:
        point = cubes["mini-clip"].sel(model=f"mini-clip:{row['model']}", ssim=float(row["SSIM"]))
        point = point.sel(zero_shot=float(row["zero-shot"]), method="nearest")
        assert float(row["error SD"]) == pytest.approx(float(point["error_sd"]), abs=6e-4)
    assert sum(line.startswith("# ") for line in lines) == 2 * 4
    assert "further apart than the Monte-Carlo noise" in shown.stdout
    assert "mean SSIM reached" in shown.stdout


@pytest.mark.parametrize("suffix", ["nc", "csv"])
def test_each_family_is_exported_to_a_file_that_tradeoff_reads(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset], run: Run, tmp_path: Path, suffix: str
) -> None:
    done = run("cube", *SUITE, "--store", built[0], "--export", f"out.{suffix}")
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [f"out-{name}.{suffix}" for name in FAMILIES]
    if suffix == "nc":
        back = xr.load_dataset(tmp_path / "out-mini-clip.nc")
        assert back.identical(cubes["mini-clip"])
    read = run("tradeoff", "--cube", f"out-mini-clip.{suffix}", "--json")
    (point,) = json.loads(read.stdout)
    stored = family(built[1], "mini-clip")["trade_off"]
    for key in ("ssim", "zero_shot", "model_size", "objective"):
        assert point[key] == pytest.approx(stored[key], rel=1e-4)


def test_the_workbook_has_a_sheet_per_family(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset], run: Run, tmp_path: Path
) -> None:
    import pandas

    done = run("cube", *SUITE, "--store", built[0], "--export", "out.xlsx", "--figures", "figures")
    assert done.returncode == 0, done.stderr
    sheets = pandas.read_excel(tmp_path / "out.xlsx", sheet_name=None)
    assert list(sheets) == list(FAMILIES)
    for name, sheet in sheets.items():
        assert len(sheet) == 27
        for _, row in sheet.iterrows():
            point = cubes[name].sel(model=row["model"], ssim=row["ssim"])
            point = point.sel(zero_shot=row["zero_shot"], method="nearest")
            for statistic in STATISTICS:
                assert row[statistic] == pytest.approx(float(point[statistic]), abs=1e-12)
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert set(pictures) == {
        f"{name}-{what}.png" for name in FAMILIES for what in ("marginals", "error_mean", "kappa_mean")
    }
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())


def test_tradeoff_of_a_suite_shows_every_family(built: tuple[Path, dict[str, Any]], run: Run) -> None:
    table = run("tradeoff", *SUITE, "--store", built[0])
    assert "trade-off point\tmini-clip\tmini-efficientnet" in table.stdout
    points = json.loads(run("tradeoff", *SUITE, "--store", built[0], "--json").stdout)
    assert [point["family"] for point in points] == list(FAMILIES)
    for point in points:
        stored = family(built[1], point["family"])["trade_off"]
        assert point["objective"] == pytest.approx(stored["objective"], rel=1e-6)
    squared = json.loads(
        run(
            "tradeoff", *SUITE, "--store", built[0], "--json", "--scales", "squared", "--weights", "2,1,1"
        ).stdout
    )
    assert {point["scales"] for point in squared} == {"squared"}
    assert all(point["weights"] == [2, 1, 1] and point["certified"] for point in squared)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("cube", *SUITE, "--export", "out.png"),
            "--export out.png: a cube is exported as .nc, .csv or .xlsx",
        ),
        (("cube", *SUITE, "--export", "no/out.nc"), "there is no folder no"),
        (("cube", "--suite", "digits"), "digits is a population of networks, which has no cube"),
        (("tradeoff", "--suite", "digits"), "digits is a population"),
        (("tradeoff", "--cube", "a.nc", "--suite", "mini"), "--cube and --suite exclude each other"),
        (("tradeoff", "--cube", "a.nc", "--quick"), "--cube and --quick exclude each other"),
        (("tradeoff", *SUITE, "--weights", "1,2"), "is not three numbers"),
    ],
)
def test_wrong_input_gets_one_sentence(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = run(*arguments, "--store", tmp_path / "store")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("genbench: ")
    assert says in line
    assert not (tmp_path / "store").exists(), "nothing is computed first"


def test_a_folder_for_figures_that_cannot_be_made_is_named(
    built: tuple[Path, dict[str, Any]], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    done = run("cube", *SUITE, "--store", built[0], "--figures", "taken")
    assert done.returncode == 2
    assert "--figures taken" in done.stderr.splitlines()[-1]


# -- figures -----------------------------------------------------------------------------------------


def test_the_marginal_figure_draws_eq_5_with_the_star_in_every_panel(
    built: tuple[Path, dict[str, Any]], cubes: dict[str, xr.Dataset]
) -> None:
    from genbench.testbed.cube_figures import marginal_figure
    from genbench.testbed.tradeoff_point import TradeOff

    cube, point = cubes["mini-clip"], family(built[1], "mini-clip")["trade_off"]
    panels = marginal_figure(cube, msgspec.convert(point, TradeOff)).axes
    places = [("ssim", (0, 2), "ssim"), ("zero_shot", (1, 2), "zero_shot"), ("weights", (0, 1), "model_size")]
    assert len(panels) == 3
    for axes, (axis, others, at) in zip(panels, places, strict=True):
        curves = {line.get_label(): line for line in axes.lines}
        assert len([label for label in curves if not str(label).startswith("_")]) == 7
        x, y = curves["error, SD"].get_data()
        np.testing.assert_allclose(x, cube[axis].values)
        np.testing.assert_allclose(y, cube["error_sd"].values.mean(axis=others))
        x, y = curves["trade-off point"].get_data()
        assert list(x) == [point[at]] * 2
        # On the curve itself: linear between grid points.
        mean = cube["error_mean"].values.mean(axis=others)
        assert y[0] == pytest.approx(np.interp(point[at], cube[axis].values, mean))


def test_heat_maps_show_every_model_on_one_scale(cubes: dict[str, xr.Dataset]) -> None:
    from genbench.testbed.cube_figures import heat_maps

    cube = cubes["mini-efficientnet"]
    figure = heat_maps(cube, "kappa_p10")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 3
    for i, image in enumerate(images):
        np.testing.assert_allclose(image.get_array(), cube["kappa_p10"].values[:, :, i])
    assert len({image.get_clim() for image in images}) == 1


def test_names_in_figures_are_plain_text() -> None:
    from genbench.display.figures import inline_svg
    from genbench.display.scatter import Point, ScatterPanel, reading_scatter

    points = [Point("a:<b>$x$", "<script>$", 1.0, 0.2), Point("a:c&d", "other", 1e4, 0.1)]
    panel = ScatterPanel("t<", "error", points, [("a:<b>$x$", "a:c&d")])
    svg = inline_svg(reading_scatter("reading", [panel]), 'a "<description>')
    assert "<script" not in svg
    assert "&lt;b&gt;$x$" in svg
    assert 'aria-label="a &quot;&lt;description&gt;"' in svg
    assert "http" not in svg
