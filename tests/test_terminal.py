"""What commands look like on terminals of 80, 120 and 200 columns, and in a pipe."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from conftest import in_process
from terminal import INTERVAL, broken_lines, on_terminal

ROOT = Path(__file__).parents[1]
WIDTHS = [80, 120, 200]
LONG = "a_rather_long_name_of_a_measure_of_mine"

# The store of those who read the documents has the networks and readings that are shown here.
pytestmark = pytest.mark.xdist_group("documents")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a table of runs, and readings of three measures of every network of nin-fashion."""
    made = tmp_path_factory.mktemp("terminal")
    (made / "leaderboards").symlink_to(ROOT / "leaderboards")
    known = json.loads(in_process("networks", "--suite", "nin-fashion", "--json", cwd=made).stdout)
    with (made / "readings.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["network", LONG, "weights", "constant"])
        table.writerows((one["network"], -one["weights"], one["weights"], 1) for one in known)
    return made


RUN = ("run", "--measure", "path_norm")
SCORE = ("score", "leaderboards/nin-fashion.csv", "--score", "sign_error", "--measures", "*norm")
JUDGE = ("judge", "readings.csv", "--suite", "nin-fashion", "--permutations", "1000")
AUDIT = ("audit", "--measure", "params", "--stressor", "exp", "--quick", "--no-card")


def seen(words: tuple[str, ...], columns: int, folder: Path, store: Path) -> str:
    """What is shown; no line is wider than the terminal, and no interval broken over two."""
    lines = on_terminal(*words, columns=columns, cwd=folder, store=store)
    paths = [line for line in lines if line.startswith(("store: ", "report: "))]
    assert broken_lines([line for line in lines if line not in paths], columns) == []
    return "\n".join(lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_run(columns: int, tmp_path: Path, readers_store: Path) -> None:
    shown = seen(RUN, columns, tmp_path, readers_store)
    assert "→ path_norm" in shown
    board = json.loads((Path(__file__).parent.parent / "leaderboards" / "mini.json").read_text())
    score = next(row["sign_error"] for row in board["rows"] if row["measure"] == "path_norm")
    assert f"{score['low']:.3f}–{score['high']:.3f}" in shown, "the interval of the board's row"
    assert f"{score['low']:.3f} – {score['high']:.3f}" in shown


@pytest.mark.parametrize("columns", WIDTHS)
def test_score(columns: int, folder: Path, readers_store: Path) -> None:
    shown = seen(SCORE, columns, folder, readers_store)
    row = next(line for line in shown.splitlines() if line.strip().startswith("path_norm"))
    assert row.count("[") == row.count("]") == (2 if columns == 80 else 3)
    # Eight settings take more columns than any terminal has.
    assert "a wider terminal shows" in shown, "what there is no room for is said"


@pytest.mark.parametrize("columns", WIDTHS)
def test_judge(columns: int, folder: Path, readers_store: Path) -> None:
    shown = seen(JUDGE, columns, folder, readers_store)
    row = next(line for line in shown.splitlines() if LONG in line)
    assert len(INTERVAL.findall(row)) == 1
    assert ("chance" if columns == 80 else "✓") in row, "the answer is there at any width"
    assert ("a wider terminal shows" in shown) == (columns < 200)


@pytest.mark.parametrize("columns", WIDTHS)
def test_measures(columns: int, tmp_path: Path, readers_store: Path) -> None:
    shown = seen(("measures",), columns, tmp_path, readers_store)
    assert "margin_normalized_param_norm" in shown
    lines = shown.splitlines()
    # Summaries are of some ten words: more than three lines each cannot be read.
    assert len(lines) < 3 * sum(line.startswith("  ") and line[2] != " " for line in lines)
    assert ("category" in lines[1]) == (columns > 80)
    assert ("a wider terminal shows" in shown) == (columns < 200)


@pytest.mark.parametrize("columns", WIDTHS)
def test_audit(columns: int, tmp_path: Path, readers_store: Path) -> None:
    shown = seen(AUDIT, columns, tmp_path, readers_store)
    assert "robust" in shown


@pytest.mark.parametrize("words", [SCORE, JUDGE, ("measures",), AUDIT], ids=lambda words: words[0])
def test_in_a_pipe_rows_are_lines_of_tabs(words: tuple[str, ...], folder: Path, readers_store: Path) -> None:
    """All columns, each row in one line, no frames, no bars and no colours; notes go to the other stream."""
    done = in_process(*words, cwd=folder, settings={"GENBENCH_STORE": str(readers_store)})
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "─", "━", "│"} & {*done.stdout, *done.stderr}
    parts = [block.splitlines() for block in done.stdout.split("\n# ")]
    head = next(line for line in parts[0] if "\t" in line)
    rows = [line for line in parts[0] if line.count("\t") == head.count("\t")]
    assert len(rows) >= 2
    assert "a wider terminal" not in done.stderr
