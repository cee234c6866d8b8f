"""A table as the authors of 001 published theirs: an unnamed index, raw and adjusted columns, `inf`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import genbench.cli
from genbench.errors import UserError
from genbench.scoring import Columns, read_table
from genbench.scoring.all_scores import SCORES, Options, score_table
from genbench.scoring.where import read_condition

INFINITE = 4
OPTIONS = ["--measures", "complexity.*_adjusted1", "--test-size", "1000", "--resamples", "20"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets, three depths, two widths, four seeds; four rows of `inf`, two unconverged ones."""
    rng = np.random.default_rng(3)
    grid = list(itertools.product(("cifar10", "svhn"), (2, 3, 6), (8, 16), range(4)))
    frame = pd.DataFrame(grid, columns=["hp.dataset", "hp.model_depth", "hp.model_width", "seed"])
    frame["gen.gap"] = np.round(
        0.1 * (frame["hp.dataset"] == "svhn")
        + 0.05 * frame["hp.model_depth"]
        + 0.02 * rng.random(len(frame)),
        4,
    )
    frame["gen.val_acc"] = 1 - frame["gen.gap"]
    frame["is.converged"], frame["is.high_train_accuracy"] = True, True
    frame.loc[[5, 30], "is.converged"] = False
    for name, power in (("path_norm", 1), ("margin", 2)):
        frame[f"complexity.{name}"] = frame["gen.gap"] ** power * 1e4
        frame[f"complexity.{name}_adjusted1"] = frame["gen.gap"] ** power + 0.01 * rng.random(len(frame))
    frame.loc[[1, 9, 20, 41], ["complexity.margin", "complexity.margin_adjusted1"]] = np.inf
    path = tmp_path_factory.mktemp("published") / "nin.csv"
    frame.to_csv(path)
    assert path.read_text().startswith(",hp.dataset")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        genbench.cli.main(["score", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert stopped.value.code == 0, err
    return out, err


def test_one_command_scores_it_and_json_says_what_was_dropped(
    capsys: pytest.CaptureFixture[str], published: Path
) -> None:
    out, _ = run(capsys, published, *OPTIONS, "--keep-unconverged", "--json")
    found = json.loads(out)
    assert found["measures"] == ["path_norm_adjusted1", "margin_adjusted1"]
    assert (found["rows"], found["combos"], found["unconverged_left_out"]) == (48, 12, 0)
    assert found["dropped"] == {
        "rows": INFINITE,
        "for_all_measures": 0,
        "measures": [
            {
                "measure": "margin_adjusted1",
                "column": "complexity.margin_adjusted1",
                "rows": INFINITE,
                "infinite": INFINITE,
            }
        ],
    }
    assert {row["score"] for row in found["scores"]} == set(SCORES)
    rows = {row["measure"]: row for row in found["scores"] if row["statistic"] == "K"}
    assert [rows[name]["dropped"] for name in found["measures"]] == [0, INFINITE]
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows.values())
    # All pairs of values: one of the data sets, three of depths, one of widths.
    assert len(found["by_values"]) == 2 * (1 + 3 + 1)
    assert {row["statistic"] for row in found["noise_filter"]} == {"mean", "median", "p90", "max"}


def test_unconverged_runs_are_left_out_unless_kept(
    capsys: pytest.CaptureFixture[str], published: Path
) -> None:
    out, _ = run(capsys, published, *OPTIONS, "--score", "pgdl", "--json")
    assert (json.loads(out)["rows"], json.loads(out)["unconverged_left_out"]) == (46, 2)


def test_the_text_says_how_many_rows_were_dropped_why_and_for_which_column(
    capsys: pytest.CaptureFixture[str], published: Path
) -> None:
    _, err = run(capsys, published, *OPTIONS, "--score", "kendall", "--keep-unconverged")
    assert "4 rows hold no finite reading (infinite) in complexity.margin_adjusted1\n" in err
    assert "left out for these measures alone" in err
    _, err = run(capsys, published, *OPTIONS, "--score", "kendall", "--keep-unconverged", "--complete-rows")
    assert "these 4 rows are left out for all measures" in err
    assert "44 runs of 12 combinations" in err


def test_where_chooses_rows(capsys: pytest.CaptureFixture[str], published: Path, tmp_path: Path) -> None:
    """The same as a file that holds these rows alone."""
    frame = pd.read_csv(published, index_col=0)
    frame[(frame["hp.dataset"] == "svhn") & frame["hp.model_depth"].isin([2, 6])].to_csv(
        tmp_path / "some.csv"
    )
    options = [*OPTIONS, "--json", "--keep-unconverged"]
    some = json.loads(run(capsys, tmp_path / "some.csv", *options)[0])
    chosen = json.loads(
        run(capsys, published, *options, "--where", "dataset=svhn", "--where", "hp.model_depth=2,6.0")[0]
    )
    assert chosen["scores"] == some["scores"]
    assert (chosen["rows"], chosen["rows_not_chosen"]) == (16, 32)
    assert chosen["where"] == ["dataset=svhn", "hp.model_depth=2,6.0"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("dataset", "is not COLUMN=VALUE"), ("dataset=", "is not COLUMN=VALUE"),
     ("dataset=mnist", "no row has hp.dataset = mnist; there are cifar10, svhn"),
     ("datset=svhn", "no column 'datset' to choose rows by; did you mean 'dataset'"),
     ("model_depth=deep", "no row has hp.model_depth = deep; there are 2, 3, 6")],
)  # fmt: skip
def test_a_wrong_condition_is_explained(published: Path, condition: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        read_table(published, Columns(measures=("*_adjusted1",)), where=[read_condition(condition)])


def test_a_pattern_without_columns_is_explained(published: Path) -> None:
    with pytest.raises(UserError, match=r"no column fits '\*_adjusted2'"):
        read_table(published, Columns(measures=("*_adjusted2",)))


def test_only_the_first_column_may_be_unnamed(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(",gap,\n0,0.1,3\n")
    with pytest.raises(UserError, match="line 1, column 3 has no name"):
        read_table(tmp_path / "runs.csv")


def test_progress_of_every_score_adds_up_to_one(published: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.done: dict[str, float] = {}
            self.ended: list[str] = []

        def begin(self, score: str) -> None:
            self.done[score] = 0.0

        def advance(self, score: str, share: float) -> None:
            assert share > 0
            self.done[score] += share

        def end(self, score: str) -> None:
            self.ended.append(score)

    listener = Listener()
    table = read_table(published, Columns(measures=("*_adjusted1",), test_size=1000))
    score_table(table, options=Options(resamples=20), progress=listener)
    assert listener.ended == list(SCORES)
    assert listener.done == pytest.approx(dict.fromkeys(SCORES, 1.0))


def test_errors_by_values_and_the_noise_filter_are_those_of_the_environments(published: Path) -> None:
    table = read_table(published, Columns(measures=("*_adjusted1",), test_size=1000), keep_unconverged=True)
    scored = score_table(table, ["sign_error"], Options(resamples=0, min_n_eff=4.0))
    own = scored.environments
    assert own is not None
    for row in scored.by_values.to_dict("records"):
        some = own[
            (own["measure"] == row["measure"]) & (own["hyperparameter"] == row["hyperparameter"])
            & (own["low_value"] == row["low_value"]) & (own["high_value"] == row["high_value"])
        ]["sign_error"]  # fmt: skip
        assert row["kept"] == len(some)
        if len(some):
            assert row["mean"] == pytest.approx(np.mean(some))
            assert row["p90"] == pytest.approx(np.quantile(some, 0.9))
            assert row["max"] == pytest.approx(np.max(some))
    # Widths do not change the gap: the filter leaves no environment of theirs.
    widths = scored.by_values[scored.by_values["hyperparameter"] == "model_width"]
    assert (widths["kept"] == 0).all()
    assert widths["mean"].isna().all()
    noise = scored.noise.set_index(["measure", "statistic"])
    for filtered, column in ((True, "filtered"), (False, "unfiltered")):
        alone = score_table(
            table, ["sign_error"], Options(resamples=0, min_n_eff=4.0, noise_filter=filtered)
        ).scores
        for row in alone[alone["part"] == "all"].to_dict("records"):
            assert noise.loc[(row["measure"], row["statistic"]), column] == pytest.approx(row["value"])
            assert noise.loc[(row["measure"], row["statistic"]), f"kept_{column}"] == row["count"]


def test_the_page_shows_pairs_of_values_and_the_noise_filter(
    capsys: pytest.CaptureFixture[str], published: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    options = [*OPTIONS, "--score", "sign_error", "--min-n-eff", "4", "--where", "dataset=svhn"]
    run(capsys, published, *options, "--by-values", "margin_adjusted1", "--html", page)
    text = page.read_text()
    assert text.count("<svg") == 3
    for wanted in ("margin_adjusted1, by pairs of values", "What the noise filter does", "2 → 6",
                   "without the noise filter", "dataset=svhn; 24 others not chosen",
                   "(infinite) in complexity.margin_adjusted1"):  # fmt: skip
        assert wanted in text
