"""A researcher's own networks: out of files into a run, and one sentence for whatever does not fit."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import genbench
from genbench.collection.network_rows import Truth, read_rows
from genbench.collection.pages import _doubt
from genbench.collection.steps import load_network, take_network, training_data
from genbench.collection.training_data import prepared_images
from genbench.collection.user_code import find_function
from genbench.collection.weight_files import read_weights
from genbench.engine.store import _write_sealed
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import find_measure, load_registry
from genbench.run.plan import make_plan
from genbench.suites import load_suite

SUITE = """
name = "mine"
summary = "networks made on the spot"
kind = "collection"

[networks]
builder = "nets.py:build"
weights = "weights/{network}.safetensors"
initial = "initial/{network}.pt"
table = "networks.csv"

[data]
function = "nets.py:training_data"
"""
CODE = """
import torch
from torch import nn
from parts import hidden

def build(width, depth):
    layers = hidden(width, depth)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), *layers, nn.Linear(width, 3))

def training_data():
    images = torch.randn(40, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    return images, torch.arange(40) % 3
"""
PARTS = """
from torch import nn

def hidden(width, depth):
    return [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
"""
FUNCTION = 'function = "nets.py:training_data"'
GRID = list(product((4, 6), (1, 2), range(4)))


def name_of(width: int, depth: int, seed: int) -> str:
    return f"w{width}d{depth}s{seed}"


def built(width: int, depth: int) -> torch.nn.Module:
    scope: dict[str, Any] = {}
    exec(PARTS + CODE.replace("from parts import hidden", ""), scope)
    return scope["build"](width, depth)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(40, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    return images, torch.arange(40) % 3


def write_table(folder: Path, rows: list[dict[str, Any]]) -> None:
    with open(folder / "networks.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_collection(folder: Path) -> Path:
    """Sixteen networks with random weights; the wide ones are said to generalise worse."""
    for name in ("weights", "initial"):
        (folder / name).mkdir(parents=True)
    (folder / "nets.py").write_text(CODE)
    (folder / "parts.py").write_text(PARTS)
    (folder / "mine.toml").write_text(SUITE)
    rows = []
    for number, (width, depth, seed) in enumerate(GRID):
        name = name_of(width, depth, seed)
        torch.manual_seed(number)
        torch.save({"state_dict": built(width, depth).state_dict()}, folder / "initial" / f"{name}.pt")
        save_file(built(width, depth).state_dict(), folder / "weights" / f"{name}.safetensors")
        gap = round(0.05 * (width - 4) + 0.04 * depth + 0.001 * seed, 3)
        rows.append(
            {
                "network": name, "hp.width": width, "hp.depth": depth, "seed": seed, "gap": gap,
                "error": round(gap + 0.01, 3), "gap_ood_far": round(gap + 0.1, 3), "test_size": 10000,
            }
        )  # fmt: skip
    write_table(folder, rows)
    return folder / "mine.toml"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "mine")


def changed(suite: Path, old: str, new: str, file: str = "") -> Path:
    """Replace something in a file of the collection, the suite itself unless another is named."""
    path = suite.parent / file if file else suite
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return suite


def keys(suite: Path) -> dict[str, str]:
    """Label to key of every cell."""
    plan = make_plan(load_suite(str(suite)), find_measure("path_norm"))
    return {cell.label: cell.key for cell in plan.cells()}


def sentence(suite: Path) -> str:
    """What a plan is refused with."""
    with pytest.raises(UserError) as refusal:
        keys(suite)
    return str(refusal.value)


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
        from genbench.run.plan import make_plan
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


# -- in a worker -----------------------------------------------------------------------------------


@pytest.fixture
def taken(suite, tmp_path):
    """Runs the cells of the first network as a worker does; gives their folders and results."""

    def take() -> tuple[Path, Path, dict[str, Any]]:
        plan = make_plan(load_suite(str(suite)), find_measure("path_norm")).evidence
        folders, result = {}, {}
        for name, cell, step in (
            ("training", plan.training_data, training_data),
            ("network", plan.networks[0].network, take_network),
        ):
            folders[name] = tmp_path / "cells" / cell.key
            folders[name].mkdir(parents=True)
            result = step({**cell.inputs, "how": dict(cell.how)}, folders, folders[name])
            _write_sealed(folders[name] / "manifest.json", {"result": result})
        return folders["network"], folders["training"], result

    return take


def test_a_network_is_had_again_from_its_cell_alone(suite, taken) -> None:
    network, training, result = taken()
    shutil.rmtree(suite.parent)
    found = load_network("w4d1s0", network, training)
    assert result["classes"] == found.classes == 3
    assert result["parameters"] == sum(p.numel() for p in found.model.parameters()) == 12 * 4 + 4 + 20 + 15
    assert found.hyperparameters == {"width": 4, "depth": 1}
    assert found.initial_model is not None
    assert torch.equal(found.inputs, data()[0])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("def build(", "def make(", "nets.py defines no function 'build'"),
        ("import torch\n", "import nonsense\n", "nets.py cannot be imported: ModuleNotFoundError"),
        ("    layers =", "    raise OSError('no disk')\n    layers =",
         "nets.py:build gives no network w4d1s0: build(width=4, depth=1) raised OSError: no disk"),
        ("(width, depth):", "(width):", "unexpected keyword argument 'depth'; have it take **others"),
        ("return nn.Sequential", "return 1; nn.Sequential", "it returned int, expected a torch.nn.Module"),
        ("Linear(width, 3)", "Linear(width, 5)", "is 3×4, expected 5×4"),
        ("nn.Flatten(), ", "nn.Flatten(), nn.Linear(12, 12), ", "it lacks 2.weight, 2.bias and 4 more keys"),
        ("(40, 3, 2, 2,", "(40, 3, 3, 3,", "cannot take the training images, which are 3×3×3: RuntimeError"),
        ("arange(40) % 3", "arange(40) % 4", "has 3 outputs, but there are training labels up to 3"),
        ("return images,", "return 1, images,", "training_data gives no training data: it returned tuple"),
        ("return images,", "return images.byte(),", "images of type torch.uint8 and shape (40, 3, 2, 2)"),
        ("return images,", "return images[1:],", "39 images and 40 labels"),
        ("arange(40) % 3", "arange(40) % 3 / 1", "labels of type torch.float32"),
        ("arange(40) % 3", "arange(40) % 3 - 1", "a label -1, expected labels from 0"),
    ],
)  # fmt: skip
def test_code_that_does_not_fit_gets_one_sentence(suite, taken, old: str, new: str, expected: str) -> None:
    changed(suite, old, new, "nets.py")
    with pytest.raises(UserError) as refusal:
        taken()
    assert expected in str(refusal.value)
    # What a step says is cut there.
    assert len(str(refusal.value)) < 300


def test_a_prefix_in_the_keys_is_seen_and_stripped(suite, taken) -> None:
    file = suite.parent / "weights" / "w4d1s0.safetensors"
    save_file({f"module.{key}": value for key, value in load_file(file).items()}, file)
    with pytest.raises(UserError, match=r"its keys start with 'module.'; write strip = \"module.\""):
        taken()
    changed(suite, "[data]", 'strip = "module."\n\n[data]')
    for other in (suite.parent / "initial").glob("*.pt"):
        torch.save(torch.load(other)["state_dict"], other)
    shutil.rmtree(suite.parent.parent / "cells")
    assert taken()[2]["classes"] == 3


def test_what_users_code_changes_in_the_process_is_put_back(suite, taken) -> None:
    changed(suite, "import torch\n", "import torch\ntorch.set_default_dtype(torch.float64)\n", "nets.py")
    torch.manual_seed(3)
    expected, path = torch.rand(1), list(sys.path)
    torch.manual_seed(3)
    taken()
    assert torch.equal(torch.rand(1), expected)
    assert (torch.get_default_dtype(), sys.path) == (torch.float32, path)


def test_weight_files_run_no_code(tmp_path) -> None:
    torch.save({"state_dict": {}, "args": Path("x")}, tmp_path / "a.pt")
    with pytest.raises(UserError, match="holds more than tensors"):
        read_weights(tmp_path / "a.pt")
    (tmp_path / "b.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read as weights"):
        read_weights(tmp_path / "b.safetensors")
    torch.save([1, 2], tmp_path / "c.bin")
    with pytest.raises(UserError, match="holds list, expected a state dict"):
        read_weights(tmp_path / "c.bin")


def test_keys_that_do_not_fit_stop_a_run_with_exit_code_2(suite, run) -> None:
    changed(suite, "nn.Flatten(), ", "nn.Flatten(), nn.Linear(12, 12), ", "nets.py")
    done = run("run", "--suite", suite, "-m", "path_norm")
    assert done.returncode == 2
    assert "does not fit network w4d1s" in done.stderr.splitlines()[-1]


def test_a_builder_that_hangs_is_a_reason_and_stops_nothing_else(suite, run) -> None:
    hang = "    import time\n    time.sleep(1000 if width == 6 else 0)\n    layers ="
    changed(suite, "    layers =", hang, "nets.py")
    write_table(suite.parent, [{"network": name_of(*p), "hp.width": p[0], "hp.depth": p[1], "gap": p[0] / 10}
                               for p in (GRID[0], GRID[1], GRID[-1])])  # fmt: skip
    done = run("run", "--suite", suite, "-m", "path_norm", "--timeout", "8", "--json")
    assert done.returncode == 1, done.stderr
    measure = next(one for one in json.loads(done.stdout)["measures"] if one["name"] == "path_norm")
    ok, also, hung = measure["readings"]
    assert (ok["status"], also["status"]) == ("ok", "ok")
    assert "network w6d2s3 with nets.py:build: still running after 8 s" in hung["reason"]


# -- tables ----------------------------------------------------------------------------------------


def rows_of(tmp_path: Path, text: str) -> Any:
    (tmp_path / "n.csv").write_text(textwrap.dedent(text).lstrip())
    return read_rows(tmp_path / "n.csv")


def test_a_gap_comes_from_error_and_training_accuracy(tmp_path) -> None:
    found = rows_of(tmp_path, "network,error,train_accuracy\na,0.3,0.9\nb,0.2,1.0\n")
    assert found.truth is Truth.FROM_ERROR
    assert [row.found["gap"] for row in found.rows] == pytest.approx([0.2, 0.2])


def test_without_training_accuracies_the_error_is_the_truth(tmp_path) -> None:
    found = rows_of(tmp_path, "network,test_error\na,0.3\nb,0.2\n")
    assert found.truth is Truth.ERROR
    assert [row.found["gap"] for row in found.rows] == [0.3, 0.2]


def test_hyperparameters_are_what_they_are_written_as(tmp_path) -> None:
    (row,) = rows_of(tmp_path, "network,hp.a,hp.b,hp.c,hp.d,gap\nx,3,1e-3,True,sgd,0.1\n").rows
    assert list(map(repr, row.settings.values())) == ["3", "0.001", "True", "'sgd'"]


def test_without_seeds_equal_settings_are_numbered(tmp_path) -> None:
    rows = rows_of(tmp_path, "network,hp.a,gap\nx,1,0.1\ny,2,0.1\nz,1,0.2\n").rows
    assert [row.seed for row in rows] == [0, 0, 1]


def test_pages_call_an_error_an_error(suite, run) -> None:
    rows = [
        {"network": name_of(*p), "hp.width": p[0], "hp.depth": p[1], "error": p[0] / 10} for p in GRID[::4]
    ]
    write_table(suite.parent, rows)
    done = run("run", "--suite", suite, "-m", "baseline_size", "--report", "page.html")
    assert done.returncode == 0, done.stderr
    assert "sign-error against the held-out error" in done.stdout
    assert "network\treading\tstatus\terror\tseconds" in done.stdout
    page = (suite.parent.parent / "page.html").read_text()
    assert "the held-out error" in page
    assert "minus held-out accuracy" not in page


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"train_accuracy": 0.99}, "where its row says 99%"),
        ({"test_error": 0.1}, "but by its row 90% of held-out ones"),
        ({"train_accuracy": 0.25}, ""),
        ({"test_error": 0.7}, ""),
        ({}, ""),
    ],
)
def test_images_in_another_form_are_noticed(found: dict[str, float], expected: str) -> None:
    said = _doubt("net", {"tried": 40, "tried_accuracy": 0.3, **found})
    assert said == (f"net gets 30% of its first 40 training images right, {expected}" if expected else "")


# -- data sets by name -----------------------------------------------------------------------------


def test_a_data_set_is_prepared_as_the_networks_take_it() -> None:
    raw = load_registry().datasets["digits"].item.load(DataRequest()).train
    images, labels = prepared_images("digits", {"mean": 0.5, "std": [0.25]})
    assert torch.allclose(images, (raw.batch(range(len(raw))).float() / 255 - 0.5) / 0.25)
    assert torch.equal(labels, raw.labels)
    some, _ = prepared_images("digits", {"train_size": 20, "image_side": 16})
    assert some.shape == (20, 1, 16, 16)
    with pytest.raises(UserError, match="has 3 numbers, but images have 1 channels"):
        prepared_images("digits", {"mean": [0.1, 0.2, 0.3]})


def test_classes_come_in_the_data_sets_own_order(suite, tmp_path) -> None:
    from PIL import Image

    for label, name in enumerate("abcdef"):
        for split in ("train", "test"):
            folder = suite.parent / "images" / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (2, 2), (label, 0, 0)).save(folder / "0.png")
    changed(suite, FUNCTION, 'dataset = "folder:images"')
    found = load_suite(str(suite))
    assert found.dataset == f"folder:{suite.parent / 'images'}"
    images, labels = prepared_images(found.dataset, {})
    assert (images[:, 0, 0, 0] * 255).round().tolist() == labels.tolist() == list(range(6))


# -- the example -----------------------------------------------------------------------------------


def test_the_example_runs_at_once(run_process, tmp_path) -> None:
    made = run_process("new", "--collection", "mynets", "--json")
    assert made.returncode == 0, made.stderr
    done = run_process("run", "--suite", json.loads(made.stdout)["suite"], "-m", "path_norm", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    score = next(one for one in answer["measures"] if one["name"] == "path_norm")["sign_error"]
    assert score["available"] == 4
    again = run_process("new", "--collection", "mynets")
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.parametrize(
    "words", [["new"], ["new", "a", "--collection", "b"], ["new", "--collection", "a b"]]
)
def test_new_wants_one_name(run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
