"""timm and torchvision in others' code, beside a torchvision whose compiled operators cannot load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from test_plugins import with_site

NETWORK = """
import timm
import torch

import genbench

def build():
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=3)
    return genbench.Subject.from_module(model, data=(torch.randn(6, 3, 32, 32), torch.arange(6) % 3))
"""
MEASURE = """
import torchvision

import genbench

@genbench.measure
def pads(subject):
    '''Largest weight, after a transform of torchvision.'''
    from timm.layers import to_2tuple
    weight = max(w.abs().max() for w in subject.weights())
    return torchvision.transforms.functional.hflip(weight.expand(to_2tuple(2)))[0, 0]
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_timm_network_and_a_measure_that_imports_torchvision_are_read(
    run_process: Run, tmp_path: Path
) -> None:
    """In workers that have not imported them before, as those of commands in this process have."""
    (tmp_path / "mynet.py").write_text(NETWORK)
    (tmp_path / "pads.py").write_text(MEASURE)
    done = run_process("read", "./mynet.py:build", "--measure", "params", "--measure", "./pads.py", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["measure"]: row for row in json.loads(done.stdout)}
    assert rows["params"]["status"] == rows["pads"]["status"] == "ok"
    assert rows["pads"]["value"] > 0


@pytest.mark.parametrize(
    "module", ["genbench.engine.host", "genbench.engine.own", "genbench.conformance.process"]
)
def test_every_process_that_runs_others_code_is_ready_for_torchvision(module: str) -> None:
    """Ready, and not slower: nothing is imported before it is asked for."""
    code = (
        f"import sys, {module}; finders = [type(finder).__module__ for finder in sys.meta_path]; "
        "print('genbench._torchvision' in finders, 'torchvision' in sys.modules)"
    )
    assert python(code).split() == ["True", "False"]


def test_being_ready_costs_no_torch() -> None:
    assert python("import sys, genbench._torchvision; print('torch' in sys.modules)").split() == ["False"]


def test_missing_operators_are_declared_before_torchvision_is_executed(tmp_path: Path) -> None:
    """With a torchvision that has no compiled operators at all; looking for it executes nothing."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import torch\nSCHEMA = str(torch.ops.torchvision.nms.default._schema)\n"
    )
    code = (
        "import sys, importlib.util, genbench._torchvision; "
        "found = importlib.util.find_spec('torchvision'); print(found is None, 'torch' in sys.modules); "
        "import torchvision; print(torchvision.SCHEMA)"
    )
    lines = python(code, **with_site(tmp_path)).splitlines()
    assert lines[0].split() == ["False", "False"]
    assert lines[1] == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def test_without_torchvision_the_usual_error_comes(tmp_path: Path) -> None:
    code = (
        "import sys, genbench._torchvision\n"
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
        "try:\n    import torchvision\nexcept ModuleNotFoundError as problem:\n    print(problem.name)\n"
    )
    assert python(code).split() == ["torchvision"]


def test_doctor_says_whether_a_users_file_can_import_timm(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    broken.mkdir()
    (broken / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    done = run("doctor", "--json", env=with_site(broken))
    assert done.returncode == 1
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert findings["torch works"]["status"] == "ok"
    assert findings["timm and torchvision work"]["status"] == "problem"
    assert (
        "operator torchvision::nms does not exist; reinstall"
        in findings["timm and torchvision work"]["detail"]
    )
