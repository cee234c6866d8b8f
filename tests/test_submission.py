"""Joining the leaderboard: a plugin made by `genbench new` goes through the workflow's own script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run

from genbench.leaderboard.build import Folders, stale

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_new_plugin_appears_on_both_rebuilt_boards(run: Run, tmp_path: Path) -> None:
    done = run("new", "mynorm", "--into", "plugins/genbench-mynorm")
    assert done.returncode == 0, done.stderr
    script = [sys.executable, ROOT / ".github" / "submission.py", "plugins/genbench-mynorm"]
    # Its audit takes a minute; `test_audit_records.py` has what becomes of one.
    words = [*script, "--to", "submission", "--into", "trial", "--no-audit"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mynorm on mini is recorded" in done.stdout
    assert "mynorm on nin-digits is recorded" in done.stdout

    # A run of one's own: one measure computed, the others with the scores of their records.
    words = ("run", "-s", "nin-digits", "-m", "mynorm", "--json")
    done = run(*words, env={**environment, "PYTHONPATH": f"{tmp_path / 'trial'}:{ROOT}"})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["pack"].startswith("nin-digits v1")
    measures = {measure["name"]: measure for measure in document["measures"]}
    references = {name for name, measure in measures.items() if measure["reference"]}
    published = json.loads((ROOT / "leaderboards" / "nin-digits.json").read_text())["rows"]
    # Every row of the board, those of plugins included.
    assert references >= {row["measure"] for row in published}
    for row in published:
        found = measures[row["measure"]]["sign_error"]
        if row["sign_error"] is None:  # colours of grey images
            assert found is None
        else:
            assert found["value"] == pytest.approx(row["sign_error"]["value"], abs=1e-6)
    assert all(reading["stored"] for reading in measures["mynorm"]["readings"])
    assert "mean over environments" in (tmp_path / document["report"]).read_text()

    # The job with write access: the plugin is not installed there. A few rows are enough to be ranked among.
    boards = tmp_path / "leaderboards"
    for suite in ("mini", "nin-digits"):
        (boards / "records" / suite).mkdir(parents=True)
        for name in ("path_norm", "baseline_size", "baseline_random"):
            source = ROOT / "leaderboards" / "records" / suite / f"{name}.json"
            shutil.copyfile(source, boards / "records" / suite / source.name)
    done = run("leaderboard", "accept", "submission", "--to", "leaderboards")
    assert done.returncode == 0, done.stderr
    assert {"accepted mini/mynorm", "accepted nin-digits/mynorm"} <= set(done.stdout.splitlines())
    for suite, networks in (("mini", 13), ("nin-digits", 270)):
        rows = {row["measure"]: row for row in json.loads((boards / f"{suite}.json").read_text())["rows"]}
        assert rows.keys() == {"mynorm", "path_norm", "baseline_size", "baseline_random"}
        mine = rows["mynorm"]
        assert mine["trust"] == "checked"
        assert mine["plugin"]["distribution"] == "genbench-mynorm"
        assert mine["statuses"] == {"ok": networks}
        assert (
            0 <= mine["sign_error"]["low"] <= mine["sign_error"]["value"] <= mine["sign_error"]["high"] <= 1
        )
        assert "mynorm" in (boards / f"{suite}.md").read_text()
        assert "mynorm" in (boards / f"{suite}.md").read_text()
    assert stale(Folders(boards, boards / "records")) == []
