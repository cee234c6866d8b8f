"""The parts of a collection: code and files in a worker, tables of networks, data sets by name."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from made_collection import (
    FUNCTION,
    GRID,
    changed,
    data,
    name_of,
    write_collection,
    write_table,
)
from safetensors.torch import load_file, save_file

from genbench.collection.network_rows import Truth, read_rows
from genbench.collection.pages import _doubt
from genbench.collection.steps import load_network
from genbench.collection.training_data import prepared_images
from genbench.collection.weight_files import read_weights
from genbench.engine.steps import load_step
from genbench.engine.store import write_sealed
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import find_measure, load_registry
from genbench.population.evidence import NetworkFacts
from genbench.runs.plan import make_plan
from genbench.suites import load_suite


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "mine")


# -- in a worker -----------------------------------------------------------------------------------


@pytest.fixture
def taken(suite, tmp_path):
    """Runs the cells of the first network as a worker does; gives their folders and results."""

    def take() -> tuple[Path, Path, dict[str, Any]]:
        plan = make_plan(load_suite(str(suite)), find_measure("path_norm")).evidence
        folders, result = {}, {}
        for name, cell in (("training", plan.training_data), ("network", plan.networks[0].network)):
            folders[name] = tmp_path / "cells" / cell.key
            folders[name].mkdir(parents=True)
            inputs = {**cell.inputs, "how": dict(cell.how)}
            result = load_step(cell.step.function, inputs)(inputs, folders, folders[name])
            write_sealed(folders[name] / "manifest.json", {"result": result})
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
    assert torch.equal(found.inputs[:], data()[0])


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
    said = _doubt("net", NetworkFacts(tried=40, tried_accuracy=0.3, **found))
    assert said == (f"net gets 30% of its first 40 training images right, {expected}" if expected else "")


# -- data sets by name -----------------------------------------------------------------------------


def test_a_data_set_is_prepared_as_the_networks_take_it() -> None:
    raw = load_registry().datasets["digits"].item.load(DataRequest()).train
    parts, labels = prepared_images("digits", {"mean": 0.5, "std": [0.25]})
    assert torch.allclose(torch.cat(list(parts)), (raw.batch(range(len(raw))).float() / 255 - 0.5) / 0.25)
    assert torch.equal(labels, raw.labels)
    (some,), _ = prepared_images("digits", {"train_size": 20, "image_side": 16})
    assert some.shape == (20, 1, 16, 16)
    with pytest.raises(UserError, match="has 3 numbers, but images have 1 channels"):
        list(prepared_images("digits", {"mean": [0.1, 0.2, 0.3]})[0])


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
    (images,), labels = prepared_images(found.dataset, {})
    assert (images[:, 0, 0, 0] * 255).round().tolist() == labels.tolist() == list(range(6))
