"""Layers of many networks at once, on activations laid out as (networks, channels, height, width, batch).

With the batch innermost, a convolution is one batched matrix product W · columns(x) for all networks, and the
statistics of a batch norm are sums over contiguous memory. `torch.func.vmap` of `nn.Conv2d` becomes a grouped
convolution instead, which is no faster on a processor than one network after the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["batch_norm", "columns", "convolve", "dense", "max_pool"]


def dense(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W_i · x_i + b_i for every network i: (n or 1, in, k), (n, out, in), (n, out) -> (n, out, k)."""
    shared = inputs.expand(len(weight), -1, -1)
    return torch.bmm(weight, shared) if bias is None else torch.baddbmm(bias[:, :, None], weight, shared)


def convolve(images: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """Convolve (n, c, h, w, batch) with (n, out, c, k, k): network i's images with its own kernels.

    Images (1, c, h, w, batch) are shared by all networks.
    """
    _, _, height, width, batch = images.shape
    networks = len(weight)
    side = weight.shape[-1]
    if side == 1 and stride == 1 and padding == 0:
        patches = images.flatten(2)
        size = (height, width)
    else:
        patches = columns(images, side, stride, padding)
        size = ((height + 2 * padding - side) // stride + 1, (width + 2 * padding - side) // stride + 1)
    return dense(patches, weight.flatten(2), bias).view(networks, -1, *size, batch)


def columns(images: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """(n, c, h, w, batch) -> (n, c·side², places·batch): under each output place, the inputs it sees."""
    found: Tensor = _Columns.apply(images, side, stride, padding)  # type: ignore[no-untyped-call]
    return found


@cache
def _sources(
    height: int, width: int, side: int, stride: int, padding: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Which input place each (tap, output place) reads, (taps·places,); and which of them read padding.

    Those that read padding point behind the last input place.
    """
    rows = torch.arange(0, height + 2 * padding - side + 1, stride, device="cpu")
    cols = torch.arange(0, width + 2 * padding - side + 1, stride, device="cpu")
    taps = torch.arange(side, device="cpu")
    row = taps[:, None, None, None] + rows[:, None] - padding
    col = taps[:, None, None] + cols - padding
    inside = (row >= 0) & (row < height) & (col >= 0) & (col < width)
    source = torch.where(inside, row * width + col, height * width).flatten()
    return source.to(device), torch.nonzero(~inside.flatten()).flatten().to(device)


class _Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, side: int, stride: int, padding: int) -> Tensor:
        networks, channels, height, width, batch = images.shape
        source, outside = _sources(height, width, side, stride, padding, images.device)
        ctx.source, ctx.shape = source, images.shape
        places = images.reshape(networks * channels, height * width, batch)
        found = places.index_select(1, source.clamp(max=height * width - 1))
        if len(outside):
            found.index_fill_(1, outside, 0.0)
        return found.view(networks, channels * side * side, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        networks, channels, height, width, batch = ctx.shape
        (gradient,) = gradients
        # The last row collects what fell on padding.
        total = gradient.new_zeros(networks * channels, height * width + 1, batch)
        total.index_add_(1, ctx.source, gradient.reshape(networks * channels, -1, batch))
        return total[:, :-1].reshape(ctx.shape), None, None, None


def max_pool(images: Tensor) -> Tensor:
    """The largest of every 2 × 2 places of (n, c, h, w, batch), as `nn.MaxPool2d(2)`; an odd last one goes.

    Where two are equal both share the gradient, and torch's own takes the first: behind a ReLU that is the
    same, because only zeros, through which it passes none, are equal by more than accident.
    """
    networks, channels, height, width, batch = images.shape
    whole = images[:, :, : height // 2 * 2, : width // 2 * 2]
    return whole.reshape(networks, channels, height // 2, 2, width // 2, 2, batch).amax(dim=(3, 5))


def batch_norm(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Batch norm of (n, c, …) with statistics per network and channel; in training updates the running ones.

    As `nn.BatchNorm2d`: y = (x − mean) / sqrt(var + eps) · weight + bias, the running variance unbiased.
    """
    rows = inputs.reshape(1, inputs.shape[0] * inputs.shape[1], -1)
    scale, shift = weight.reshape(-1), bias.reshape(-1)
    if not training:
        mean, var = running_mean.reshape(-1), running_var.reshape(-1)
        return torch.native_batch_norm(rows, scale, shift, mean, var, False, 0.0, eps)[0].view(inputs.shape)
    count = rows.shape[2]
    if count == 1:
        raise ValueError("batch norm needs more than one value per channel; use larger batches")
    normed, mean, var = _BatchNorm.apply(rows, scale, shift, eps)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        running_mean.lerp_(mean.view(running_mean.shape), momentum)
        running_var.lerp_(var.view(running_var.shape) * (count / (count - 1)), momentum)
    result: Tensor = normed.view(inputs.shape)
    return result


class _BatchNorm(torch.autograd.Function):
    """torch's own kernels, but for the statistics: its forward pass sums in scalar code, 5 times slower."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, ...]:
        mean = rows.mean(dim=2)
        # Two passes: the mean of squares minus the squared mean would cancel in fp32.
        var = torch.linalg.vector_norm(rows - mean[:, :, None], dim=2).square_().div_(rows.shape[2])
        mean, var = mean[0], var[0]
        normed = torch.native_batch_norm(rows, scale, shift, mean, var, False, 0.0, eps)[0]
        ctx.save_for_backward(rows, scale, mean, (var + eps).rsqrt_())
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, var)
        return normed, mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows, scale, mean, inverse_deviation = ctx.saved_tensors
        found = torch.ops.aten.native_batch_norm_backward(
            gradients[0].contiguous(), rows, scale, None, None, mean, inverse_deviation, True, ctx.eps,
            [True, True, True],
        )  # fmt: skip
        return *found, None
