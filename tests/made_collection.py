"""A collection of networks made on the spot, and what tests do with it."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from genbench.errors import UserError
from genbench.plugin.registry import find_measure
from genbench.runs.plan import make_plan
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
