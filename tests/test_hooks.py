"""Every hook: its example in CONTRIBUTING.md, installed as a package, works from end to end.

A hook without a heading that gives its exact signature, an example and a test here fails the last test.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY_SUITE, in_process
from few import installed
from test_plugins import install

from genbench.engine.store import read_manifest
from genbench.plugin import hookspecs

MANUAL = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
LINEAR = Path(__file__).parent / "genbench-linear" / "src" / "genbench_linear"
HOOKS = [name for name in vars(hookspecs) if name.startswith("genbench_")]


def heading(hook: str) -> str:
    """As CONTRIBUTING.md must have it: the exact signature."""
    return f"### {hook}{inspect.signature(getattr(hookspecs, hook))}".replace("'", "")


DOCUMENTED = [hook for hook in HOOKS if heading(hook) in MANUAL.splitlines()]

TOYS = """
name = "toys"
summary = "three toy backbones on letters, degraded by fading"
kind = "testbed"

[data]
dataset = "glyphs"
seen = 4
unseen = 4
seed = 0
augment_unseen = false
train_per_class = 10
heldout_per_class = 10

[testbed]
backbones = ["toy:8", "toy:12", "toy:16"]
zero_shot = [0, 2, 4]
ssim = [0.7, 0.85, 1.0]
degradation = "fade"
unseen_head = "probe"
penalty = 10.0
kappa = "conflict"
kappa_threshold = 0.3

[adapt]
method = "finetune"
epochs = 1
batch_size = 64
learning_rate = 1e-3
head_learning_rate = 3e-3
weight_decay = 0.01
stop_loss = 0.05
patience = 3
seed = 0
"""


def example(hook: str) -> str:
    """The code below a hook's heading."""
    section = MANUAL.split(f"\n{heading(hook)}\n", 1)[1].split("\n#", 1)[0]
    found = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert len(found) == 1, f"{hook}: one example, please"
    return str(found[0])


