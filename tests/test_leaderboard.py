"""Leaderboards: from records to tables, what is stale, what can be reproduced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from test_records import make_record, numbers, scored_records, write

from genbench.leaderboard.board import read_boards
from genbench.leaderboard.build import Folders, build, stale
from genbench.leaderboard.export import export
from genbench.leaderboard.recompute import what_differs
from genbench.records.convert import convert
from genbench.records.record import Record
from genbench.records.validate import read_record
from genbench.records.write import record_text
from genbench.suites.evidence_packs import shipped_evidence

COMMITTED = Path(__file__).parent.parent / "leaderboards"
HOSTILE = (
    """<script>document.title = "owned"</script> | [x](javascript:alert(1)) ![](http://evil.example/x.png)"""
)


def records() -> list[dict[str, Any]]:
    """A baseline, four measures, one without a value and one that means harm."""
    nothing: dict[str, float | None] = dict.fromkeys(numbers(0), None)
    some = {s: v if "clip" in s else None for s, v in numbers(3).items()}
    return [
        make_record("baseline_size", {s: float(i) for i, s in enumerate(numbers(0))}, category="baseline"),
        make_record("first", numbers(1), category="margin"),
        make_record("second", numbers(2), higher_means="better"),
        make_record("twin_of_second", {s: 2 * v for s, v in numbers(2).items() if v}, higher_means="better"),
        make_record("clip_only", some, paper="001 (27)"),
        make_record("silent", nothing),
        make_record(
            "hostile", numbers(4), summary=HOSTILE, description=f"{HOSTILE}\n\n{HOSTILE}",
            category='<b onmouseover="x">', paper="<i>5</i>", version="</script>",
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Boards of those records; copy them, never change them."""
    folder = tmp_path_factory.mktemp("boards")
    for record in records():
        write(folder / "records", record)
    folders = Folders(folder, folder / "records", site=folder / "site")
    build(folders)
    return folders


@pytest.fixture
def boards(built, tmp_path) -> Folders:
    shutil.copytree(built.boards, tmp_path / "boards")
    folder = tmp_path / "boards"
    return Folders(folder, folder / "records", site=folder / "site")


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_rebuilding_gives_the_same_bytes(boards) -> None:
    before = content(boards.boards)
    assert {"mini.json", "mini.md", "site/index.html", "site/mini/measures/first.html"} <= before.keys()
    for name in ("mini.json", "mini.md"):
        (boards.boards / name).unlink()
    shutil.rmtree(boards.boards / "site")
    build(boards)
    assert content(boards.boards) == before
    assert stale(boards) == []


def test_the_check_names_what_is_stale(boards, run: Run) -> None:
    assert stale(boards) == []
    board = boards.boards / "mini.json"
    board.write_text(board.read_text().replace("first", "worst"))
    (boards.boards / "mini.md").unlink()
    (boards.boards / "other.json").write_text('{"genbench": "0.1", "suite": "other", "rows": []}')
    done = run("leaderboard", "check", "--to", boards.boards)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{board} is stale or was edited by hand",
        f"{boards.boards}/mini.md is missing",
        f"{boards.boards}/other.json is not made from any record",
    ]
    build(boards)
    assert stale(boards) == []
    (boards.records / "mini" / "first.json").unlink()
    assert f"{board} is stale or was edited by hand" in stale(boards)
    build(boards)
    assert not (boards.boards / "site" / "mini" / "measures" / "first.html").exists()


def test_what_others_put_beside_the_boards_stays(boards, run: Run) -> None:
    mine = {
        "package.json": "{}",
        "rows.json": '{"rows": [], "suite": "x", "genbench": 1}',
        "notes.csv": "a,b",
    }
    for name, text in mine.items():
        (boards.boards / name).write_text(text)
    build(boards)
    assert {name: (boards.boards / name).read_text() for name in mine} == mine
    assert stale(boards) == []
    shutil.rmtree(boards.boards / "site")
    (boards.boards / "site").mkdir()
    (boards.boards / "site" / "index.html").write_text("my own pages")
    done = run("leaderboard", "build", "--to", boards.boards, "--site", boards.boards / "site")
    assert done.returncode == 2
    assert "is not a site that genbench made; give another folder with --site" in done.stderr
    assert (boards.boards / "site" / "index.html").read_text() == "my own pages"


def test_a_tampered_record_stops_the_build_in_one_sentence(boards, run: Run) -> None:
    path = boards.records / "mini" / "first.json"
    path.write_text(path.read_text().replace('"status": "ok"', '"status": "failed"', 1))
    done = run("leaderboard", "build", "--to", boards.boards)
    assert done.returncode == 2
    assert "changed after it was written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_document_has_the_ranks_and_ties_of_the_rows(built) -> None:
    (board,) = read_boards(built.records, built.trust)
    rows = {row.name: row for row in board.rows}
    assert rows["baseline_size"].baseline
    document = json.loads((built.boards / "mini.json").read_text())
    assert [(row["measure"], row["rank"], row["tied_with"]) for row in document["rows"]] == [
        (row.name, row.rank, row.tied) for row in board.rows
    ]
    assert document["rows"][0]["sign_error"].keys() >= {"value", "robustness", "zero-shot", "noise-aware"}
    assert rows["clip_only"].score is not None
    assert rows["clip_only"].score.dropped == 84


def test_a_plugin_that_calls_itself_a_baseline_is_none(tmp_path) -> None:
    write(tmp_path / "records", make_record("mine", numbers(0), category="baseline"))
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    assert not board.rows[0].baseline


def test_hostile_texts_are_harmless_in_markdown(built) -> None:
    text = (built.boards / "mini.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 7
    assert "<script" not in text
    assert "<b " not in text
    assert "](javascript" not in text
    assert "![](" not in text
    import re

    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {16}, "no cell opens another"


# -- with real readings ------------------------------------------------------------------------------


@pytest.mark.xdist_group("quick_store")
def test_what_is_stored_is_recorded_in_the_same_bytes_again(quick_store, run: Run, tmp_path) -> None:
    shutil.copytree(quick_store, tmp_path / "store")
    texts = []
    for folder in ("first", "second"):
        done = run(
            "run", "-s", "mini-quick", "-m", "params", "--store", "store", "--records", folder, "--json"
        )
        assert done.returncode == 0, done.stderr
        texts.append(content(tmp_path / folder))
    assert texts[0] == texts[1]
    names = ("baseline_constant", "baseline_random", "baseline_size", "params")
    assert sorted(texts[0]) == [f"mini-quick/{name}.json" for name in names]
    record = read_record(tmp_path / "first" / "mini-quick" / "params.json")
    assert record.statuses == {"ok": 6}
    assert record.evidence is None, "built here, not out of a pack"
    assert record.provenance.command == "genbench run --suite mini-quick --measure params"
    done = run("leaderboard", "build", "--records", "first", "--to", "boards")
    assert done.returncode == 2
    assert "ships no evidence pack" in done.stderr


@pytest.mark.slow
def test_a_row_is_computed_again_and_a_forged_reading_found_out(few: Path, run: Run, tmp_path) -> None:
    """A forger who recomputes scores and hash passes every check but this one."""
    record = json.loads((few / "records" / "few" / "params.json").read_text())
    record["readings"][2]["value"] *= 1.01
    record["provenance"]["packages"] = {"torch": "1"}
    (forged,) = scored_records([record], shipped_evidence("few"))
    path = tmp_path / "leaderboards" / "records" / "few" / "params.json"
    path.parent.mkdir(parents=True)
    path.write_text(record_text(forged))
    build(Folders(tmp_path / "leaderboards", tmp_path / "leaderboards" / "records"))
    done = run("reproduce", "leaderboards/few.json#params")
    assert done.returncode == 1, done.stderr
    assert "5 of 6 readings agree to the bit; NOT reproduced" in done.stdout
    assert "torch was 1 and is" in done.stdout


def test_what_differs_is_said() -> None:
    from genbench.plugin.registry import load_registry

    record = make_record("params", numbers(1))
    record["provenance"]["packages"]["numpy"] = "0.1"
    found = what_differs(convert(record, Record), load_registry().measures["params"])
    assert found[0].startswith("numpy was 0.1 and is ")
    assert found[-1] == "the source code of the measure is another"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("mini.json", "names no row"),
        ("nowhere.json#params", "cannot be read"),
        ("mini.md#params", "is not a board"),
        ("mini.json#firts", "did you mean 'first'"),
        ("mini.json#first", "is not installed here"),
    ],
)
def test_reproducing_what_cannot_be_is_one_sentence(built, run: Run, row, sentence) -> None:
    done = run("reproduce", f"{built.boards}/{row}")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


# -- the paper kit -----------------------------------------------------------------------------------


def test_the_paper_kit(built, run: Run, tmp_path) -> None:
    arguments = ("export", "--measure", "clip_only", "--records", built.records, "--to", "kit")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    kit = content(tmp_path / "kit")
    names = {"table.tex", "papers.bib", "clip_only.pdf", "sign-errors.pdf", "records/clip_only.json"}
    assert names <= kit.keys()
    assert b"\\textbf{\\texttt{clip\\_only}}" in kit["table.tex"]
    assert b"baseline\\_size" in kit["table.tex"]
    assert b"2010.11924" in kit["papers.bib"]
    assert b"2409.01498" in kit["papers.bib"]
    assert all(kit[name].startswith(b"%PDF") for name in kit if name.endswith(".pdf"))
    (board,) = read_boards(built.records, built.trust)
    export(board, "clip_only", built.records, tmp_path / "again")
    assert content(tmp_path / "again") == kit, "the same bytes again"


# -- what is committed -------------------------------------------------------------------------------


@pytest.mark.skipif(not (COMMITTED / "records").is_dir(), reason="no records are committed yet")
def test_the_committed_boards_are_what_the_committed_records_give() -> None:
    assert stale(Folders(COMMITTED, COMMITTED / "records")) == []
