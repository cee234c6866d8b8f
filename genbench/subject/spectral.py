"""Spectral norms of layers (SPEC.md section 4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["spectral_norm"]


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
    blocks = weight.unflatten(0, (groups, -1)).flatten(3)  # groups, out, in, taps
    if blocks.shape[-1] == 1:  # the same matrix at every frequency
        return float(torch.linalg.matrix_norm(blocks[..., 0], ord=2).amax())
    kernel = weight.unflatten(0, (groups, -1))
    sides = tuple(kernel.shape[3:])
    if any(side > grid for side in sides):
        kernel = _wrapped(kernel, grid)
    # Real kernels have conjugate-symmetric spectra: half of the frequencies tell all norms.
    spectrum = torch.fft.rfftn(kernel, s=(grid,) * len(sides), dim=tuple(range(3, kernel.ndim)))
    matrices = spectrum.flatten(3).permute(0, 3, 1, 2)  # groups, frequencies, out, in
    return float(torch.linalg.matrix_norm(matrices, ord=2).amax())


def _wrapped(kernel: Tensor, grid: int) -> Tensor:
    """Fold taps beyond the grid back onto it, as a circular convolution does."""
    for axis in range(3, kernel.ndim):
        size = kernel.shape[axis]
        padded = torch.nn.functional.pad(kernel.movedim(axis, -1), (0, -size % grid))
        kernel = padded.unflatten(-1, (-1, grid)).sum(-2).movedim(-1, axis)
    return kernel
