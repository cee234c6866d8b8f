"""Reading record tables: roles of columns, and a sentence with row and column for whatever is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import genbench.cli
from genbench.errors import UserError
from genbench.scoring import Columns, read_table, table_from_frame
from genbench.scoring.all_scores import SCORES, score_table
from genbench.scoring.columns import read_columns

HEADER = "hp.lr,hp.depth,seed,gap,test_error,test_size,converged,complexity.a,complexity.b"


def good_rows() -> list[list[str]]:
    rows = []
    for i, (lr, depth, seed) in enumerate(itertools.product((0.01, 0.1), (2, 4), range(3))):
        numbers = (lr, depth, seed, 0.1 + 0.01 * i, 0.2 + 0.01 * i, 1000, True, 1.5 * i + 1, 3.0 - 0.1 * i)
        rows.append([str(n) for n in numbers])
    return rows


def table(rows: list[list[str]], header: str = HEADER) -> str:
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"


def with_cell(row: int, column: str, text: str) -> str:
    """The good table with one cell replaced; `row` is its line in the file."""
    rows = good_rows()
    rows[row - 2][HEADER.split(",").index(column)] = text
    return table(rows)


def with_column(column: str, text: Callable[[int], str]) -> str:
    rows = good_rows()
    for i, row in enumerate(rows):
        row[HEADER.split(",").index(column)] = text(i)
    return table(rows)


def without(column: str) -> str:
    place = HEADER.split(",").index(column)
    rows = [[c for i, c in enumerate(row) if i != place] for row in good_rows()]
    return table(rows, ",".join(name for name in HEADER.split(",") if name != column))


def ragged(line: int, extra: bool) -> str:
    lines = table(good_rows()).splitlines()
    lines[line - 1] = lines[line - 1] + ",7" if extra else lines[line - 1].rpartition(",")[0]
    return "\n".join(lines)


MALFORMED: dict[str, tuple[str | bytes, list[str], list[str]]] = {
    # name: content, options, what the sentence must say
    "nothing in the file": ("", [], ["is empty", "names the columns"]),
    "no rows": (HEADER + "\n", [], ["no rows below its header"]),
    "one row": (table(good_rows()[:1]), [], ["one row only", "line 2"]),
    "one seed only": (table(good_rows()[::3]), [], ["one run only", "'seed'", "two seeds"]),
    "a run is named like a hyperparameter": (
        with_column("hp.depth", str),
        [],
        ["one run only", "no hyperparameter column that names the run"],
    ),
    "no gap": (without("gap"), [], ["no column 'gap'", "--gap"]),
    "no seed": (without("seed"), [], ["no column 'seed'", "--seed-column"]),
    "no hyperparameters": (
        table(good_rows(), HEADER.replace("hp.", "")),
        [],
        ["no hyperparameter columns", "--hp"],
    ),
    "no measures": (
        table(good_rows(), HEADER.replace("complexity.", "")),
        [],
        ["no measure columns", "--measures"],
    ),
    "text in a measure": (
        with_cell(5, "complexity.b", "n.a.!"),
        [],
        ["line 5", "'complexity.b'", "'n.a.!'", "not a number"],
    ),
    "text in the gap": (with_cell(6, "gap", "high"), [], ["line 6", "'gap'", "'high' is not a number"]),
    "decimal comma": (with_cell(6, "gap", '"0,12"'), [], ["line 6", "'gap'", "'0,12' is not a number"]),
    "NaN in the gap": (with_cell(7, "gap", "nan"), [], ["line 7", "'gap'", "nan"]),
    "no gap in one row": (with_cell(7, "gap", ""), [], ["line 7", "'gap'", "missing"]),
    "infinite gap": (with_cell(8, "gap", "inf"), [], ["line 8", "'gap'", "inf"]),
    "gaps in percent": (with_column("gap", lambda i: str(10.0 + i)), [], ["line 2", "'gap'", "not percent"]),
    "test error above 1": (with_cell(4, "test_error", "1.5"), [], ["line 4", "'test_error'", "1.5"]),
    "test size 0": (with_cell(4, "test_size", "0"), [], ["line 4", "'test_size'", "at least 1"]),
    "constant gap": (with_column("gap", lambda i: "0.25"), [], ["'gap'", "0.25 in every row"]),
    "constant hyperparameters": (
        table([["0.1", "2", str(i), *row[3:]] for i, row in enumerate(good_rows())]),
        [],
        ["same value in all hyperparameter columns", "hp.lr, hp.depth"],
    ),
    "a row twice": (table([*good_rows(), good_rows()[4]]), [], ["line 14", "line 6", "'seed'"]),
    "empty hyperparameter": (with_cell(9, "hp.depth", " "), [], ["line 9", "'hp.depth'", "missing"]),
    "no seed in one row": (with_cell(9, "seed", ""), [], ["line 9", "'seed'", "missing"]),
    "a field too many": (ragged(5, extra=True), [], ["line 5 has 10 fields", "'complexity.b'"]),
    "a field too few": (ragged(5, extra=False), [], ["line 5 has 8 fields", "'complexity.b' has no value"]),
    "a column twice": (
        table(good_rows(), HEADER.replace("complexity.b", "complexity.a")),
        [],
        ["line 1", "'complexity.a' twice"],
    ),
    "a column without a name": (
        table(good_rows(), HEADER.replace("test_size", "")),
        [],
        ["line 1, column 6", "no name"],
    ),
    "Latin-1": (table(good_rows()).replace("0.01", "0.01µ").encode("latin-1"), [], ["not UTF-8"]),
    "UTF-16": (table(good_rows()).encode("utf-16"), [], ["not UTF-8"]),
    "semicolons": (table(good_rows()).replace(",", ";"), [], ["separate columns with commas"]),
    "an open quote": (with_cell(5, "hp.depth", '"2'), [], ["line", "not CSV", "quotes"]),
    "nothing converged": (
        with_column("converged", lambda i: "False"),
        [],
        ["no row is converged", "12", "--keep-unconverged"],
    ),
    "converged in words": (with_cell(3, "converged", "maybe"), [], ["line 3", "'converged'", "'maybe'"]),
    "no finite reading": (
        table([[*row[:7], "nan", "inf"] for row in good_rows()]),
        [],
        ["no measure column holds a finite number"],
    ),
    "a column that is not there": (
        table(good_rows()),
        ["--gap", "gpa"],
        ["no column 'gpa'", "did you mean 'gap'"],
    ),
    "a column in two roles": (
        table(good_rows()),
        ["--measures", "hp.lr,complexity.a", "--hp", "hp.lr,hp.depth"],
        ["'hp.lr'", "one role"],
    ),
    "an unknown target": (table(good_rows()), ["--target", "gap_fog"], ["no target 'gap_fog'"]),
    "an unknown group": (
        table(good_rows()),
        ["--score", "cms", "--group-by", "data"],
        ["no hyperparameter 'data'"],
    ),
    "no test size for the noise filter": (
        without("test_size"),
        ["--score", "sign_error"],
        ["no column 'test_size'", "--no-noise-filter"],
    ),
    "no test error for CMS": (
        without("test_error"),
        ["--score", "cms"],
        ["no column 'test_error'", "--test-error"],
    ),
    "an unknown score": (table(good_rows()), ["--score", "tau"], ["unknown score 'tau'", "kendall"]),
    "an unknown combination": (table(good_rows()), ["--combine", "max:a,b"], ["'max:a,b'", "npca"]),
    "a combination of one": (table(good_rows()), ["--combine", "avg:a"], ["two measures or more"]),
    "a combination with an unknown measure": (
        table(good_rows()),
        ["--combine", "avg:a,c"],
        ["no measure 'c'"],
    ),
    "an unknown measure points the other way": (
        table(good_rows()),
        ["--higher-is-better", "c"],
        ["no measure 'c'"],
    ),
    "a negative test size": (table(good_rows()), ["--test-size", "-5"], ["-5"]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_table_gets_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, options, expected = MALFORMED[name]
    path = tmp_path / "runs.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as stopped:
        genbench.cli.main(["score", str(path), "--resamples", "0", *options])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert err.startswith("genbench: ")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    for part in expected:
        assert part in err
    if not options:
        assert "runs.csv" in err


def test_there_are_at_least_25_of_them() -> None:
    assert len(MALFORMED) >= 25


@pytest.mark.parametrize(
    ("name", "expected"),
    [("absent.csv", "no file"), ("folder.csv", "cannot be read"), ("runs.xlsx", "neither .csv nor .parquet"),
     ("absent.parquet", "no file"), ("broken.parquet", "cannot be read as Parquet")],
)  # fmt: skip
def test_a_file_that_is_no_table(name: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=expected):
        read_table(tmp_path / name)


def test_the_good_table_is_good(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(table(good_rows()))
    records = read_table(path)
    assert records.hyperparameters == ("lr", "depth")
    assert records.levels == ((0.01, 0.1), (2, 4))
    assert records.measures == ("a", "b")
    assert records.runs.tolist() == [3, 3, 3, 3]
    np.testing.assert_allclose(records.targets["gap"], 0.1 + 0.01 * np.arange(12))


def test_parquet_and_csv_are_read_alike(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "runs.csv").write_text(table(good_rows()))
    frame = pd.read_csv(tmp_path / "runs.csv")
    frame.to_parquet(tmp_path / "runs.parquet")
    first, second = read_table(tmp_path / "runs.csv"), read_table(tmp_path / "runs.parquet")
    third = table_from_frame(frame)
    for other in (second, third):
        np.testing.assert_array_equal(first.codes, other.codes)
        np.testing.assert_array_equal(first.readings, other.readings)
        assert first.levels == other.levels
    frame.loc[3, "gap"] = np.nan
    frame.to_parquet(tmp_path / "runs.parquet")
    with pytest.raises(UserError, match=r"row 4, column 'gap'"):
        read_table(tmp_path / "runs.parquet")


def test_values_that_differ_by_rounding_are_one_level(tmp_path: Path) -> None:
    text = with_column("hp.lr", lambda i: ["0.1", "0.30000000000000004", "0.3"][min(i // 4, 2)])
    (tmp_path / "runs.csv").write_text(text.replace("seed", "old").replace("hp.depth", "seed"))
    frame = pd.read_csv(tmp_path / "runs.csv")
    frame["seed"] = range(len(frame))
    assert table_from_frame(frame).levels[0] == (0.1, 0.3)


def test_infinite_and_missing_readings_are_kept_as_missing(tmp_path: Path) -> None:
    rows = good_rows()
    rows[0][7], rows[1][7], rows[2][8] = "inf", "", "-inf"
    (tmp_path / "runs.csv").write_text(table(rows))
    records = read_table(tmp_path / "runs.csv")
    assert np.isnan(records.readings).sum(axis=0).tolist() == [2, 1]
    assert [(t.measures, lost) for t, lost in records.without_gaps()] == [(("a",), 2), (("b",), 1)]


def test_a_mapping_names_every_role(tmp_path: Path) -> None:
    header = "rate,layers,trial,gengap,err,fog,done,good,norm"
    (tmp_path / "runs.csv").write_text(table(good_rows(), header))
    (tmp_path / "map.toml").write_text(
        'hyperparameters = ["rate", "layers"]\nmeasures = ["norm", "good"]\nseed = "trial"\ngap = "gengap"\n'
        'test_error = "err"\ntest_size = 500\nconverged = ["done"]\nhigher_is_better = ["good"]\n'
        'logarithm = ["norm"]\ngroup_by = ["layers"]\n'
    )
    with pytest.raises(UserError, match=r"column 'fog': 1000 is not a number from -1 to 1"):
        read_table(
            tmp_path / "runs.csv", Columns(**{**vars(read_columns(tmp_path / "map.toml")), "ood": ("fog",)})
        )
    records = read_table(tmp_path / "runs.csv", read_columns(tmp_path / "map.toml"))
    assert records.measures == ("norm", "good")
    assert (records.readings[:, 1] < 0).all()
    assert records.flipped == {"good"}
    assert records.logarithms == {"norm"}
    assert records.test_size.tolist() == [500.0] * 12
    assert records.group_by == ("layers",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("gap = [1]", "gap must be the name"), ("measure = 'a'", "did you mean 'measures'"), ("= 3", "TOML"),
     ("measures = 3", "list of column names")],
)  # fmt: skip
def test_a_wrong_mapping_is_explained(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(UserError, match=expected):
        read_columns(tmp_path / "map.toml")


def test_known_measures_need_no_prefix_and_know_their_direction(tmp_path: Path) -> None:
    class Known:
        def __init__(self, higher_means: str, logarithm: bool) -> None:
            self.higher_means, self.logarithm = higher_means, logarithm

    text = table(good_rows(), HEADER.replace("complexity.a", "pal").replace("complexity.b", "spec"))
    (tmp_path / "runs.csv").write_text(text)
    known = {"pal": Known("better", False), "spec": Known("worse", True), "unused": Known("better", False)}
    records = read_table(tmp_path / "runs.csv", known_measures=known)
    assert (records.measures, records.flipped, records.logarithms) == (("pal", "spec"), {"pal"}, {"spec"})


def test_what_an_unconverged_run_left_behind_does_not_matter(tmp_path: Path) -> None:
    rows = good_rows()
    rows[4][3], rows[4][6] = "nan", "False"
    (tmp_path / "runs.csv").write_text(table(rows))
    records = read_table(tmp_path / "runs.csv")
    assert (len(records), records.left_out) == (11, 1)
    with pytest.raises(UserError, match=r"line 6, column 'gap': the value is nan"):
        read_table(tmp_path / "runs.csv", keep_unconverged=True)


@pytest.mark.parametrize("readings", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("where", ["first", "spread"])
def test_a_measure_with_few_readings_disturbs_no_other(readings: int, where: str) -> None:
    """A plugin that refuses nearly all networks: its own scores may be missing, those beside it are not."""
    rng = np.random.default_rng(readings)
    rows = [(lr, depth, seed) for lr in (0.01, 0.1) for depth in (1, 2, 3) for seed in range(4)]
    frame = pd.DataFrame(rows, columns=["hp.lr", "hp.depth", "seed"])
    frame["gap"] = 0.1 * frame["hp.depth"] + 0.3 * frame["hp.lr"] + 0.01 * rng.random(len(frame))
    frame["test_error"], frame["test_size"] = frame["gap"], 5000
    frame["complexity.good"] = frame["gap"] ** 2
    alone = score_table(table_from_frame(frame))
    chosen = np.arange(readings) if where == "first" else rng.permutation(len(frame))[:readings]
    frame["complexity.few"] = np.where(np.isin(np.arange(len(frame)), chosen), frame["gap"], np.nan)
    board = score_table(table_from_frame(frame))
    assert ("few" in board.skipped) == (readings < 2)
    for one in (alone, board):
        assert set(one.scores["score"]) == set(SCORES)
    mine, theirs = (one.scores[one.scores["measure"] == "good"] for one in (alone, board))
    pd.testing.assert_frame_equal(mine.reset_index(drop=True), theirs.reset_index(drop=True))
