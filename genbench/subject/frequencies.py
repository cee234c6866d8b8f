"""The largest singular value over all frequencies of a convolution's kernel, few of them decomposed.

At a frequency f the circular convolution is the matrix A(f) = sum_t K_t exp(−i f·t) over the kernel's taps t.
A Lanczos iteration on A(f)*A(f), at many frequencies at once and in single precision, bounds the largest
singular value of each from below by its Ritz value and from above by that and the residual. What can no
longer win is left behind; what is left at the end is decomposed in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from genbench.subject.precision import precise

__all__ = ["largest_singular_value"]

_COARSEST = 8
"""Frequencies on each axis with which the search starts, at least where there are twice as many."""
_COARSE, _FIRST, _EVERY, _MOST = 10, 4, 2, 64
"""Iterations before bounds are first compared: there, from random vectors, and on finer grids, from what the
coarser one found; how often from then on, and the last one."""
_CARRIED = 3
"""Ritz vectors that a start is the sum of: the second may have become the first a frequency further on."""
_RANDOM = 0.5
"""Length of the random vector that is added to such a start, for what was not found before."""
_SLACK = 2.0
"""Residuals above its Ritz value that a frequency may still reach."""
_SETTLED = 1e-6
"""Relative residual below which a Ritz value is the eigenvalue, in single precision."""
_DECOMPOSED = 4
"""Frequencies that are decomposed at most: where more are left, they are equal to within `_SETTLED`."""
_AT_ONCE = 2**24
"""Complex numbers held at once while the taps are multiplied."""

Product = Callable[[Tensor, Tensor], Tensor]
"""v -> A(f)*A(f) v, given vectors (size, frequencies) and those frequencies (frequencies, axes)."""


def largest_singular_value(kernel: Tensor, grid: int) -> float:
    """Norm of the circular convolution with `kernel` (out, in, taps...) on a grid of side `grid`."""
    kernel = precise(kernel.detach())
    scale = float(kernel.abs().max())
    if scale == 0 or not math.isfinite(scale):
        return scale
    kernel = kernel / scale  # single precision is enough for what is left
    if kernel.shape[0] < kernel.shape[1]:
        kernel = kernel.transpose(0, 1)  # its matrices are transposed, their norms the same
    contenders = _contenders(kernel, grid)
    taps = kernel.flatten(2).to(torch.complex128)
    matrices = torch.einsum("oit,tf->foi", taps, _phases(kernel, contenders, grid))
    return scale * float(torch.linalg.matrix_norm(matrices, ord=2).amax())


def _contenders(kernel: Tensor, grid: int) -> Tensor:
    """The frequencies that can have the largest singular value, a few at most.

    u*A(f)v is a trigonometric polynomial in f, of degree r = half the kernel's side once that is centred.
    From its maximum it falls no faster than cos(r·distance), in each axis (M. Riesz), and so does the norm,
    its maximum over unit vectors u and v. So a frequency of a coarse grid, whose neighbours are s apart,
    stands for those around it: if its norm is below cos(r·s/2) of the best found, in each axis, none wins.
    """
    size, axes = kernel.shape[1], kernel.ndim - 2
    product = _gram_product(kernel, grid)
    generator = torch.Generator("cpu").manual_seed(0)
    stride, first = 2 if grid > 2 else 1, _COARSE
    while grid >= 2 * _COARSEST * stride:
        stride *= 2
    line = torch.arange(0, grid, stride, device=kernel.device)
    # One of f and −f is enough: their matrices are conjugates.
    frequencies = torch.cartesian_prod(*[line] * (axes - 1), line[line <= grid // 2]).view(-1, axes)
    v = _random(size, frequencies, generator)
    while stride > 1:
        run = _Lanczos(product, frequencies, v)
        # Of eigenvalues, which are squares of norms; knowing them much better would leave few more behind.
        fall = math.cos(min(math.pi / 2, _radius(kernel) * math.pi * stride / grid)) ** (2 * axes)
        _race(run, fall, 2 * (1 - fall), first, min(_MOST, size))
        starts = run.top_vectors(_CARRIED)
        stride, first = stride // 2, _FIRST
        frequencies, parents, mirrored = _around(run.frequencies, stride, grid)
        v = torch.where(mirrored, starts[:, parents].conj(), starts[:, parents])
        v += _RANDOM * _random(size, frequencies, generator)
        v /= v.norm(dim=0)
    run = _Lanczos(product, frequencies, v, remember=False)
    ritz = _race(run, 1.0, _SETTLED, first, min(_MOST, size))
    return run.frequencies[ritz.argsort(descending=True)[:_DECOMPOSED]]


def _radius(kernel: Tensor) -> int:
    return max(side // 2 for side in kernel.shape[2:])


def _random(size: int, frequencies: Tensor, generator: torch.Generator) -> Tensor:
    shape = (size, len(frequencies))
    vectors = torch.randn(shape, dtype=torch.complex64, generator=generator, device="cpu")
    vectors = vectors.to(frequencies.device)
    vectors /= vectors.norm(dim=0)
    return vectors


def _around(frequencies: Tensor, stride: int, grid: int) -> tuple[Tensor, Tensor, Tensor]:
    """The frequencies at most one stride away; which of the given each came from; whether by way of −f."""
    axes = frequencies.shape[1]
    steps = frequencies.new_tensor([0, -stride, stride])
    moves = torch.cartesian_prod(*[steps] * axes).view(-1, axes)
    found = (frequencies + moves[:, None]).flatten(0, 1) % grid
    mirrored = found[:, -1] > grid // 2
    found = torch.where(mirrored[:, None], -found % grid, found)
    code = (found * grid ** torch.arange(axes, device=found.device)).sum(1)
    order = code.sort(stable=True)
    first = torch.ones_like(code, dtype=torch.bool)
    first[1:] = order.values[1:] != order.values[:-1]
    chosen = order.indices[first]
    return found[chosen], chosen % len(frequencies), mirrored[chosen]


def _race(run: _Lanczos, fall: float, precision: float, first: int, most: int) -> Tensor:
    """Iterate until the frequencies that can have `fall` of the best eigenvalue are known to `precision`.

    Others are left behind. Gives the Ritz values of those that `run` has then.
    """
    for step in range(1, most + 1):
        run.step()
        if step < most and (step < first or (step - first) % _EVERY):
            continue
        ritz, residual = run.top()
        best = ritz.max()
        done = bool((residual[ritz + residual >= fall * best] <= precision * best).all()) or step == most
        # The margin is for a start that was poor by chance; at the end there is no need of one.
        able = ritz + (1 if done and fall == 1 else _SLACK) * residual >= fall * best
        if done or 4 * int(able.sum()) < 3 * len(able):  # a copy costs less than the products it saves
            run.keep(able)
        if done:
            break
    return ritz[able]


class _Lanczos:
    """The iteration on A(f)*A(f) at many frequencies at once, from unit vectors v (size, frequencies)."""

    def __init__(self, product: Product, frequencies: Tensor, v: Tensor, remember: bool = True) -> None:
        self.frequencies = frequencies
        self._remember = remember
        self._product, self._v = product, v
        self._beta = torch.zeros(v.shape[1], device=v.device)
        self._alphas: list[Tensor] = []
        self._betas: list[Tensor] = []
        self._basis: list[Tensor] = []

    def step(self) -> None:
        """One product at every frequency."""
        w = self._product(self._v, self.frequencies)
        alpha = (self._v.conj() * w).real.sum(0)
        w -= alpha * self._v
        if self._basis:
            w -= self._beta * self._basis[-1]
        self._basis = [*(self._basis if self._remember else ()), self._v]
        self._beta = w.norm(dim=0)
        self._alphas.append(alpha)
        self._betas.append(self._beta)
        self._v = w / self._beta.clamp(min=1e-30)

    def top(self) -> tuple[Tensor, Tensor]:
        """The largest Ritz value of every frequency, and its residual."""
        values, vectors = self._decomposed()
        return values[:, -1], self._beta * vectors[:, -1, -1].abs()

    def top_vectors(self, count: int) -> Tensor:
        """The sum of the Ritz vectors of the largest Ritz values, as unit vectors (size, frequencies)."""
        assert self._remember
        weights = self._decomposed()[1][:, :, -count:].sum(2).to(torch.complex64)
        total = torch.zeros_like(self._v)
        for number, vectors in enumerate(self._basis):
            total += weights[:, number] * vectors
        total /= total.norm(dim=0).clamp(min=1e-30)
        return total

    def keep(self, chosen: Tensor) -> None:
        """Go on with some of the frequencies."""
        self._alphas = [values[chosen] for values in self._alphas]
        self._betas = [values[chosen] for values in self._betas]
        self._basis = [vectors[:, chosen] for vectors in self._basis]
        self.frequencies, self._beta = self.frequencies[chosen], self._beta[chosen]
        self._v = self._v[:, chosen]

    def _decomposed(self) -> tuple[Tensor, Tensor]:
        matrix = torch.diag_embed(torch.stack(self._alphas, 1).double())
        if len(self._betas) > 1:
            off = torch.stack(self._betas[:-1], 1).double()
            matrix += torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
        found: tuple[Tensor, Tensor] = torch.linalg.eigh(matrix)
        return found


def _phases(kernel: Tensor, frequencies: Tensor, grid: int) -> Tensor:
    """exp(−i f·t), (taps, frequencies)."""
    sides = (torch.arange(side, device=kernel.device) for side in kernel.shape[2:])
    offsets = torch.cartesian_prod(*sides)
    turns = (offsets.view(-1, frequencies.shape[1]) @ frequencies.T) % grid
    return torch.exp(-2j * math.pi / grid * turns.double())


def _gram_product(kernel: Tensor, grid: int) -> Product:
    """The product with A(f)*A(f), as two real products with all taps side by side."""
    taps = kernel.flatten(2).float()
    forth = taps.permute(0, 2, 1).flatten(1).contiguous()  # out, taps·in
    back = taps.permute(1, 2, 0).flatten(1).contiguous()  # in, taps·out
    width = max(1, _AT_ONCE // max(forth.shape[1], back.shape[1]))

    def product(v: Tensor, frequencies: Tensor) -> Tensor:
        out = []
        for part, at in zip(v.split(width, 1), frequencies.split(width), strict=True):
            phases = _phases(kernel, at, grid).to(torch.complex64)
            out.append(_times(back, _times(forth, part, phases), phases.conj()))
        return out[0] if len(out) == 1 else torch.cat(out, 1)

    return product


def _times(matrix: Tensor, vectors: Tensor, phases: Tensor) -> Tensor:
    turned = (phases[:, None] * vectors).flatten(0, 1)  # taps·in, frequencies
    out = matrix @ torch.view_as_real(turned).flatten(1)
    return torch.view_as_complex(out.unflatten(1, (-1, 2)))
