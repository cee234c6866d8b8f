"""A researcher's own networks: out of files into a run, and one sentence for whatever does not fit."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from made_collection import (
    FUNCTION,
    GRID,
    built,
    changed,
    data,
    keys,
    name_of,
    sentence,
    write_collection,
    write_table,
)
from safetensors.torch import load_file, save_file

import genbench
from genbench.collection.user_code import find_function
from genbench.plugin.registry import load_registry


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "mine")


# -- a run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the answer of a run with the command line, in an empty folder."""
    folder = tmp_path_factory.mktemp("run")
    suite = write_collection(folder / "mine")
    words = ["run", "--suite", suite, "-m", "path_norm", "-m", "dist_spec_init", "--json", "--table", "t.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "genbench", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def values(answer: Mapping[str, Any], measure: str) -> dict[str, float]:
    (found,) = [one for one in answer["measures"] if one["name"] == measure]
    return {reading["subject"]: reading["value"] for reading in found["readings"]}


@pytest.mark.parametrize("measure", ["path_norm", "dist_spec_init"])
def test_readings_are_those_of_the_same_networks_in_memory(finished, measure: str) -> None:
    folder, answer = finished
    function = load_registry().measures[measure].item
    for width, depth, seed in GRID[::5]:
        name = name_of(width, depth, seed)
        final, initial = built(width, depth), built(width, depth)
        final.load_state_dict(load_file(folder / "mine" / "weights" / f"{name}.safetensors"))
        initial.load_state_dict(torch.load(folder / "mine" / "initial" / f"{name}.pt")["state_dict"])
        subject = genbench.Subject.from_module(final, initial=initial, data=data())
        assert values(answer, measure)[name] == pytest.approx(float(function(subject)), rel=1e-6)


def test_scores_are_those_of_the_written_table(finished, run) -> None:
    folder, answer = finished
    again = run("score", folder / "t.csv", "--json")
    assert again.returncode == 0, again.stderr
    scored = json.loads(again.stdout)["scores"]
    mine = {(r["measure"], r["score"], r["target"], r["part"], r["statistic"]): r for r in answer["scores"]}
    assert {r["target"] for r in scored} >= {"gap", "gap_ood_far", "test_error"}
    assert len(scored) == len(mine)
    for row in scored:
        found = mine[row["measure"], row["score"], row["target"], row["part"], row["statistic"]]
        assert (
            found["value"] == pytest.approx(row["value"], nan_ok=True) if row["value"] is not None else True
        )


def test_the_headline_is_that_of_paper_001_where_there_are_seeds(finished) -> None:
    _, answer = finished
    size = next(one for one in answer["measures"] if one["name"] == "baseline_size")["sign_error"]
    # Size orders everything as the gaps made above are ordered.
    assert (size["value"], size["environments"], size["available"]) == (0.0, 4, 4)
    assert answer["truth"] == "gap"


def test_the_table_has_the_networks_names_and_truths(finished) -> None:
    folder, _ = finished
    with open(folder / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["network"] for row in rows] == [name_of(*point) for point in GRID]
    assert float(rows[3]["test_error"]) == pytest.approx(float(rows[3]["gap"]) + 0.01)
    assert {"hp.width", "hp.depth", "seed", "gap_ood_far", "test_size", "parameters"} <= rows[0].keys()


def test_the_report_says_what_the_truth_is(finished) -> None:
    _, answer = finished
    folder, _ = finished
    page = (folder / answer["report"]).read_text()
    assert "as the collection&#39;s table gives it" in page
    assert "nets.py:training_data" in page


def test_a_second_run_computes_nothing(finished, run) -> None:
    folder, _ = finished
    plan = run("plan", "--suite", "mine/mine.toml", "-m", "path_norm", "--json", cwd=folder)
    answer = json.loads(plan.stdout)
    assert answer["stored"] == answer["cells"] > 16


def test_a_moved_folder_is_the_same_collection(finished, tmp_path) -> None:
    folder, _ = finished
    shutil.copytree(folder / "mine", tmp_path / "elsewhere")
    assert keys(tmp_path / "elsewhere" / "mine.toml") == keys(folder / "mine" / "mine.toml")


# -- keys ------------------------------------------------------------------------------------------


def test_a_changed_weight_file_changes_its_own_cells_alone(suite) -> None:
    before = keys(suite)
    name = name_of(*GRID[3])
    save_file(
        {k: v + 1 for k, v in built(4, 1).state_dict().items()},
        suite.parent / "weights" / f"{name}.safetensors",
    )
    after = keys(suite)
    different = {label for label in before if before[label] != after[label]}
    assert len(different) == 2
    assert all(name in label for label in different)


def test_a_file_written_again_with_the_same_bytes_changes_nothing(suite) -> None:
    before = keys(suite)
    for file in suite.parent.rglob("*.*"):
        file.write_bytes(file.read_bytes())
    assert keys(suite) == before


def test_truths_are_no_part_of_a_networks_key(suite) -> None:
    before = keys(suite)
    changed(suite, "10000", "500", "networks.csv")
    assert keys(suite) == before


@pytest.mark.parametrize("file", ["nets.py", "parts.py"])
def test_edited_code_is_run_anew_also_where_it_is_imported(suite, file: str) -> None:
    before = keys(suite)
    changed(suite, "from torch import nn\n", "from torch import nn\nCHANGED = True\n", file)
    assert not before.items() & keys(suite).items()


def test_files_that_the_code_names_count_too(suite) -> None:
    changed(suite, "def training_data", "FILE = 'images.bin'\n\ndef training_data", "nets.py")
    (suite.parent / "images.bin").write_bytes(b"1")
    before = keys(suite)
    (suite.parent / "images.bin").write_bytes(b"2")
    assert not before.items() & keys(suite).items()


def test_planning_runs_nothing_of_the_users_and_no_torch(suite) -> None:
    marker = suite.parent / "imported"
    changed(suite, "import torch\n", f"import torch\nopen({str(marker)!r}, 'w')\n", "nets.py")
    code = textwrap.dedent(
        f"""
        import sys
        from genbench.plugin.registry import find_measure
        from genbench.runs.plan import make_plan
        from genbench.suites import load_suite
        assert len(make_plan(load_suite({str(suite)!r}), find_measure("path_norm")).cells()) == 33
        print(sorted({{"torch", "nets", "parts", "genbench_file_nets"}} & sys.modules.keys()))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert not marker.exists()


def test_a_package_is_found_without_importing_it(tmp_path, monkeypatch) -> None:
    inner = tmp_path / "somepackage" / "models"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (inner / "small.py").write_text("def build(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_function("somepackage.models.small:build", "networks.builder", tmp_path / "mine.toml")
    assert found.file == str(inner / "small.py")
    before = found.content()
    (inner.parent / "helper.py").write_text("X = 1\n")
    assert found.content() != before


# -- wrong input: one sentence each ----------------------------------------------------------------


def test_a_missing_weight_file_is_named_with_its_network(suite) -> None:
    (suite.parent / "weights" / "w4d1s2.safetensors").unlink()
    said = sentence(suite)
    assert "w4d1s2.safetensors" in said
    assert "of network w4d1s2" in said


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("networks.csv", "test_size", "test_sizes", "unknown column 'test_sizes'; did you mean 'test_size'?"),
        ("networks.csv", "hp.width", "comment", "unknown column 'comment'; there are network, seed, gap"),
        ("networks.csv", "network,", "name,", "has no column 'network'"),
        ("networks.csv", "w4d1s1", "w4d1s0", "line 3 repeats network 'w4d1s0' of line 2; rename one"),
        ("networks.csv", "10000", "many", "line 2, column 'test_size': 'many' is not a number"),
        ("", "nets.py:build", "nots.py:build", "networks.builder = 'nots.py:build', but there is no file"),
        ("", "nets.py:build", "nets.py", "expected FILE.py:FUNCTION or package.module:FUNCTION"),
        ("", "nets.py:build", "nopackage.nets:build", "but no module 'nopackage.nets' is installed"),
        ("", "{network}.safetensors", "all.safetensors", "expected a path with {network} in it"),
        ("", "networks.csv", "nothing.csv", "no file"),
        ("", "builder =", "bilder =", "did you mean 'networks.builder'"),
        ("", "[data]", "[data]\ndataset = 'digits'", "exactly one of dataset and function, found both"),
        ("", FUNCTION, "", "exactly one of dataset and function, found neither"),
        ("", FUNCTION, "dataset = 'digit'", "did you mean 'digits'"),
        ("", "[data]", "[data]\nmean = 0.5", "drop it"),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_sentence(suite, file: str, old: str, new: str, expected: str) -> None:
    said = sentence(changed(suite, old, new, file))
    assert expected in said
    assert "\n" not in said


def test_a_table_without_a_truth_is_refused(suite) -> None:
    write_table(suite.parent, [{"network": name_of(*point), "hp.width": point[0]} for point in GRID])
    assert "add a column 'gap'" in sentence(suite)


# -- the example, which `test_documents` runs as its page has it -------------------------------------------


@pytest.mark.parametrize(
    "words", [["new"], ["new", "a", "--collection", "b"], ["new", "--collection", "a b"]]
)
def test_new_wants_one_name(run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
