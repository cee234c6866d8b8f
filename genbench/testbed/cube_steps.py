"""The cells that need no torch: the cube of a family and its trade-off point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import to_builtins

from genbench.engine.steps import read_result
from genbench.testbed.cube import class_statistics, make_cube, read_cube, write_cube
from genbench.testbed.step_types import (
    CubeInputs,
    CubeResult,
    ImageResult,
    JudgedResult,
    NoiseLevel,
    NoiseResult,
    TradeOffInputs,
)
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["CUBE_FILE", "chosen_cube", "cube", "only", "trade_off_point", "with_kappa"]

CUBE_FILE = "cube.nc"
_PER_CLASS = ("error", "gap", "kappa_conflict", "kappa_cohen")


def cube(inputs: CubeInputs, parents: Mapping[str, Path], out: Path) -> CubeResult:
    """The cube of one family, as netCDF."""
    from safetensors.numpy import load_file

    backbones = inputs.backbones
    found = [load_file(parents[name] / "evidence.safetensors") for name in backbones]
    heldout = parents["heldout"]
    names = read_result(heldout, ImageResult).class_names
    labels = load_file(heldout / "images.safetensors")["labels"]
    per_class = {name: np.stack([one[name] for one in found], axis=2) for name in _PER_CLASS}
    levels = np.asarray(inputs.zero_shot)
    result = make_cube(
        class_statistics(per_class["error"], per_class["kappa_conflict"]),
        zero_shot=levels / (inputs.seen + levels),
        ssim=inputs.ssim,
        weights=[read_result(parents[name], JudgedResult).weights for name in backbones],
        models=backbones,
        classes=names,
        per_class=per_class,
        provenance={"family": inputs.family, **_provenance(inputs, parents)},
    )
    # make_cube sorts its models by weights; what is added here must follow.
    order = [backbones.index(str(name)) for name in result["model"].values]
    result = result.assign(
        training_error=(
            ("zero_shot", "model", "class"),
            np.stack([found[i]["training_error"] for i in order], axis=1),
        ),
        right=(("zero_shot", "ssim", "model", "image"), np.stack([found[i]["right"] for i in order], axis=2)),
    ).assign_coords(
        unseen_classes=("zero_shot", levels),
        achieved_ssim=("ssim", [level.achieved for level in _recipe(parents, inputs.ssim)]),
        image_class=("image", labels),
    )
    write_cube(result, out / CUBE_FILE)
    return CubeResult(family=inputs.family, models=len(backbones))


def _recipe(parents: Mapping[str, Path], levels: list[float]) -> list[NoiseLevel]:
    recipe = {entry.ssim: entry for entry in read_result(parents["noise"], NoiseResult).recipe}
    return [recipe[level] for level in levels]


def _provenance(inputs: CubeInputs, parents: Mapping[str, Path]) -> dict[str, str | int | float]:
    """Where a cube comes from, as netCDF attributes; nothing of the machine, so that its bytes repeat."""
    import json

    from genbench import __version__

    return {
        "genbench": __version__,
        "suite": inputs.suite,
        "dataset": inputs.dataset,
        "data_hash": read_result(parents["heldout"], ImageResult).data_hash,
        "kappa": "conflict",
        "settings": json.dumps(inputs.settings, sort_keys=True),
        "noise_recipe": json.dumps(to_builtins(_recipe(parents, inputs.ssim)), sort_keys=True),
    }


def with_kappa(cube: xr.Dataset, kappa: str) -> xr.Dataset:
    """The cube with its kappa statistics taken from `conflict` or from `cohen`; both are stored per class."""
    if cube.attrs.get("kappa") == kappa:
        return cube
    statistics = class_statistics(cube["error"].values, cube[f"kappa_{kappa}"].values)
    changed = {name: (cube[name].dims, values) for name, values in statistics.items()}
    return cube.assign(changed).assign_attrs(kappa=kappa)


def only(cube: xr.Dataset, backbones: Sequence[str]) -> xr.Dataset:
    """The cube of some of its models."""
    return cube.sel(model=[model for model in cube["model"].values.tolist() if model in backbones])


def chosen_cube(file: Path, kappa: str, backbones: Sequence[str]) -> xr.Dataset:
    """A stored cube with the kappa and the models that a suite asks for."""
    return only(with_kappa(read_cube(file), kappa), backbones)


def trade_off_point(inputs: TradeOffInputs, parents: Mapping[str, Path], out: Path) -> TradeOff:
    """The trade-off point of a cube (004 Eq. 4)."""
    from genbench.testbed.tradeoff import trade_off

    data = chosen_cube(parents["cube"] / CUBE_FILE, inputs.kappa, inputs.backbones)
    return trade_off(data, inputs.scales, inputs.weights)
