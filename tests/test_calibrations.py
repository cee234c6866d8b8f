"""Calibrations that boards show: written by the command, read with care, shown where readers look."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from test_leaderboard import Folders, build
from test_records import make_record, numbers, write

from genbench.errors import UserError
from genbench.leaderboard.calibrations import read_calibration
from genbench.scoring.empty_measures import EMPTY
from genbench.scoring.questions import QUESTIONS
from genbench.suites.evidence_packs import shipped_evidence

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def calibrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the command writes them, of few measures."""
    from conftest import in_process

    folder = tmp_path_factory.mktemp("calibrated")
    words = (
        "calibrate",
        "--measures",
        20,
        "--permutations",
        1000,
        "--records",
        folder / "calibrations",
        "--json",
    )
    done = in_process(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"written: {folder}/calibrations/mini.json" in done.stderr
    printed, kept = json.loads(done.stdout), json.loads((folder / "calibrations" / "mini.json").read_text())
    assert printed["false_passes"] == kept["found"]["false_passes"]
    return folder / "calibrations"


def test_every_kind_and_question_has_its_share(calibrations: Path) -> None:
    found = read_calibration(calibrations, shipped_evidence("mini"))
    assert found is not None
    assert [kind for kind, _ in found.rows] == [one.name for one in EMPTY]
    for kind, (_, shares) in zip(EMPTY, found.rows, strict=True):
        assert [bool(share) for share in shares] == [question in kind.must_fail for question in QUESTIONS]
    largest = max(float(s.strip("%")) for _, shares in found.rows for s in shares if s)
    assert f"at most {largest:.1f}% pass" in found.sentence


def test_the_board_and_its_pages_show_it(calibrations: Path, tmp_path: Path) -> None:
    folders = Folders(tmp_path, tmp_path / "records", site=tmp_path / "site")
    write(folders.records, make_record("mine", numbers(0)))
    build(folders)
    assert "calibration" not in json.loads((tmp_path / "mini.json").read_text())
    shutil.copytree(calibrations, folders.calibrations)
    build(folders)
    found = read_calibration(calibrations, shipped_evidence("mini"))
    assert found is not None
    shown = json.loads((tmp_path / "mini.json").read_text())["calibration"]
    assert len(shown["false_passes"]) == sum(len(kind.must_fail) for kind in EMPTY)
    assert found.sentence in (tmp_path / "mini.md").read_text()
    page = (tmp_path / "site" / "mini" / "evidence.html").read_text()
    assert "Can the answers be trusted?" in page
    assert all(f'<th scope="row">{kind.name}</th>' in page for kind in EMPTY)
    assert found.sentence in (tmp_path / "site" / "mini" / "index.html").read_text()


def changed(document: dict[str, Any], **fields: Any) -> str:
    return json.dumps({**document, **fields})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"evidence": "0" * 64}, "was made with other evidence than the pack that ships"),
        ({"suite": "other"}, "was made with other evidence"),
        ({"found": {}}, "is not what `genbench calibrate` writes"),
        ({"extra": 1}, "is not what `genbench calibrate` writes"),
        ({"padding": "x" * 2**20}, "is larger than any calibration"),
    ],
)
def test_what_does_not_fit_is_refused(
    calibrations: Path, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    document = json.loads((calibrations / "mini.json").read_text())
    (tmp_path / "mini.json").write_text(changed(document, **fields))
    with pytest.raises(UserError, match=sentence):
        read_calibration(tmp_path, shipped_evidence("mini"))


def test_a_changed_suite_is_kept_nowhere(run: Run, tmp_path: Path) -> None:
    words = ("calibrate", "--measures", 10, "--permutations", 1000, "--set", "testbed.kappa=cohen")
    done = run(*words, "--records", tmp_path / "kept")
    assert done.returncode == 2
    assert "its calibration holds for no board" in done.stderr
    assert not (tmp_path / "kept").exists()
