"""Recorded readings that ship with genbench: what counts, what is left out, and the ranks they give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from genbench.cli.leaderboard import _folders
from genbench.errors import UserError
from genbench.leaderboard.build import Folders, build, stale
from genbench.plugin.registry import Entry, Source, load_registry
from genbench.records import references
from genbench.records.references import REFERENCES, find_references, reference_text
from genbench.records.validate import read_record
from genbench.runs.plan import Plan, make_plan
from genbench.suites.evidence_packs import find_pack, shipped_evidence
from genbench.suites.kind import kind_of
from genbench.suites.suite import load_suite

ROOT = Path(__file__).parent.parent
BOARDS = ROOT / "leaderboards"
SUITES = ["mini", "nin-fashion"]
SHA = "0" * 64

Change = Callable[[dict[str, Any]], object]


def plan_of(name: str, **options: Any) -> Plan:
    suite = load_suite(name, **options)
    return make_plan(suite, [], pack=find_pack(suite))


def board(name: str) -> dict[str, dict[str, Any]]:
    document = json.loads((BOARDS / f"{name}.json").read_text())
    return {row["measure"]: row for row in document["rows"]}


def as_published(number: float | None) -> float | None:
    """Four digits, as boards have them; more are kept, which Holm's correction needs."""
    return None if number is None else float(f"{number:.4g}")


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of mini's file, which genbench takes for the one that ships."""
    monkeypatch.setattr(references, "REFERENCES", tmp_path)
    return Path(shutil.copy(REFERENCES / "mini.json", tmp_path))


def changed(file: Path, change: Change) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def of_measure(name: str, **fields: Any) -> Change:
    """A change of what the file says of one measure."""

    def change(document: dict[str, Any]) -> None:
        found = next(one for one in document["measures"] if one["measure"]["name"] == name)
        for key, values in fields.items():
            found[key] = {**found[key], **values} if isinstance(values, Mapping) else values

    return change


# -- one list, one rank ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUITES)
def test_what_ships_is_what_the_records_of_the_board_give(name: str) -> None:
    records = [read_record(path) for path in sorted((BOARDS / "records" / name).iterdir())]
    assert {record.name for record in records} == board(name).keys()
    kind = kind_of(load_suite(name))
    shipped = json.loads((REFERENCES / f"{name}.json").read_text())
    answers = {one["measure"]["name"]: one["answers"] for one in shipped["measures"]}
    assert (REFERENCES / f"{name}.json").read_text() == reference_text(records, kind, answers)
    for measure, row in board(name).items():
        for question, answer in row["questions"].items():
            found = {key: number for key, number in answer.items() if key != "p_holm"}
            said = answers[measure].get(question, dict.fromkeys(found))
            assert {key: as_published(number) for key, number in said.items()} == found


@pytest.mark.parametrize("name", SUITES)
def test_a_run_has_the_measures_of_the_board_in_its_ranks(name: str) -> None:
    known = find_references(plan_of(name))
    # What a run asks for is read anew and scored anew; the readings are those of the record.
    anew = {"path_norm", "baseline_random", "baseline_constant", "baseline_size"}
    results = [
        replace(one, recorded=None, answers=None, reference=False) if one.name in anew else one
        for one in known.values()
    ]
    judged = shipped_evidence(name).judged(results)
    rows = board(name)
    assert {one.name: rank for rank, one in judged.ranked} == {
        measure: row["rank"] for measure, row in rows.items()
    }
    for one in judged.results:
        row = rows[one.name]["sign_error"]
        assert (one.score and round(one.score.value, 6)) == (row and row["value"]), one.name


def test_measures_of_the_run_itself_are_left_out() -> None:
    everyone = find_references(plan_of("mini"))
    assert find_references(plan_of("mini"), but=["path_norm"]).keys() == everyone.keys() - {"path_norm"}


def test_a_run_on_some_networks_gets_the_readings_of_those() -> None:
    chosen = ["mini-clip:short4", "mini-clip:short9", "mini-clip:short6"]
    known = find_references(plan_of("mini", changes={"testbed.backbones": chosen}))
    assert known.keys() == board("mini").keys()
    assert {network for one in known.values() for network in one.outcomes} == {
        f"{name}/a{k}" for name in chosen for k in range(1, 7)
    }


