"""Spectral norms of layers (SPEC.md section 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable

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
    return {"norms": torch.tensor(norms, dtype=torch.float64)}


def flat_spectral_norms(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Norm of every unfolded weight tensor, as a matrix (outputs, all else), by name (002 Eq. 10)."""
    norms = {
        name: torch.linalg.matrix_norm(weight.detach().double().flatten(1), ord=2)
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


_EXACT_WORK = 2e10
"""Frequencies times the cube of the channels up to which every frequency is decomposed, some 20 s of it."""
_MARGIN = 1.01
"""Beyond that, the true norm is at most this times the one found."""


def spectral_norm(layer: nn.Module, weight: Tensor, grid: int) -> float:
    """Largest singular value of `layer` as a linear map, with `weight` in place of its own.

    A convolution is taken as circular on a grid × grid image with its stride ignored; it then is block
    diagonal in the Fourier basis, and its norm is the largest singular value over all frequencies of the
    kernel's 2-D DFT. Groups are independent blocks: the largest counts.
    """
    weight = weight.detach().double()
    if isinstance(layer, nn.Linear):
        return float(torch.linalg.matrix_norm(weight, ord=2))
    groups = int(layer.groups) if isinstance(layer.groups, int) else 1
    kernel = weight.unflatten(0, (groups, -1))  # groups, out, in, taps
    if kernel[0, 0, 0].numel() == 1:  # the same matrix at every frequency
        return float(torch.linalg.matrix_norm(kernel.flatten(2), ord=2).amax())
    if any(side > grid for side in kernel.shape[3:]):
        kernel = _wrapped(kernel, grid)
    axes = kernel.ndim - 3
    work = groups * grid**axes / 2 * max(kernel.shape[1:3]) * min(kernel.shape[1:3]) ** 2
    stride = _stride(kernel, grid) if work > _EXACT_WORK else 1
    if stride > 1:
        return max(_searched(block, grid, stride) for block in kernel)
    # Real kernels have conjugate-symmetric spectra: half of the frequencies tell all norms.
    spectrum = torch.fft.rfftn(kernel, s=(grid,) * axes, dim=tuple(range(3, kernel.ndim)))
    matrices = spectrum.flatten(3).permute(0, 3, 1, 2)  # groups, frequencies, out, in
    return float(torch.linalg.matrix_norm(matrices, ord=2).amax())


def _stride(kernel: Tensor, grid: int) -> int:
    """The widest spacing of frequencies that keeps the promise of _MARGIN.

    u*A(f)v is a trigonometric polynomial in the frequency f, of degree r = half the kernel's side once that
    is centred. On n evenly spaced points it reaches cos(pi r / n) of its maximum, in each axis (Ehlich &
    Zeller 1964), and so does the norm, its maximum over unit vectors u and v.
    """
    axes = kernel.ndim - 3
    radius = max(side // 2 for side in kernel.shape[3:])
    fitting = [
        stride
        for stride in range(1, grid + 1)
        if grid % stride == 0
        and grid // stride > 2 * radius
        and math.cos(math.pi * radius * stride / grid) ** axes >= 1 / _MARGIN
    ]
    return max(fitting, default=1)


def _searched(kernel: Tensor, grid: int, stride: int) -> float:
    """Norm of one group (out, in, taps): the best of every stride-th frequency, then uphill from there."""
    axes = kernel.ndim - 2
    taps = kernel.flatten(2)
    offsets = torch.cartesian_prod(*(torch.arange(side) for side in kernel.shape[2:])).view(-1, axes).double()

    def norms(frequencies: Tensor) -> Tensor:
        phases = torch.exp(-2j * math.pi / grid * (offsets @ frequencies.double().T))
        matrices = torch.einsum("oit,tf->foi", taps.to(phases.dtype), phases)
        found: Tensor = torch.linalg.matrix_norm(matrices, ord=2)
        return found

    line = torch.arange(0, grid, stride)
    coarse = torch.cartesian_prod(*[line] * (axes - 1), line[line <= grid // 2]).view(-1, axes)
    found = torch.cat([norms(part) for part in coarse.split(64)])
    best, at = float(found.max()), coarse[found.argmax()]
    while stride > 1:
        stride = (stride + 1) // 2
        around = torch.cartesian_prod(*[torch.tensor([-stride, 0, stride])] * axes).view(-1, axes)
        found = norms(at + around)
        best, at = max(best, float(found.max())), (at + around)[found.argmax()]
    return best


def _wrapped(kernel: Tensor, grid: int) -> Tensor:
    """Fold taps beyond the grid back onto it, as a circular convolution does."""
    for axis in range(3, kernel.ndim):
        size = kernel.shape[axis]
        padded = torch.nn.functional.pad(kernel.movedim(axis, -1), (0, -size % grid))
        kernel = padded.unflatten(-1, (-1, grid)).sum(-2).movedim(-1, axis)
    return kernel
