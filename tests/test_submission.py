"""Joining the leaderboard: a plugin of the tree gets its rows, and nothing that was submitted is believed."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from few import RECORDED, SUITE

from genbench.audit.plan import AuditPlan
from genbench.audit.records import audit_evidence, read_audit
from genbench.audit.setups import STRESSORS
from genbench.authoring.package import package_files, write_files
from genbench.engine.guard import Limits
from genbench.errors import UserError
from genbench.leaderboard import submission
from genbench.leaderboard.build import Folders, build, stale
from genbench.leaderboard.submission import accept, pending
from genbench.leaderboard.tree import read_tree
from genbench.leaderboard.trust import Conformance
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry
from genbench.records.validate import read_record
from genbench.records.write import body_hash, record_text
from genbench.sealing.seal import missing

ROOT = Path(__file__).parent.parent
HOW: dict[str, Any] = {"limits": Limits(60.0, 2**32), "jobs": 1, "quiet": True, "suites": [SUITE]}
sealed = pytest.mark.skipif(bool(missing()), reason="rows are made in a sandbox")
Document = dict[str, Any]


def boards_with(few: Path, folder: Path) -> Folders:
    """A few rows are enough to be ranked among."""
    shutil.copytree(few / "records", folder / "records")
    return Folders(folder, folder / "records")


def put(records: Path, record: Document) -> None:
    """A record with the hash that it should have, in a folder of records."""
    path = records / SUITE / f"{record['measure']['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record_text({**record, "sha256": body_hash(record)}), encoding="utf-8")


def row_of(honest: Path) -> Document:
    document: Document = json.loads((honest / "boards" / "records" / SUITE / "mynorm.json").read_text())
    return document


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance kit has tests of its own, and takes seconds."""
    report = Conformance(passed=True, checks=20, genbench="0.1.0", findings={})
    monkeypatch.setattr(submission, "check_conformance", lambda *_: report)


