"""`genbench score` as a person uses it: table, JSON, CSV and the page."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import genbench.cli

TABLE = Path(__file__).parent / "golden" / "scoring" / "records.csv"
GOLDEN = json.loads((TABLE.parent / "golden_sign_error.json").read_text())


def score(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        genbench.cli.main(["score", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert stopped.value.code == 0, err
    return out, err


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table with two OOD gaps and five measures."""
    frame = pd.read_csv(TABLE)
    frame = frame[(frame["hp.model_width"] < 16) & (frame["seed"] < 5)]
    measures = [c for c in frame.columns if c.startswith("complexity.")][5:]
    frame = frame.drop(columns=measures)
    frame["gap_ood_fog"] = 0.9 * frame["gen.gap"] + 0.05
    frame["gap_ood_noise"] = 0.5 - frame["gen.gap"]
    path = tmp_path_factory.mktemp("tables") / "shifted.csv"
    frame.to_csv(path, index=False)
    return path


def test_json_holds_the_golden_sign_errors(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--score", "sign_error", "--complete-rows", "--resamples", "100", "--json"]
    out, _ = score(capsys, TABLE, *options)
    document = json.loads(out)
    assert (document["rows"], document["combos"], document["unconverged_left_out"]) == (1068, 108, 10)
    rows = {(r["measure"], r["part"], r["statistic"]): r for r in document["scores"]}
    for measure, parts in GOLDEN["filter"]["measures"].items():
        row = rows[measure.removeprefix("complexity."), "all", "max"]
        assert row["value"] == pytest.approx(parts["all"]["max"], abs=1e-9)
        assert row["resamples"] == 100
        assert row["low"] <= row["high"]
    worst = [r for r in document["worst_environments"] if r["measure"] == "path_norm"]
    assert len(worst) == 10
    assert worst[0]["sign_error"] == pytest.approx(
        GOLDEN["filter"]["measures"]["complexity.path_norm"]["all"]["max"]
    )


def test_csv_is_one_tidy_table(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = score(capsys, TABLE, "--score", "pgdl,kendall", "--resamples", "0", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["score"] for row in rows} == {"pgdl", "kendall"}
    assert list(rows[0])[:8] == ["score", "measure", "target", "part", "statistic", "value", "low", "high"]


def test_every_score_is_shown_with_its_interval(capsys: pytest.CaptureFixture[str], shifted: Path) -> None:
    out, err = score(capsys, shifted, "--resamples", "60", "--combine", "npca:path_norm,pacbayes_flatness")
    titles = [line for line in out.splitlines() if line.startswith("# ")]
    assert [title.split()[1] for title in titles] == [
        "Robust", "Affine", "Granulated", "Conditional-independence", "PGDL", "CMS",
    ]  # fmt: skip
    assert "npca(path_norm,pacbayes_flatness)\t" in out
    assert "60 resamples" in err
    assert "1 row holds no finite reading (infinite) in complexity.path_norm\n" in err
    assert re.search(r"^path_norm\t\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]\t", out, flags=re.MULTILINE)


def test_kendall_is_scored_against_every_target(capsys: pytest.CaptureFixture[str], shifted: Path) -> None:
    out, _ = score(capsys, shifted, "--score", "kendall", "--resamples", "0", "--csv")
    frame = pd.read_csv(io.StringIO(out))
    psi = frame[frame["statistic"] == "Psi"].pivot(index="measure", columns="target", values="value")
    # fog is an increasing function of the gap, noise a decreasing one.
    np.testing.assert_allclose(psi["gap_ood_fog"], psi["gap"], atol=1e-12)
    np.testing.assert_allclose(psi["gap_ood_noise"], -psi["gap"], atol=1e-12)


def test_a_measure_where_higher_is_better_is_turned(
    capsys: pytest.CaptureFixture[str], shifted: Path
) -> None:
    options = ["--score", "kendall", "--resamples", "0", "--csv"]
    plain, turned = (
        pd.read_csv(io.StringIO(score(capsys, shifted, *options, *more)[0])).set_index(
            ["measure", "target", "part", "statistic"]
        )["value"]
        for more in ([], ["--higher-is-better", "path_norm"])
    )
    np.testing.assert_allclose(plain["path_norm"], -turned["path_norm"])
    np.testing.assert_allclose(plain["pacbayes_flatness"], turned["pacbayes_flatness"])


def test_a_score_without_its_columns_is_skipped_with_the_reason(
    capsys: pytest.CaptureFixture[str], shifted: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(shifted).drop(columns=["test_dataset_size", "gen.val_acc"])
    frame.to_csv(tmp_path / "bare.csv", index=False)
    out, _ = score(capsys, tmp_path / "bare.csv", "--resamples", "0", "--json")
    document = json.loads(out)
    assert set(document["skipped"]) == {"sign_error", "cms"}
    assert {row["score"] for row in document["scores"]} == {
        "affine_oracle",
        "kendall",
        "independence",
        "pgdl",
    }


class Links(HTMLParser):
    """Everything a browser would fetch, and the headings."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and value and not value.startswith(("#", "data:")):
                self.fetched.append(value)


def test_the_page_holds_the_figures_and_fetches_nothing(
    capsys: pytest.CaptureFixture[str], shifted: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    score(capsys, shifted, "--resamples", "0", "--html", page)
    text = page.read_text()
    links = Links()
    links.feed(text)
    assert links.fetched == []
    assert "script" not in links.tags
    # By hyperparameter, by pairs of values, with and without the noise filter; IID against OOD.
    assert links.tags.count("svg") == 4
    assert "@import" not in text
    assert "url(http" not in text
    for wanted in ("90th percentile", "Ψ against gap (IID)", "By group, δ = 0.05", "Where measures fail",
                   "prefers-color-scheme: dark", "pacbayes_mag_flatness"):  # fmt: skip
        assert wanted in text


def test_text_from_a_table_cannot_break_the_page(
    capsys: pytest.CaptureFixture[str], shifted: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(shifted).rename(
        columns={"complexity.path_norm": "complexity.<script>alert(1)</script>"}
    )
    frame.to_csv(tmp_path / "hostile.csv", index=False)
    score(capsys, tmp_path / "hostile.csv", "--resamples", "0", "--html", tmp_path / "page.html")
    assert "<script" not in (tmp_path / "page.html").read_text()


def test_the_same_table_gives_the_same_bytes(capsys: pytest.CaptureFixture[str], shifted: Path) -> None:
    first, second = (score(capsys, shifted, "--resamples", "40", "--csv")[0] for _ in range(2))
    assert first == second


def test_scoring_imports_no_torch() -> None:
    code = (
        "import sys, genbench.scoring as s\n"
        "assert 'pandas' not in sys.modules\n"
        "[getattr(s, n) for n in s.__all__]\n"
        "import genbench.scoring.all_scores\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