def genbench_in(folder: Path, *arguments: str | Path) -> str:
    done = in_process(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose subfolder `site` holds one package per hook, known to this process and its workers."""
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "site").mkdir()
    for hook in DOCUMENTED:
        install(folder / "site", f"plugin_of_{hook}", example(hook))
    (folder / "site" / "toys.toml").write_text(TOYS)
    # What the example of a kind imports; only the example itself is registered.
    shutil.copytree(LINEAR, folder / "site" / "genbench_linear")
    with installed(folder / "site"):
        yield folder


@pytest.fixture(scope="module")
def toy_run(folder: Path) -> dict[str, Any]:
    """A plugin's measure on a plugin's suite of a plugin's backbones and degradation, by its executor."""
    arguments = ("run", "--suite", "toys", "--measure", "largest_weight", "--executor", "logged")
    document: dict[str, Any] = json.loads(genbench_in(folder, *arguments, "--store", "store", "--json"))
    return document


def readings_of(document: dict[str, Any], measure: str) -> dict[str, dict[str, Any]]:
    found = next(item for item in document["measures"] if item["name"] == measure)
    return {reading["subject"]: reading for reading in found["readings"]}


def results(folder: Path, step: str) -> list[dict[str, Any]]:
    """Small results of all stored cells of one step."""
    manifests = [read_manifest(path.parent) for path in (folder / "store").rglob("manifest.json")]
    return [manifest["result"] for manifest in manifests if manifest["kind"] == step]


def test_all_examples_are_found_without_a_problem(folder: Path) -> None:
    reports = {report["plugin"]: report for report in json.loads(genbench_in(folder, "plugins", "--json"))}
    for hook in DOCUMENTED:
        report = reports[f"plugin_of_{hook}"]
        assert report["problems"] == []
        # What is prepared is a measure's.
        offers = "measures" if hook == "genbench_prepare" else hook.removeprefix("genbench_")
        assert list(report["offers"]) == [offers]
        assert report["heavy_imports"] == []


def test_genbench_measures(toy_run: dict[str, Any]) -> None:
    readings = readings_of(toy_run, "largest_weight")
    assert {reading["status"] for reading in readings.values()} == {"ok"}
    assert all(reading["value"] > 0 for reading in readings.values())


def test_genbench_backbones(folder: Path, toy_run: dict[str, Any]) -> None:
    assert set(readings_of(toy_run, "largest_weight")) == {"toy:8", "toy:12", "toy:16"}
    adapted = {result["backbone"]: result["weights"] for result in results(folder, "adapted")}
    assert adapted == {"toy:8": 520, "toy:12": 780, "toy:16": 1040}
    listed = json.loads(genbench_in(folder, "backbones", "toy:8", "--json"))
    assert (listed[0]["status"], listed[0]["detail"]) == ("ready", "made on the spot")


def test_genbench_degradations(folder: Path, toy_run: dict[str, Any]) -> None:
    (noise,) = results(folder, "noise")
    reached = {level["ssim"]: level for level in noise["recipe"]}
    for ssim in (0.7, 0.85):
        assert reached[ssim]["dial"] == "fade"
        assert reached[ssim]["achieved"] == pytest.approx(ssim, abs=0.01)


def test_genbench_suites(folder: Path, toy_run: dict[str, Any]) -> None:
    assert toy_run["suite"] == "toys"
    listed = {suite["name"]: suite for suite in json.loads(genbench_in(folder, "suites", "--json"))}
    assert listed["toys"]["status"] == "ready"
    assert listed["toys"]["networks"] == "3"
    assert listed["toys"]["source"] == "plugin_of_genbench_suites 1.0"


def test_genbench_suite_kinds(folder: Path) -> None:
    """More of it in test_plugin_kind.py."""
    file = LINEAR / "linear-digits.toml"
    arguments = ("run", "--suite", file, "--measure", "largest_weight", "--store", "linear", "--json")
    document = json.loads(genbench_in(folder, *arguments))
    readings = readings_of(document, "largest_weight")
    assert readings.keys() == document["evidence"].keys()
    assert len(readings) == 6
    assert document["report"] == "linear/reports/linear-digits.html"


def test_genbench_executors(folder: Path, toy_run: dict[str, Any]) -> None:
    lines = (folder / "cells.log").read_text().splitlines()
    steps = [line.partition(":")[0] for line in lines]
    assert steps.count("adapted") == 3
    assert steps.count("reading") == sum(len(item["readings"]) for item in toy_run["measures"])
    # A second run takes everything from the store: nothing is handed to the executor.
    arguments = ("run", "--suite", "toys", "--measure", "largest_weight", "--executor", "logged")
    again = json.loads(genbench_in(folder, *arguments, "--store", "store", "--json"))
    assert readings_of(again, "largest_weight").keys() == readings_of(toy_run, "largest_weight").keys()
    assert (folder / "cells.log").read_text().splitlines() == lines


def test_genbench_datasets(folder: Path) -> None:
    (folder / "bars.toml").write_text(TINY_SUITE.replace('"digits"', '"bars"'))
    (folder / "sees.py").write_text(
        "import genbench\n@genbench.measure(needs={'training_data'})\ndef sees(subject):\n"
        "    '''The brightest quarter of an image of class 2, and the number of classes.'''\n"
        "    x, y = next(iter(subject.batches()))\n"
        "    quarters = x[y == 2][0, 0].mean(dim=0).view(4, 2).mean(dim=1)\n"
        "    return quarters.argmax().item() + 10 * subject.classes\n"
    )
    arguments = ("run", "--suite", "bars.toml", "--measure", "./sees.py", "--store", "bars", "--json")
    readings = readings_of(json.loads(genbench_in(folder, *arguments)), "sees")
    assert len(readings) == 3
    # Four classes, and class 2 is bright in its own quarter.
    assert {reading["value"] for reading in readings.values()} == {42.0}
    listed = json.loads(genbench_in(folder, "datasets", "bars", "--json"))
    assert (listed[0]["status"], listed[0]["classes"]) == ("ready", 4)


def test_genbench_prepare(folder: Path) -> None:
    """It is called once, in the process that readings are forked from."""
    (folder / "tiny.toml").write_text(TINY_SUITE)
    (folder / "prepared.py").write_text(
        "import os\nimport genbench\n\nPREPARED = []\n\n"
        "@genbench.measure\ndef prepared(subject):\n    'By which process.'\n    return PREPARED[0]\n\n"
        "@genbench.hookimpl\ndef genbench_measures():\n    return [prepared]\n\n"
        "@genbench.hookimpl\ndef genbench_prepare():\n    PREPARED.append(os.getpid())\n"
    )
    arguments = ("run", "--suite", "tiny.toml", "--measure", "./prepared.py", "-m", "kurtosis_of_weights")
    document = json.loads(genbench_in(folder, *arguments, "--store", "prepared", "--jobs", "1", "--json"))
    readings = readings_of(document, "prepared")
    assert len(readings) == 3
    assert len({reading["value"] for reading in readings.values()}) == 1, "one process for all readings"
    assert {one["status"] for one in readings_of(document, "kurtosis_of_weights").values()} == {"ok"}


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_with_its_signature_and_tested(hook: str) -> None:
    lines = MANUAL.splitlines()
    assert heading(hook) in lines, f"CONTRIBUTING.md needs the heading {heading(hook)!r}"
    assert lines.index("## Plugins") < lines.index(heading(hook))
    assert f"def {hook}():" in example(hook)
    assert f"test_{hook}" in globals(), f"write test_{hook}: a plugin with this hook works end to end"
