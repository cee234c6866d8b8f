"""Audits as records: refused where they do not hold, shown on boards, in papers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_audit_pack import AUDITS
from test_records import make_record, numbers, write
from test_site import Page

from genbench.audit.records import AuditEvidence, audit_evidence, read_audit, read_audits, write_audits
from genbench.errors import UserError
from genbench.leaderboard.board import read_boards
from genbench.leaderboard.build import Folders, build, stale
from genbench.leaderboard.export import export


@pytest.fixture(scope="module")
def evidence() -> AuditEvidence:
    return audit_evidence()


def changed(folder: Path, name: str = "path_norm", source: str = "path_norm", **fields: Any) -> Path:
    """A record with other fields."""
    folder.mkdir(parents=True, exist_ok=True)
    record = json.loads((AUDITS / f"{source}.json").read_text()) | {"measure": name} | fields
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record))
    return path


def test_a_record_is_written_as_it_was_read(evidence: AuditEvidence, tmp_path: Path) -> None:
    audits = [read_audit(AUDITS / f"{name}.json", evidence) for name in ("path_norm", "baseline_random")]
    for path in write_audits(audits, tmp_path, evidence.pack):
        assert path.read_bytes() == (AUDITS / path.name).read_bytes()
    # Read with three draws of shared parts, of the first network of each stressor.
    assert len(json.loads((AUDITS / "baseline_random.json").read_text())["readings"]["repeats"]) == 8


def _other_verdict(record: dict[str, Any]) -> None:
    record["stressors"][0]["verdict"] = "robust"


def _more_survived(record: dict[str, Any]) -> None:
    record["survived"] += 1


def _other_readings(record: dict[str, Any]) -> None:
    record["readings"]["values"] = [1.0] * len(record["readings"]["values"])


def _fewer_readings(record: dict[str, Any]) -> None:
    record["readings"]["values"].pop()


def _no_reason(record: dict[str, Any]) -> None:
    record["readings"]["values"][3] = None


def _other_pack(record: dict[str, Any]) -> None:
    record["pack"] = "audit v0 (000000000000)"


def _other_name(record: dict[str, Any]) -> None:
    record["measure"] = "params"


def _unknown_field(record: dict[str, Any]) -> None:
    record["more"] = 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_other_verdict, "not those that its readings give"),
        (_more_survived, "not those that its readings give"),
        (_other_readings, "not those that its readings give"),
        (_fewer_readings, "of each of 558 networks"),
        (_no_reason, "of each of 558 networks"),
        (_other_pack, "audit it again"),
        (_other_name, "its name must be that of the measure"),
        (_unknown_field, "is not a record of an audit"),
    ],
)
def test_a_record_that_does_not_hold_is_refused(
    evidence: AuditEvidence, tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    record = json.loads((AUDITS / "path_norm.json").read_text())
    change(record)
    path = tmp_path / "path_norm.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match=sentence):
        read_audit(path, evidence)


def test_nothing_else_may_lie_among_audits(tmp_path: Path) -> None:
    assert read_audits(tmp_path / "none") == {}
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="plain files"):
        read_audits(tmp_path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Boards of three measures: one with an audit, one with that of another version, one with none."""
    folder = tmp_path_factory.mktemp("audited")
    for seed, name in enumerate(("path_norm", "params", "fro_dist")):
        write(folder / "records", make_record(name, numbers(seed)))
    shutil.copytree(AUDITS, folder / "audits", ignore=lambda _, names: set(names) - {"path_norm.json"})
    changed(folder / "audits", "params", "params", version="0")
    made = Folders(folder, folder / "records", site=folder / "site")
    build(made)
    return made


def test_boards_count_what_a_measure_survives(folders: Folders) -> None:
    lines = (folders.boards / "mini.md").read_text().splitlines()
    (head,) = (line for line in lines if line.startswith("| rank"))
    place = [cell.strip() for cell in head.split("|")].index("survives")
    shown = {
        cells[2].replace("\\", ""): cells[place]
        for line in lines
        if line.startswith("| ")
        for cells in [[cell.strip() for cell in line.split("|")]]
    }
    said = json.loads((AUDITS / "path_norm.json").read_text())["survived"]
    assert (shown["path_norm"], shown["params"], shown["fro_dist"]) == (f"{said} of 8", "–", "–")
    rows = {row["measure"]: row for row in json.loads((folders.boards / "mini.json").read_text())["rows"]}
    assert rows["path_norm"]["survived"] == said
    assert rows["path_norm"]["audit"]["drift"] == "fragile"
    assert "audit" not in rows["fro_dist"]
    matrix = (folders.boards / "audits.md").read_text()
    assert "path\\_norm" in matrix
    assert "fro\\_dist" not in matrix
    assert stale(folders) == []


def test_the_site_has_the_card_and_the_matrix(folders: Folders) -> None:
    assert folders.site is not None
    for path in folders.site.rglob("*.html"):
        Page(path)  # every element is closed
    board, matrix = ((folders.site / name).read_text() for name in ("mini/index.html", "audits.html"))
    assert board.count('data-value="">–</td>') == 2
    assert "4 of 8" in board
    for name in ("path_norm", "params", "fro_dist"):
        assert f"mini/measures/{name}.html" in matrix
    assert "drift after interpolation" in matrix
    page = (folders.site / "mini/measures/path_norm.html").read_text()
    assert "It survives 4 of 8 stressors" in page
    assert "four dead units added" in page
    for one in json.loads((AUDITS / "path_norm.json").read_text())["stressors"]:
        assert one["why"] in page
    assert "Is it fragile?" not in (folders.site / "mini/measures/params.html").read_text()


def test_boards_without_audits_do_not_speak_of_them(tmp_path: Path) -> None:
    write(tmp_path / "records", make_record("path_norm", numbers(1)))
    write(tmp_path / "records", make_record("params", numbers(2)))
    build(Folders(tmp_path, tmp_path / "records", site=tmp_path / "site"))
    assert not (tmp_path / "audits.md").exists()
    assert not (tmp_path / "site" / "audits.html").exists()
    assert "survives" not in (tmp_path / "mini.md").read_text()
    assert "survives" not in (tmp_path / "site" / "mini" / "index.html").read_text()


def test_a_paper_has_the_table_and_the_figures(folders: Folders, tmp_path: Path) -> None:
    (board,) = read_boards(folders.records, folders.trust, audits=folders.audits)
    files = {path.name for path in export(board, "path_norm", folders.records, tmp_path)}
    stressors = ("slope", "drift", "hysteresis", "labels", "tasks", "exp", "spread")
    assert files >= {
        "path_norm-audit.tex",
        "path_norm-audit.json",
        *(f"path_norm-{s}.pdf" for s in stressors),
    }
    table = (tmp_path / "path_norm-audit.tex").read_text()
    assert table.count(r"\\") == 9  # the head and eight stressors
    assert "Zhang" in (tmp_path / "papers.bib").read_text()