# -- what does not count -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(evidence=SHA),
        lambda document: document.update(subject_version=document["subject_version"] + 1),
        lambda document: document.update(schema=document["schema"] + 1),
        lambda document: document["networks"].__setitem__(0, "another"),
    ],
    ids=["other evidence", "other subject version", "other schema", "another network"],
)
def test_a_stale_file_gives_no_rows_and_no_error(mini: Path, change: Change) -> None:
    assert find_references(plan_of("mini"))
    changed(mini, change)
    assert find_references(plan_of("mini")) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["networks"].pop(),
        lambda document: document.update(unknown=1),
        lambda document: document.pop("measures"),
        of_measure("path_norm", values=[1.0]),
        of_measure("path_norm", values=["one"] * 174),
    ],
    ids=["a network less", "unknown field", "no measures", "too few values", "no numbers"],
)
def test_a_damaged_file_is_one_sentence(mini: Path, change: Change) -> None:
    changed(mini, change)
    with pytest.raises(UserError, match=r"mini\.json is damaged.*; reinstall genbench"):
        find_references(plan_of("mini"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": "\xff"}', b"null"])
def test_a_file_that_is_no_json_is_one_sentence(mini: Path, content: bytes, run: Run) -> None:
    mini.write_bytes(content)
    done = run("run", "--suite", "mini", "--measure", "params")
    assert done.returncode == 2
    assert "mini.json is damaged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_the_file_there_are_no_rows_and_no_error(mini: Path) -> None:
    mini.unlink()
    assert find_references(plan_of("mini")) == {}


def test_without_the_pack_there_are_no_rows() -> None:
    assert find_references(make_plan(load_suite("mini"), [])) == {}


def test_a_measure_recorded_in_another_version_is_left_out_alone(mini: Path) -> None:
    everyone = find_references(plan_of("mini"))
    changed(mini, of_measure("path_norm", measure={"version": "0"}))
    assert find_references(plan_of("mini")).keys() == everyone.keys() - {"path_norm"}


def test_a_measure_that_is_installed_in_another_version_is_left_out_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everyone = find_references(plan_of("mini"))
    measures = load_registry().measures
    newer = replace(measures["path_norm"].item, version="99")
    monkeypatch.setitem(measures, "path_norm", Entry(newer, measures["path_norm"].source))
    assert find_references(plan_of("mini")).keys() == everyone.keys() - {"path_norm"}


def test_a_built_in_measure_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(load_registry().measures, "path_norm")
    assert "path_norm" not in find_references(plan_of("mini"))


def test_a_plugins_measure_stays_where_the_plugin_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(load_registry().measures, "example", raising=False)
    assert "example" in find_references(plan_of("mini"))


def test_a_plugins_measure_gives_way_to_anothers_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = replace(load_registry().measures["path_norm"].item, name="example")
    source = Source("package", "mine", "someone-elses-package", "1.0", "mine")
    monkeypatch.setitem(load_registry().measures, "example", Entry(item, source))
    assert "example" not in find_references(plan_of("mini"))


# -- where they come from ----------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Boards of three records, built, with the references that they give."""
    records = tmp_path / "boards" / "records" / "mini"
    records.mkdir(parents=True)
    for name in ("path_norm", "params", "baseline_random"):
        shutil.copy(BOARDS / "records" / "mini" / f"{name}.json", records)
    made = Folders(tmp_path / "boards", records.parent, tmp_path / "references")
    build(made)
    return made


def test_check_complains_about_references_that_the_records_do_not_give(folders: Folders) -> None:
    assert folders.references is not None
    file = folders.references / "mini.json"
    assert stale(folders) == []
    text = file.read_text()
    file.write_text(text.replace('"seconds":', '"seconds": '))
    assert stale(folders) == [f"{file} is not what the records give"]
    file.unlink()
    assert stale(folders) == [f"{file} is not what the records give"]
    build(folders)
    assert file.read_text() == text


def test_answers_that_ship_are_taken_over_and_those_of_drawn_records_found_anew(
    folders: Folders, mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A p-value that nobody found: seen in the record that is drawn, and only there."""
    from genbench.leaderboard import build as building

    made = json.loads((folders.boards / "mini.json").read_text())
    true = {row["measure"]: row["questions"]["chance"]["p"] for row in made["rows"]}
    own = json.loads(mini.read_text())
    wrong = {one["measure"]["name"]: one["answers"] for one in own["measures"]}["path_norm"]
    wrong["chance"]["p"] = 0.9
    changed(mini, of_measure("path_norm", answers=wrong))
    monkeypatch.setattr(building, "SPOT_CHECKS", 0)
    build(folders)
    made = json.loads((folders.boards / "mini.json").read_text())
    found = {row["measure"]: row["questions"]["chance"]["p"] for row in made["rows"]}
    assert found == {**true, "path_norm": 0.9}
    monkeypatch.setattr(building, "SPOT_CHECKS", 3)
    assert f"{folders.boards / 'mini.json'} is stale or was edited by hand" in stale(folders)
    assert f"{folders.boards / 'mini.json'} is stale or was edited by hand" in stale(folders, full=True)


@pytest.mark.parametrize("change", ["values", "measure"])
def test_answers_are_for_the_very_readings_of_a_record(folders: Folders, mini: Path, change: str) -> None:
    records = [read_record(path) for path in sorted((folders.records / "mini").iterdir())]
    kind = kind_of(load_suite("mini"))
    names = {record.name for record in records}
    assert references.recorded_answers(records, kind).keys() == names
    own = {one["measure"]["name"]: one for one in json.loads(mini.read_text())["measures"]}["params"]
    if change == "values":
        other: dict[str, Any] = {"values": [own["values"][0] + 1, *own["values"][1:]]}
    else:
        other = {"measure": {**own["measure"], "version": "99"}}
    changed(mini, of_measure("params", **other))
    assert references.recorded_answers(records, kind).keys() == names - {"params"}
    mini.unlink()
    assert references.recorded_answers(records, kind) == {}


def test_only_the_boards_of_the_checkout_make_what_ships(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    assert _folders(Path("leaderboards"), None).references == REFERENCES
    assert _folders(tmp_path, None).references is None
    assert _folders(Path("leaderboards"), tmp_path).references is None
