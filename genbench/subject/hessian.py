"""Top eigenvalue and trace of the Hessian of the training loss, by products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genbench.errors import NotApplicable
from genbench.subject.gradients import trainable
from genbench.subject.sampling import double_backward, examples

if TYPE_CHECKING:
    from genbench.subject.inputs import Inputs
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["curvature"]

_ALL, _SOME = 256, 128
"""All training examples if there are no more than the first, else the second number of them."""
_MOST_STEPS, _LEAST_PROBES = 20, 4
_SETTLED = 0.02
"""Lanczos stops where the top Ritz value is known to this relative accuracy, by its residual."""
_PROBED = 1e6
"""Coordinates that random signs may be drawn for in all: 12 probes of a large network, 200 of a small one."""
_PRECISE = 0.07
"""Probes end where they are known to this share of the trace, or three times as well as the examples are."""
_DOUBLE = 2**21
"""Up to this many coordinates the basis is kept in double precision."""
_GRAPH_BYTES, _KEPT_BYTES = 2**29, 2**30
"""What the graph of one micro-batch may take; and all graphs, if they are to be kept between products."""

Product = Callable[[Tensor], Tensor]


def curvature(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """top and its residual; trace as one value per probe; top_forms and trace_forms (n,), of single examples.

    Lanczos from a random start gives the top eigenvalue, and a basis Q of the directions in which curvature
    is largest. The trace is exact on Q; what is left is estimated with random signs (Hutchinson), whose
    variance is small there because the large eigenvalues are gone (Hutch++, Meyer et al. 2021).

    The forms say what the choice of examples does: vᵀG_n v along the top eigenvector v, and tr(G_n), of the
    Gauss-Newton matrix G_n of each example, which is its Hessian where it is fitted.
    """
    m = len(network.labels)
    inputs, labels = examples(network, m if m <= _ALL else _SOME)
    size = sum(p.numel() for p in trainable(network.model))
    with double_backward():
        product = _product(network, inputs, labels)
        if product is None:  # the loss is linear in theta
            zero = torch.zeros((), dtype=torch.float64)
            none = dict.fromkeys(("traces", "top_forms", "trace_forms"), zero[None])
            return {"top": zero, "residual": zero, **none}
        trace_forms = _traces(parts, len(labels))
        unseen = 1 - len(labels) / m
        sampled = float(trace_forms.std()) * (unseen / len(labels)) ** 0.5 if unseen else 0.0
        basis, tridiagonal, residual = _lanczos(product, size, generator)
        values, vectors = torch.linalg.eigh(tridiagonal)
        exact = float(tridiagonal.diagonal().sum())

        def probe() -> float:
            signs = torch.randint(0, 2, (size,), generator=generator).to(basis.dtype) * 2 - 1
            signs -= basis.T @ (basis @ signs)
            return exact + float(signs @ product(signs))

        most = int(min(200, max(12, _PROBED / size)))
        if size <= most:  # as many products as coordinates give the trace itself
            traces = [sum(float(product(unit) @ unit) for unit in torch.eye(size, dtype=basis.dtype))]
        else:
            traces = _probed(probe, most, sampled / 3)
        top_forms = _forms(network, inputs, basis.T @ vectors[:, -1].to(basis.dtype))
    return {
        "top": values[-1],
        "residual": torch.tensor(residual, dtype=torch.float64),
        "traces": torch.tensor(traces, dtype=torch.float64),
        "top_forms": top_forms,
        "trace_forms": trace_forms,
    }


def _traces(parts: PartSource, count: int) -> Tensor:
    """tr(G_n) of the first examples; 0 where no weight has an effect on what the network predicts."""
    try:
        return parts.get("information")["traces"][:count]
    except NotApplicable:
        return torch.zeros(count, dtype=torch.float64)


def _probed(probe: Callable[[], float], most: int, enough: float) -> list[float]:
    """Values of `probe` until their mean is known to 7 % or to `enough`, or there are `most`."""
    found: list[float] = []
    while len(found) < most:
        found.append(probe())
        if len(found) >= _LEAST_PROBES:
            values = torch.tensor(found, dtype=torch.float64)
            error = float(values.std()) / len(found) ** 0.5
            if error <= max(_PRECISE * abs(float(values.mean())), enough):
                break
    return found


def _product(network: TrainedNetwork, inputs: Inputs, labels: Tensor) -> Product | None:
    """v to H v, in micro-batches whose graphs fit; None if the loss is linear in theta."""
    theta = trainable(network.model)
    sizes = [p.numel() for p in theta]

    def gradient(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        loss = cross_entropy(network.model(x), y, reduction="sum") / len(labels)
        return torch.autograd.grad(loss, theta, create_graph=True)

    one, of_one = _weighed(lambda: gradient(inputs[:1], labels[:1]), theta)
    if not any(g.requires_grad for g in one):
        return None
    # What a second example adds: the first has all that is made of the weights, too.
    _, of_two = _weighed(lambda: gradient(inputs[:2], labels[:2]), theta)
    each = max(of_two - of_one, 1)
    micro = max(1, min(len(labels), _GRAPH_BYTES // each))
    batches = list(zip(inputs.split(micro), labels.split(micro), strict=True))
    keep = each * len(labels) + of_one * len(batches) <= _KEPT_BYTES
    graphs = [gradient(x, y) for x, y in batches] if keep else []

    def product(vector: Tensor) -> Tensor:
        pieces = vector.to(theta[0].dtype).split(sizes)
        along = [v.view_as(p) for v, p in zip(pieces, theta, strict=True)]
        total = torch.zeros_like(vector)
        for graph in graphs or (gradient(x, y) for x, y in batches):
            out = torch.autograd.grad(
                graph, theta, along, retain_graph=keep, allow_unused=True, materialize_grads=True
            )
            total += torch.cat([g.flatten() for g in out])
        return total

    return product


def _weighed(
    make: Callable[[], tuple[Tensor, ...]], theta: list[nn.Parameter]
) -> tuple[tuple[Tensor, ...], int]:
    """What `make` gives, and the bytes that autograd keeps for it beside theta."""
    own = {p.untyped_storage().data_ptr() for p in theta}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        made = make()
    return made, sum(size for place, size in kept.items() if place not in own)


def _forms(network: TrainedNetwork, inputs: Inputs, vector: Tensor) -> Tensor:
    """vᵀG_n v = zᵀ(diag(p) − p pᵀ)z of every example, z the derivative of its logits along v.

    z comes from two reverse passes, because not every network can be differentiated forwards.
    """
    theta = trainable(network.model)
    pieces = vector.to(theta[0].dtype).split([p.numel() for p in theta])
    along = [v.view_as(p) for v, p in zip(pieces, theta, strict=True)]
    found = []
    for x in inputs.split(32):
        logits = network.model(x)
        dummy = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(
            logits, theta, dummy, create_graph=True, allow_unused=True, materialize_grads=True
        )
        (z,) = torch.autograd.grad(pulled, dummy, along)
        p, z = logits.detach().double().softmax(1), z.double()
        found.append((p * z.square()).sum(1) - (p * z).sum(1).square())
    return torch.cat(found)


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
