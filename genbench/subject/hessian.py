"""Top eigenvalue and trace of the Hessian of the training loss, by products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from genbench.subject.gradients import trainable
from genbench.subject.sampling import double_backward, draw_until_precise, examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["curvature"]

_EXAMPLES = 128
_MOST_STEPS, _PROBES_LEAST = 20, 4
_SETTLED = 0.01
"""Lanczos stops where the top Ritz value is known to this relative accuracy, by its residual."""
_PROBED = 1e6
"""Coordinates that random signs may be drawn for in all: 12 probes of a large network, 200 of a small one."""
_DOUBLE = 2**21
"""Up to this many coordinates the basis is kept in double precision."""

Product = Callable[[Tensor], Tensor]


def curvature(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """top, its residual; trace as one value per probe.

    Lanczos from a random start gives the top eigenvalue, and a basis Q of the directions in which curvature
    is largest. The trace is exact on Q; what is left is estimated with random signs (Hutchinson), whose
    variance is small there because the large eigenvalues are gone (Hutch++, Meyer et al. 2021).
    """
    inputs, labels = examples(network, _EXAMPLES)
    theta = trainable(network.model)
    with double_backward():
        loss = cross_entropy(network.model(inputs), labels)
        gradient = torch.autograd.grad(loss, theta, create_graph=True)

        def product(vector: Tensor) -> Tensor:
            pieces = vector.to(theta[0].dtype).split([p.numel() for p in theta])
            along = [v.view_as(p) for v, p in zip(pieces, theta, strict=True)]
            out = torch.autograd.grad(
                gradient, theta, along, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            return torch.cat([g.flatten() for g in out]).to(vector.dtype)

        size = sum(p.numel() for p in theta)
        if not any(g.requires_grad for g in gradient):  # the loss is linear in theta
            zero = torch.zeros((), dtype=torch.float64)
            return {"top": zero, "residual": zero, "traces": zero[None]}
        basis, tridiagonal, residual = _lanczos(product, size, generator)
        exact = float(tridiagonal.diagonal().sum())

        def probe() -> float:
            signs = torch.randint(0, 2, (size,), generator=generator).to(basis.dtype) * 2 - 1
            signs -= basis.T @ (basis @ signs)
            return exact + float(signs @ product(signs))

        most = int(min(200, max(12, _PROBED / size)))
        if size <= most:  # as many products as coordinates give the trace itself
            traces = [sum(float(product(unit) @ unit) for unit in torch.eye(size, dtype=basis.dtype))]
        else:
            traces = draw_until_precise(probe, least=_PROBES_LEAST, most=most)
    top = torch.linalg.eigvalsh(tridiagonal)[-1]
    return {
        "top": top,
        "residual": torch.tensor(residual, dtype=torch.float64),
        "traces": torch.tensor(traces, dtype=torch.float64),
    }


def _lanczos(product: Product, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Orthonormal basis (k, size), the tridiagonal matrix in it, and the residual of the top Ritz pair."""
    q = torch.randn(size, generator=generator, dtype=torch.float64 if size <= _DOUBLE else torch.float32)
    basis = [q / q.norm()]
    alphas: list[float] = []
    betas: list[float] = []
    residual = 0.0
    while True:
        w = product(basis[-1])
        alphas.append(float(w @ basis[-1]))
        for _ in range(2):  # once more, because rounding spoils the first orthogonalisation
            for vector in basis:
                w = w - (w @ vector) * vector
        beta = float(w.norm())
        matrix = torch.diag(torch.tensor(alphas, dtype=torch.float64))
        if betas:
            off = torch.tensor(betas, dtype=torch.float64)
            matrix += torch.diag(off, 1) + torch.diag(off, -1)
        values, vectors = torch.linalg.eigh(matrix)
        residual = beta * abs(float(vectors[-1, -1]))
        scale = float(values.abs().max())
        done = residual <= _SETTLED * abs(float(values[-1])) or beta <= 1e-7 * max(scale, 1e-30)
        if done or len(basis) == min(_MOST_STEPS, size):
            return torch.stack(basis), matrix, residual
        basis.append(w / beta)
        betas.append(beta)
