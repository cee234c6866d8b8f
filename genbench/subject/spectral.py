"""Spectral norms of layers (SPEC.md section 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.subject.frequencies import largest_singular_value
from genbench.subject.precision import precise

if TYPE_CHECKING:
    from genbench.subject.folding import FoldedNetwork
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["flat_spectral_norms", "spectral_norm", "spectral_norms"]


def spectral_norms(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, of: str, grid: str
) -> Part:
    """norms (d,) of the folded layers, of their initial weights or of their change."""
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    folded = network.folded
    weights = folded.weights() if of == "final" else _initial_or_change(network, folded, of)
    sides = _grid_sides(network, folded, grid)
    norms = [
        spectral_norm(layer, weight, side)
        for layer, weight, side in zip(folded.layers(), weights, sides, strict=True)
    ]
    return {"norms": torch.tensor(norms, dtype=torch.float64, device="cpu")}


def flat_spectral_norms(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Norm of every unfolded weight tensor, as a matrix (outputs, all else), by name (002 Eq. 10)."""
    norms = {
        name: torch.linalg.matrix_norm(precise(weight.detach()).flatten(1), ord=2)
        for name, weight in weight_tensors(network.model)
    }
    if not norms:
        raise NotApplicable("the network has no weight tensor of two or more dimensions")
    return norms


def weight_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The trainable weights of layers, with their names: what is called "...weight" and is no vector."""
    return [
        (name, p)
        for name, p in model.named_parameters()
        if p.requires_grad and p.ndim > 1 and name.endswith("weight")
    ]


def _initial_or_change(network: TrainedNetwork, folded: FoldedNetwork, of: str) -> list[Tensor]:
    initial = network.folded_initial
    if initial is None:
        raise NotApplicable("the initial weights of this network are not known")
    if isinstance(initial, NotApplicable):
        raise initial
    if of == "initial":
        return initial.weights()
    return [w - w0 for w, w0 in zip(folded.weights(), initial.weights(), strict=True)]


def _grid_sides(network: TrainedNetwork, folded: FoldedNetwork, grid: str) -> list[int]:
    image = int(network.inputs.shape[-1])
    if grid == "image":
        return [image] * len(folded.layer_names)
    seen: dict[str, int] = {}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, inputs, name=name: seen.__setitem__(name, int(inputs[0].shape[-1]))
        )
        for name, layer in zip(folded.layer_names, folded.layers(), strict=True)
    ]
    with torch.no_grad():
        folded.module(network.inputs[:1])
    for handle in handles:
        handle.remove()
    return [seen[name] for name in folded.layer_names]


_SMALL = 32
"""Channels below which decomposing every frequency is as fast as finding the few that matter."""
_HELD = 2**23
"""Numbers of a spectrum that are held at once."""
_ROUNDING = 1e-9


def spectral_norm(layer: nn.Module, weight: Tensor, grid: int) -> float:
    """Largest singular value of `layer` as a linear map, with `weight` in place of its own.

    A convolution is taken as circular on a grid × grid image with its stride ignored; it then is block
    diagonal in the Fourier basis, and its norm is the largest singular value over all frequencies of the
    kernel's 2-D DFT. Groups are independent blocks: the largest counts.
    """
    weight = precise(weight.detach())
    if isinstance(layer, nn.Linear):
        return float(torch.linalg.matrix_norm(weight, ord=2))
    groups = int(layer.groups) if isinstance(layer.groups, int) else 1
    kernel = weight.unflatten(0, (groups, -1))  # groups, out, in, taps
    if kernel[0, 0, 0].numel() == 1:  # the same matrix at every frequency
        return float(torch.linalg.matrix_norm(kernel.flatten(2), ord=2).amax())
    if any(side > grid for side in kernel.shape[3:]):
        kernel = _wrapped(kernel, grid)
    held = kernel.shape[1] * kernel.shape[2] * grid ** (kernel.ndim - 4) * (grid // 2 + 1)  # of one group
    if min(kernel.shape[1:3]) >= _SMALL or held > _HELD:
        return max(largest_singular_value(block, grid) for block in kernel)
    return _over_all_frequencies(kernel, grid, max(1, _HELD // held))


def _over_all_frequencies(kernel: Tensor, grid: int, groups: int) -> float:
    """The largest singular value of any frequency and group, so many groups at a time.

    A matrix of rank r has a norm of at least 1/√r of its Frobenius norm and of at most that: only those that
    can have the largest are decomposed.
    """
    axes, rank = kernel.ndim - 3, min(kernel.shape[1:3])
    floor = largest = 0.0
    for block in kernel.split(groups):
        # Real kernels have conjugate-symmetric spectra: half of the frequencies tell all norms.
        spectrum = torch.fft.rfftn(block, s=(grid,) * axes, dim=tuple(range(3, kernel.ndim)))
        matrices = spectrum.flatten(3).permute(0, 3, 1, 2).flatten(0, 1)  # groups · frequencies, out, in
        sizes = matrices.abs().square().sum((1, 2)).sqrt()
        if not math.isfinite(float(sizes.max())):
            return math.inf
        floor = max(floor, (1 - _ROUNDING) * float(sizes.max()) / math.sqrt(rank))
        able = matrices[sizes >= floor]
        if len(able):
            largest = max(largest, float(torch.linalg.matrix_norm(able, ord=2).amax()))
    return largest


def _wrapped(kernel: Tensor, grid: int) -> Tensor:
    """Fold taps beyond the grid back onto it, as a circular convolution does."""
    for axis in range(3, kernel.ndim):
        size = kernel.shape[axis]
        padded = torch.nn.functional.pad(kernel.movedim(axis, -1), (0, -size % grid))
        kernel = padded.unflatten(-1, (-1, grid)).sum(-2).movedim(-1, axis)
    return kernel
