"""The cells that need no torch: the cube of a family and its trade-off point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from genbench.engine.steps import read_result
from genbench.testbed.cube import ADAPTATION, class_statistics, make_cube, read_cube, write_cube
from genbench.testbed.manifest import CUBE_FILE
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

_PER_CLASS = ("error", "gap", "kappa_conflict", "kappa_cohen")
_SMALL = ("error", "kappa_conflict", "kappa_cohen")


def cube(inputs: CubeInputs, parents: Mapping[str, Path], out: Path) -> CubeResult:
    """The cube of one family, as netCDF."""
    from safetensors.numpy import load_file

    backbones = inputs.backbones
    found = [load_file(parents[name] / "evidence.safetensors") for name in _networks(inputs)]
    heldout = parents["heldout"]
    names = read_result(heldout, ImageResult).class_names
    labels = load_file(heldout / "images.safetensors")["labels"]
    # With adaptations, ten times the networks are in a file that ships: without gaps, which follow from error
    # and training error, and without digits that no reader can use, it is a third of the size.
    kept, form = (_SMALL, np.float32) if inputs.adaptations else (_PER_CLASS, np.float64)
    per_class = {name: _stacked(inputs, [one[name] for one in found], 2).astype(form) for name in kept}
    levels = np.asarray(inputs.zero_shot)
    weights = [read_result(parents[name], JudgedResult).weights for name in _networks(inputs)]
    result = make_cube(
        class_statistics(per_class["error"], per_class["kappa_conflict"]),
        zero_shot=levels / (inputs.seen + levels),
        ssim=inputs.ssim,
        weights=weights[:: len(weights) // len(backbones)],
        models=backbones,
        adaptations=inputs.adaptations or None,
        classes=names,
        per_class=per_class,
        provenance={"family": inputs.family, **_provenance(inputs, parents)},
    )
    order = [backbones.index(str(name)) for name in result["model"].values]
    result = _with_images(result, inputs, found, order).assign_coords(
        unseen_classes=("zero_shot", levels),
        achieved_ssim=("ssim", [level.achieved for level in _recipe(parents, inputs.ssim)]),
        image_class=("image", labels),
    )
    if inputs.adaptations:
        ended = [read_result(parents[name], JudgedResult).converged for name in _networks(inputs)]
        converged = np.array([one is not False for one in ended], dtype=np.uint8)
        converged = converged.reshape(len(backbones), -1)[order]
        result = result.assign_coords(converged=(("model", ADAPTATION), converged))
    write_cube(result, out / CUBE_FILE)
    return CubeResult(family=inputs.family, models=len(backbones))


def _networks(inputs: CubeInputs) -> list[str]:
    """Names of the cube's networks, those of one backbone together."""
    if not inputs.adaptations:
        return inputs.backbones
    return [f"{backbone}/{own}" for backbone in inputs.backbones for own in inputs.adaptations]


def _stacked(inputs: CubeInputs, values: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
    """Arrays of all networks as one, with an axis of models and, if there are any, one of adaptations."""
    joined = np.stack(values, axis=axis)
    if not inputs.adaptations:
        return joined
    shape = joined.shape
    return joined.reshape(*shape[:axis], len(inputs.backbones), len(inputs.adaptations), *shape[axis + 1 :])


def _with_images(
    cube: xr.Dataset, inputs: CubeInputs, found: Sequence[Mapping[str, NDArray[Any]]], order: Sequence[int]
) -> xr.Dataset:
    """The cube with training errors and which images were classified right.

    `make_cube` sorts its models by weights, and what is added here must follow. With adaptations only the two
    slices that measures are judged by say which images were right: 14 of the paper's 54 cells.
    """
    own = ("model", ADAPTATION) if inputs.adaptations else ("model",)
    form = np.float32 if inputs.adaptations else np.float64

    def sorted_stack(values: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
        return np.take(_stacked(inputs, values, axis), order, axis=axis)

    def levels_last(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        # An image that is right at one level is so at the next: together they take less room.
        return np.moveaxis(sorted_stack(values, 1), 0, -1)

    cube = cube.assign(
        training_error=(
            ("zero_shot", *own, "class"),
            sorted_stack([one["training_error"] for one in found], 1).astype(form),
        )
    )
    if not inputs.adaptations:
        right = sorted_stack([one["right"] for one in found], 2)
        return cube.assign(right=(("zero_shot", "ssim", *own, "image"), right))
    first, clean = inputs.zero_shot.index(0), inputs.ssim.index(1.0)
    return cube.assign(
        right_robustness=((*own, "image", "ssim"), levels_last([one["right"][first] for one in found])),
        right_zero_shot=(
            (*own, "image", "zero_shot"),
            levels_last([one["right"][:, clean] for one in found]),
        ),
    )


def _recipe(parents: Mapping[str, Path], levels: list[float]) -> list[NoiseLevel]:
    recipe = {entry.ssim: entry for entry in read_result(parents["noise"], NoiseResult).recipe}
    return [recipe[level] for level in levels]


def _provenance(inputs: CubeInputs, parents: Mapping[str, Path]) -> dict[str, str | int | float]:
    """Where a cube comes from, as netCDF attributes; nothing of the machine, so that its bytes repeat."""
    import json

    from genbench._version import __version__

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


def only(cube: xr.Dataset, backbones: Sequence[str], adaptations: Sequence[str] = ()) -> xr.Dataset:
    """The cube of some of its models, in some of their adaptations."""
    chosen = cube.sel(model=[model for model in cube["model"].values.tolist() if model in backbones])
    return chosen.sel({ADAPTATION: list(adaptations)}) if adaptations else chosen


def chosen_cube(
    file: Path, kappa: str, backbones: Sequence[str], adaptations: Sequence[str] = ()
) -> xr.Dataset:
    """A stored cube with the kappa, the models and the adaptations that a suite asks for."""
    return only(with_kappa(read_cube(file), kappa), backbones, adaptations)


def trade_off_point(inputs: TradeOffInputs, parents: Mapping[str, Path], out: Path) -> TradeOff:
    """The trade-off point of a cube (004 Eq. 4)."""
    from genbench.testbed.tradeoff import trade_off

    data = chosen_cube(parents["cube"] / CUBE_FILE, inputs.kappa, inputs.backbones, inputs.adaptations)
    return trade_off(data, inputs.scales, inputs.weights)
