"""Boards of populations: records judged from their readings, forgeries refused, the table published."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from conftest import Run
from population_records import SUITE, population_evidence, population_records
from shown_boards import ShownBoards
from shown_boards import write_population as write

from genbench.errors import UserError
from genbench.leaderboard.board import Board, board_document
from genbench.leaderboard.build import Folders
from genbench.leaderboard.export import export
from genbench.records.convert import convert
from genbench.records.record import Record
from genbench.records.results import result_of
from genbench.records.validate import judged_records, read_record
from genbench.records.write import body_hash
from genbench.scoring import read_table, robust_sign_error
from genbench.scoring.all_scores import SCORES, score_table
from genbench.scoring.population import SHOWN, PopulationScore, population_scores, scores_frame

pytestmark = pytest.mark.xdist_group("site")  # these records are judged there too

COMMITTED = Path(__file__).parent.parent / "leaderboards"


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return population_records()


@pytest.fixture(scope="module")
def boards(shown_boards: ShownBoards) -> Folders:
    return shown_boards.folders


@pytest.fixture(scope="module")
def board(shown_boards: ShownBoards) -> Board:
    return shown_boards.boards[SUITE]


def test_the_board_shows_every_score(board: Board) -> None:
    rows = {row.name: row for row in board.rows}
    assert board.rows[0].name == "near_the_gap"
    assert rows["silent"].score is None
    score = rows["near_the_gap"].score
    assert isinstance(score, PopulationScore)
    assert score.low <= score.value <= score.high < 0.2
    document = board_document(board).rows[0].sign_error
    assert document.keys() == {
        "value", "low", "high", "image_low", "image_high", "dropped", *(column.label for column in SHOWN)
    }  # fmt: skip
    assert document["max"] >= document["90th %"] >= document["value"] >= 0
    assert all(isinstance(document[column.label], float) for column in SHOWN)
    assert rows["hostile"].score is not None
    assert rows["hostile"].score.dropped == 320 - sum(
        not row["converged"] for row in population_evidence().rows.values() if row["hp.depth"] == 2
    )


def test_the_evidence_page_names_settings_that_move_the_gap_one_way_everywhere(boards: Folders) -> None:
    rows = pd.DataFrame([row for row in population_evidence().rows.values() if row["converged"]])
    settings = [name for name in rows if name.startswith("hp.") and name != "hp.train_size"]
    means = rows.groupby([*settings, "hp.train_size"])["gap"].mean().unstack()
    for smaller in (96, 192):
        both = means[[smaller, 384]].dropna()
        assert len(both) >= 8
        assert (both[smaller] > both[384]).all()
    page = (boards.boards / "site" / SUITE / "evidence.html").read_text()
    (sentence,) = re.findall("Which way it moves the gap is the same everywhere for (.*?):", page)
    named = sentence.split(", ")
    assert "train_size" in named
    # Another block helps some networks and harms others.
    assert "depth" not in named


def test_the_published_table_gives_the_published_scores(board: Board, boards: Folders) -> None:
    """`genbench score` on the board's CSV: what a reader can do without this code's evidence."""
    known = {row.name: row.record.measure for row in board.rows}
    table = read_table(boards.boards / f"{SUITE}.csv", known_measures=known)
    found = population_scores(score_table(table))
    for row in board.rows:
        if isinstance(row.score, PopulationScore):
            assert_same_numbers(found[row.name].scores, row.score.scores)


def assert_same_numbers(one: Any, other: Any) -> None:
    assert [row[:4] for row in one] == [row[:4] for row in other]
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine[4:7], theirs[4:7], strict=True):
            assert (a is None) == (b is None), mine
            assert a is None or a == pytest.approx(b, abs=1e-9), mine


def test_a_measure_has_the_same_scores_whatever_stands_beside_it(records: list[dict[str, Any]]) -> None:
    evidence = population_evidence()
    results = [result_of(convert(record, Record)) for record in records]
    (alone,) = [one.score for one in evidence.judge(results[1:2]).results]
    together = evidence.judge(results).results[1].score
    assert_same_numbers(alone.scores, together.scores)
    np.testing.assert_allclose(alone.resampled, together.resampled, atol=1e-9)


def test_every_interval_contains_its_value(records: list[dict[str, Any]]) -> None:
    checked = 0
    for record in records:
        for row in (record["sign_error"] or {"scores": []})["scores"]:
            value, low, high = row[4:7]
            if value is not None and low is not None:
                assert low <= value <= high, row
                checked += 1
    assert checked > 100


def test_recorded_scores_become_the_table_they_came_from(records: list[dict[str, Any]]) -> None:
    frame = scores_frame({r["measure"]["name"]: r["sign_error"]["scores"] for r in records[:2]})
    assert set(frame["score"]) == set(SCORES)
    evidence = population_evidence()
    again = robust_sign_error(
        evidence.network_table([result_of(convert(record, Record)) for record in records[:2]])
    )
    mine = frame[frame["score"] == "sign_error"].sort_values(["measure", "part", "statistic"])
    theirs = again.sort_values(["measure", "part", "statistic"])
    np.testing.assert_allclose(mine["value"].to_numpy(), theirs["value"].to_numpy(), atol=1e-12)


# -- forgeries ---------------------------------------------------------------------------------------


def better_headline(record: dict[str, Any]) -> None:
    record["sign_error"]["value"] = 0.0


def better_kendall(record: dict[str, Any]) -> None:
    row = next(row for row in record["sign_error"]["scores"] if row[0] == "kendall" and row[3] == "Psi")
    row[4] = row[4] + 0.01


def fewer_failures(record: dict[str, Any]) -> None:
    record["sign_error"]["worst"] = record["sign_error"]["worst"][1:]


def a_score_left_out(record: dict[str, Any]) -> None:
    record["sign_error"]["scores"] = record["sign_error"]["scores"][:-1]


def better_reading(record: dict[str, Any]) -> None:
    label = next(label for label, row in population_evidence().rows.items() if row["converged"])
    next(r for r in record["readings"] if r["subject"] == label)["value"] *= 50


def other_networks(record: dict[str, Any]) -> None:
    first = next(iter(record["provenance"]["networks"]))
    record["provenance"]["networks"][first] = "f" * 64


def a_network_left_out(record: dict[str, Any]) -> None:
    record["readings"] = record["readings"][1:]
    record["statuses"] = {"ok": len(record["readings"])}
    record["cost"] = {"seconds": 0.5 * 1279, "shared_seconds": 0.25 * 1279, "peak_bytes": 1000}


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (better_headline, "its scores are not what its readings give"),
        (better_kendall, "its scores are not what its readings give"),
        (fewer_failures, "its scores are not what its readings give"),
        (a_score_left_out, "its scores are not what its readings give"),
        (better_reading, "its scores are not what its readings give"),
        (other_networks, "its networks or data are not those of the evidence pack"),
        (a_network_left_out, "its readings are not one for each network of the suite"),
    ],
)
def test_a_forged_record_is_refused(
    records: list[dict[str, Any]], tmp_path: Path, forge: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    """Even with the hash made anew."""
    # The measure that is wrong here and there: it has failures that a forger would leave out.
    record = copy.deepcopy(records[0])
    forge(record)
    record["sha256"] = body_hash(record)
    with pytest.raises(UserError, match=sentence):
        read_record(write(tmp_path, record), population_evidence())


@pytest.mark.parametrize("forge", [better_headline, fewer_failures, better_reading])
def test_what_boards_rank_by_is_computed_anew_at_every_check(
    records: list[dict[str, Any]], tmp_path: Path, forge: Callable[[dict[str, Any]], None]
) -> None:
    record = copy.deepcopy(records[0])
    forge(record)
    record["sha256"] = body_hash(record)
    with pytest.raises(UserError, match="its scores are not what its readings give"):
        judged_records([write(tmp_path, record)], population_evidence(), spot_checks=0)


def test_slow_scores_are_computed_anew_of_the_records_drawn(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    record = copy.deepcopy(records[0])
    better_kendall(record)
    record["sha256"] = body_hash(record)
    path = write(tmp_path, record)
    assert len(judged_records([path], population_evidence(), spot_checks=0).records) == 1
    with pytest.raises(UserError, match="its scores are not what its readings give"):
        judged_records([path], population_evidence(), spot_checks=1)


def test_a_sound_record_is_taken(records: list[dict[str, Any]], tmp_path: Path) -> None:
    paths = [write(tmp_path, record) for record in records]
    found = judged_records(paths, population_evidence())
    # What most readings have goes without saying; of a processor, nothing said is unknown.
    for record in records:
        record["provenance"]["platform"].setdefault("processor", "")
        unsaid = {"status": "ok", "reason": "", "value": None, "detail": {}}
        record["readings"] = [
            {name: value for name, value in one.items() if name not in unsaid or value != unsaid[name]}
            for one in record["readings"]
        ]
    assert [msgspec.to_builtins(record) for record in found.records] == records


def test_the_paper_kit_of_a_population(board: Board, boards: Folders, tmp_path: Path) -> None:
    files = {path.name: path for path in export(board, "near_the_gap", boards.records, tmp_path)}
    assert {"table.tex", "papers.bib", "near_the_gap.pdf", "sign-errors.pdf", "iid-ood.pdf"} <= files.keys()
    assert {"noise-filter.pdf", "pairs-of-values.pdf"} <= files.keys()
    table = files["table.tex"].read_text()
    assert r"$\Psi$ OOD" in table
    assert table.count(r"\\") == 3  # head, the measure, one baseline
    bib = files["papers.bib"].read_text()
    assert all(number in bib for number in ("2510.18934", "2010.11924", "2602.01718", "2106.04765"))


# -- what is committed -------------------------------------------------------------------------------


def test_score_on_the_committed_table_reproduces_the_committed_board(run: Run) -> None:
    numbers = {}
    # Intervals of the headline alone: those of the others are held to their records by `leaderboard check`.
    for scores, resamples in (("sign_error", "1000"), ("kendall,independence,pgdl,cms", "0")):
        words = ("score", COMMITTED / f"{SUITE}.csv", "--score", scores, "--resamples", resamples, "--json")
        done = run(*words)
        assert done.returncode == 0, done.stderr
        for row in json.loads(done.stdout)["scores"]:
            numbers[row["measure"], row["score"], row["target"], row["part"], row["statistic"]] = row
    rows = json.loads((COMMITTED / f"{SUITE}.json").read_text())["rows"]
    assert len(rows) == len(list((COMMITTED / "records" / SUITE).iterdir()))
    for row in rows:
        score = row["sign_error"]
        if score is None:  # colours of grey images
            assert row["measure"] not in {key[0] for key in numbers}
            continue
        mean = numbers[row["measure"], "sign_error", "gap", "all", "mean"]
        for key, shown in (("value", "value"), ("low", "image_low"), ("high", "image_high")):
            assert mean[key] == pytest.approx(score[shown], abs=1e-6)
        for column in SHOWN:
            target = "gap_ood_corrupted" if column.target == "ood" else column.target
            found = numbers[row["measure"], column.score, target, column.part, column.statistic]["value"]
            published = score[column.label]
            assert found == (None if published is None else pytest.approx(published, abs=1e-6))