@pytest.fixture(scope="module")
def honest(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with plugins/genbench-mynorm, and in boards its row on `few`; not to be changed."""
    folder = tmp_path_factory.mktemp("honest")
    write_files(package_files("mynorm"), folder / "plugins" / "genbench-mynorm")
    boards = boards_with(few, folder / "boards")
    with pytest.MonkeyPatch.context() as patch:
        report = Conformance(passed=True, checks=20, genbench="0.1.0", findings={})
        patch.setattr(submission, "check_conformance", lambda *_: report)
        assert accept(folder / "plugins" / "genbench-mynorm", boards, **HOW) == ["few/mynorm"]
    return folder


# -- records ---------------------------------------------------------------------------------------------


def invented(record: Document, _: Path) -> None:
    record["plugin"]["sha256"] = "0" * 64


def made_up_keys(record: Document, _: Path) -> None:
    record["keys"] = "0" * 64


def of_a_rival(record: Document, _: Path) -> None:
    record["plugin"]["distribution"] = "genbench-rival"


def of_another_name(record: Document, _: Path) -> None:
    record["measure"]["name"] = "path_norm"


def replayed(record: Document, records: Path) -> None:
    """Readings of the best measure under one's own name, with keys and hashes as they should be."""
    best = json.loads((records / SUITE / "path_norm.json").read_text())
    others = {one["subject"]: one["value"] for one in best["readings"]}
    for reading in record["readings"]:
        reading["value"] = others[reading["subject"]]
    record["sign_error"] = best["sign_error"]


def of_an_older_version(record: Document, _: Path) -> None:
    record["measure"]["version"] = "0"


def of_another_pack(record: Document, _: Path) -> None:
    record["evidence"] = "1" * 64


def not_sealed(record: Document, _: Path) -> None:
    for reading in record["readings"]:
        reading["sandbox"] = "none"


@sealed
@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (invented, "was made from other source code than that in plugins/genbench-mynorm"),
        (made_up_keys, "has keys that this source and this evidence do not give: nobody has run it"),
        (of_a_rival, "is one of genbench-rival; plugins/genbench-mynorm can write rows of its own"),
        (of_another_name, "can write rows of its own measures alone: mynorm"),
        (replayed, "its readings are not that measure's"),
        (of_an_older_version, "has version 0, and plugins/genbench-mynorm has version 1"),
        (of_another_pack, "was made with other evidence than few v1"),
        (not_sealed, "has readings that were not taken in a sandbox"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_forged_record_is_refused(
    few: Path,
    honest: Path,
    tmp_path: Path,
    passed: None,
    forge: Callable[[Document, Path], None],
    sentence: str,
) -> None:
    record = row_of(honest)
    forge(record, few / "records")
    put(tmp_path / "submission" / "records", record)
    boards = boards_with(few, tmp_path / "boards")
    before = sorted(boards.records.rglob("*"))
    with pytest.raises(UserError, match=sentence):
        accept(honest / "plugins" / "genbench-mynorm", boards, submission=tmp_path / "submission", **HOW)
    assert sorted(boards.records.rglob("*")) == before


@sealed
def test_a_third_of_an_expensive_measure_is_read_again(
    few: Path, honest: Path, tmp_path: Path, passed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "CHEAP_SECONDS", -1.0)
    source = honest / "boards" / "records" / SUITE / "mynorm.json"
    put(tmp_path / "submission" / "records", row_of(honest))
    boards = boards_with(few, tmp_path / "boards")
    plugin = honest / "plugins" / "genbench-mynorm"
    accept(plugin, boards, submission=tmp_path / "submission", seed=3, **HOW)
    assert (boards.records / SUITE / "mynorm.json").read_text() == source.read_text()
    trusted = json.loads((boards.trust / f"{SUITE}.json").read_text())["mynorm"]
    assert len(trusted["reproduced"]) == 2  # of 6
    assert trusted["sealed"] is True


@sealed
def test_an_accepted_plugin_is_audited_here(
    few: Path, honest: Path, tmp_path: Path, passed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its audit takes a minute and has tests of its own; here it is that of another, under its name."""
    asked: list[str] = []

    def audit(plan: AuditPlan, _: Any, entries: list[Entry[Measure]], *__: Any, **___: Any) -> Any:
        asked.extend(entry.item.name for entry in entries)
        assert len(plan.networks) == 558
        record = json.loads((ROOT / "leaderboards" / "audits" / "path_norm.json").read_text())
        named = record | {"measure": "mynorm", "version": "1", "kind": "package"}
        named["distribution"] = "genbench-mynorm"
        (tmp_path / "mynorm.json").write_text(json.dumps(named))
        return [read_audit(tmp_path / "mynorm.json", audit_evidence())]

    monkeypatch.setattr(submission, "audit_measures", audit)
    boards = boards_with(few, tmp_path / "boards")
    assert accept(honest / "plugins" / "genbench-mynorm", boards, audited=True, **HOW) == ["few/mynorm"]
    assert asked == ["mynorm"]
    build(boards)
    rows = {row["measure"]: row for row in json.loads((boards.boards / "few.json").read_text())["rows"]}
    assert rows["mynorm"]["audit"].keys() == STRESSORS.keys()
    assert "survived" not in rows["path_norm"]


@sealed
def test_a_row_of_somebody_else_is_not_overwritten(
    few: Path, honest: Path, tmp_path: Path, passed: None
) -> None:
    boards = boards_with(few, tmp_path / "boards")
    record = row_of(honest)
    for change, sentence in (
        ({"plugin": {**record["plugin"], "distribution": "genbench-first"}}, "already, by genbench-first"),
        ({"measure": {**record["measure"], "version": "3"}}, "the board has version 3 of 'mynorm'"),
    ):
        put(boards.records, {**record, **change})
        with pytest.raises(UserError, match=sentence):
            accept(honest / "plugins" / "genbench-mynorm", boards, **HOW)


def test_what_a_row_says_comes_from_the_tree(honest: Path) -> None:
    record = read_record(honest / "boards" / "records" / SUITE / "mynorm.json")
    tree = read_tree(honest / "plugins" / "genbench-mynorm")
    assert (record.plugin.distribution, record.plugin.version) == ("genbench-mynorm", "0.1.0")
    assert record.plugin.sha256 == tree.sha256
    assert record.sealed


def test_a_plugin_is_pending_until_its_rows_are_of_its_source(honest: Path, tmp_path: Path) -> None:
    boards, plugins = Folders(honest / "boards", honest / "boards" / "records"), tmp_path / "plugins"
    shutil.copytree(honest / "plugins", plugins)
    assert pending(plugins, boards) == []
    source = plugins / "genbench-mynorm" / "src" / "genbench_mynorm" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert pending(plugins, boards) == [plugins / "genbench-mynorm"]
    assert pending(ROOT / "plugins", Folders(ROOT / "leaderboards", ROOT / "leaderboards" / "records")) == []


# -- trees -----------------------------------------------------------------------------------------------

PROJECT = """
[project]
name = "{name}"
version = "{version}"
[project.entry-points.genbench]
one = "{module}"
"""


def plugin(folder: Path, **words: str) -> Path:
    said = {"name": "genbench-one", "version": "1.0", "module": "genbench_one", **words}
    write_files(
        {"pyproject.toml": PROJECT.format(**said), "src/genbench_one/__init__.py": ""},
        folder / "genbench-one",
    )
    return folder / "genbench-one"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"name": "genbench-rival"}, "a plugin has the name of its folder"),
        ({"module": "torch"}, "not in its package genbench_one"),
        ({"module": "genbench_one\\n[console_scripts]\\nls = x"}, "in plain words"),
        ({"version": ""}, "in plain words"),
    ],
)
def test_a_tree_that_speaks_for_others_is_refused(tmp_path: Path, words, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        read_tree(plugin(tmp_path, **words))


def test_a_tree_holds_plain_source_alone(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    before = read_tree(folder).sha256
    helper = folder / "src" / "genbench_one" / "helper.py"
    helper.write_text("x = 1")
    assert read_tree(folder).sha256 != before, "a helper is part of the source"
    (folder / "src" / "genbench_one" / "table.bin").write_bytes(b"0")
    with pytest.raises(UserError, match="is no Python"):
        read_tree(folder)
    (folder / "src" / "genbench_one" / "table.bin").unlink()
    (folder / "link").symlink_to("/etc")
    with pytest.raises(UserError, match="is a link"):
        read_tree(folder)
    (tmp_path / "torch").mkdir()
    with pytest.raises(UserError, match="call it genbench-NAME"):
        read_tree(tmp_path / "torch")


# -- the whole way ---------------------------------------------------------------------------------------


@pytest.fixture
def script(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The workflow's script in this process; the commands that it starts come off the seed."""
    started = subprocess.run

    def run_(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if words[:3] == [sys.executable, "-m", "genbench"]:
            assert options == {"stdout": subprocess.PIPE, "text": True}
            return run(*words[3:], env=os.environ)
        return started(words, **options)

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["submission.py", *words])
        monkeypatch.setattr(subprocess, "run", run_)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}:{ROOT}")  # which the script adds to
        code: int = runpy.run_path(str(ROOT / ".github" / "submission.py"))["main"]()
        monkeypatch.setattr(subprocess, "run", started)
        return code

    return call


@pytest.mark.slow
@sealed
def test_a_new_plugin_appears_on_a_rebuilt_board(
    few: Path, run: Run, script: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a board of six networks; test_wheel has a run on `mini`, ranked among all its rows."""
    done = run("new", "mynorm", "--into", "plugins/genbench-mynorm")
    assert done.returncode == 0, done.stderr
    words = ("--to", "submission", "--into", "trial", "--suite", SUITE)
    assert script("plugins/genbench-mynorm", *words) == 0
    assert "mynorm on few is recorded" in capsys.readouterr().out

    # A run of one's own: the measure of the plugin, whose readings are in the store.
    words = ("run", "-m", "mynorm", "-s", SUITE, "--json")
    done = run(*words, env={**os.environ, "PYTHONPATH": f"{tmp_path / 'trial'}:{os.environ['PYTHONPATH']}"})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["pack"].startswith("few v1")
    measures = {measure["name"]: measure for measure in document["measures"]}
    assert all(reading["stored"] for reading in measures["mynorm"]["readings"])
    assert "mynorm" in (tmp_path / document["report"]).read_text()

    # On a fresh machine, where the plugin is not installed: from its source, whatever the records say.
    boards = boards_with(few, tmp_path / "leaderboards").boards
    words = ("accept", "plugins/genbench-mynorm", "--submission", "submission", "--to", "leaderboards")
    done = run("leaderboard", *words)
    assert done.returncode == 0, done.stderr
    assert "accepted few/mynorm" in done.stdout.splitlines()
    rows = {row["measure"]: row for row in json.loads((boards / "few.json").read_text())["rows"]}
    assert rows.keys() == {"mynorm", "baseline_constant", *RECORDED}
    mine = rows["mynorm"]
    assert mine["trust"] == "reproduced"
    assert mine["plugin"]["distribution"] == "genbench-mynorm"
    assert mine["statuses"] == {"ok": 6}
    assert 0 <= mine["sign_error"]["low"] <= mine["sign_error"]["value"] <= mine["sign_error"]["high"] <= 1
    assert "mynorm" in (boards / "few.md").read_text()
    assert stale(Folders(boards, boards / "records")) == []


# -- workflows -------------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs() -> list[tuple[str, dict[str, Any]]]:
    yaml = pytest.importorskip("yaml")
    return [
        (f"{path.stem}/{name}", job)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
    ]


def test_nothing_is_installed_or_run_where_something_may_be_written() -> None:
    writing = [(name, job) for name, job in jobs() if "write" in job.get("permissions", {}).values()]
    assert {name for name, _ in writing} == {"submission/commit", "verify/commit", "pages/deploy"}
    for name, job in writing:
        text = json.dumps(job["steps"])
        for word in ("pip", "setup-python", "make ", "python ", "genbench leaderboard"):
            assert word not in text, f"{name} has {word}"


def test_actions_are_pinned_and_jobs_have_no_rights_that_they_do_not_name() -> None:
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        found = yaml.safe_load(path.read_text())
        assert found["permissions"] in ({}, {"contents": "read"}), path.name
        for job in found["jobs"].values():
            for step in job["steps"]:
                action = step.get("uses", "x@" + "0" * 40)
                assert len(action.partition("@")[2]) == 40, f"{path.name}: {action}"


def test_boards_are_written_by_one_job_at_a_time() -> None:
    yaml = pytest.importorskip("yaml")
    groups = {path.stem: yaml.safe_load(path.read_text()).get("concurrency", {}) for path in WORKFLOWS}
    assert groups["verify"] == {"group": "boards", "cancel-in-progress": False}
    assert "'boards'" in groups["submission"]["group"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["plugins/genbench-a/x.py", "plugins/genbench-a/src/y.py"], ""),
        (["plugins/genbench-a/x.py", "leaderboards/mini.md"], "leaderboards/mini.md was changed too"),
        (["plugins/genbench-a/x.py", ".github/workflows/test.yml"], "test.yml was changed too"),
        (["plugins/genbench-a/x.py", "plugins/genbench-b/x.py"], "submit one at a time"),
        (["plugins/x.py"], "plugins/x.py was changed too"),
    ],
)
def test_a_submission_changes_the_folder_of_one_plugin(tmp_path: Path, files: list[str], said: str) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    git("add", ".")
    git("commit", "-m", "second")
    words = [sys.executable, "-I", str(ROOT / ".github" / "submission.py"), "--changed-since", "HEAD^"]
    done = subprocess.run([*words, "--list"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == bool(said)
    assert done.stdout.split() == ([] if said else ["plugins/genbench-a"])
    assert said in done.stderr
