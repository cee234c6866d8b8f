"""Top eigenvalue and trace of the Hessian of the training loss, by products with vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.gradients import trainable
from genbench.subject.precision import wide
from genbench.subject.sampling import double_backward, examples

if TYPE_CHECKING:
    from genbench.subject.inputs import Inputs
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["curvature"]

_ALL, _SOME, _FEWEST = 256, 128, 16
"""All training examples if there are no more than the first, else the second number of them; of a network
whose passes are long fewer, but no fewer than the third."""
_PASS, _LARGE = 2e11, 2e10
"""Floating-point operations that a forward pass of these examples may take, what it keeps counted in; and
from how many on a product with the Hessian, nine times as long, is dear."""
_PER_BYTE = 64
"""Operations in the time of a byte that the pass keeps. Products of ResNet and EfficientNet show about 100;
less, so that ResNet-18 at 32 pixels keeps its 128 examples."""
_MOST_STEPS, _LEAST_PROBES = 20, 4
_DEAR_STEPS, _DEAR_SHARES = 12, 4
"""Where products are dear: steps at most; and of the examples that a probe sees one share of so many."""
_SETTLED = 0.02
"""Lanczos stops where the top Ritz value is known to this relative accuracy, by its residual."""
_PROBED = 1e6
"""Coordinates that random signs may be drawn for in all: 12 probes of a large network, 200 of a small one."""
_PRECISE = 0.07
"""Probes end where they are known to this share of the trace, or three times as well as the examples are."""
_DOUBLE = 2**21
"""Up to this many coordinates the basis is kept in double precision."""
_BASIS_BYTES = 2**30
"""What the basis may take: ten steps for 25 million weights."""
_COPIES = 5
"""The graph of a gradient, and a backward pass through it, in units of what a forward pass keeps."""

Product = Callable[[Tensor], Tensor]


def curvature(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """top and its residual; trace as one value per probe; top_forms and trace_forms (n,), of single examples.

    Lanczos from a random start gives the top eigenvalue, and a basis Q of the directions in which curvature
    is largest. The trace is exact on Q; what is left is estimated with random signs (Hutchinson), whose
    variance is small there because the large eigenvalues are gone (Hutch++, Meyer et al. 2021). Where a
    product is dear each probe sees a quarter of the examples, one after the other: four probes for the price
    of one, which tell more than one does.

    The forms say what the choice of examples does: vᵀG_n v along the top eigenvector v, and tr(G_n), of the
    Gauss-Newton matrix G_n of each example, which is its Hessian where it is fitted.
    """
    m, theta = len(network.labels), trainable(network.model)
    size = sum(p.numel() for p in theta)
    with double_backward():
        flops = _flops(network)
        work = flops + _PER_BYTE * network.bytes_per_example
        inputs, labels = examples(network, min(m if m <= _ALL else _SOME, max(_FEWEST, int(_PASS // work))))
        dear = flops * len(labels) > _LARGE
        product = _product(network, inputs, labels)
        if product is None:  # the loss is linear in theta
            zero = torch.zeros((), dtype=torch.float64, device="cpu")
            none = dict.fromkeys(("traces", "top_forms", "trace_forms"), zero[None])
            return {"top": zero, "residual": zero, **none}
        trace_forms = _traces(parts, len(labels))
        unseen = 1 - len(labels) / m
        sampled = float(trace_forms.std()) * (unseen / len(labels)) ** 0.5 if unseen else 0.0
        steps = min(_DEAR_STEPS if dear else _MOST_STEPS, size)
        basis, tridiagonal, residual = _lanczos(product, _start(size, network.device, generator), steps)
        values, vectors = torch.linalg.eigh(tridiagonal)
        exact = float(tridiagonal.diagonal().sum())
        of_shares = _of_shares(network, inputs, labels) if dear else [product]

        def probe(number: int) -> float:
            along = _signs(basis[0], generator)
            along -= basis.T @ (basis @ along)
            return exact + _dot(along, of_shares[number % len(of_shares)](along))

        most = int(min(200, max(12, _PROBED / size)))
        if size <= most:  # as many products as coordinates give the trace itself
            units = torch.eye(size, dtype=basis.dtype, device=basis.device)
            traces = [sum(float(product(unit) @ unit) for unit in units)]
        else:
            traces = _probed(probe, most, sampled / 3)
        top_forms = _forms(network, inputs, basis.T @ vectors[:, -1].to(basis.dtype).to(basis.device))
    return {
        "top": values[-1],
        "residual": values.new_tensor(residual),
        "traces": values.new_tensor(traces),
        "top_forms": top_forms,
        "trace_forms": trace_forms,
    }


def _flops(network: TrainedNetwork) -> int:
    """Floating-point operations of one example's forward pass: of matrix products and convolutions."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.model(network.inputs[:1])
    return max(1, int(counter.get_total_flops()))


def _of_shares(network: TrainedNetwork, inputs: Inputs, labels: Tensor) -> list[Product]:
    """Products with the Hessian of every fourth example's loss, from the first, the second ... on."""
    found = []
    for first in range(min(_DEAR_SHARES, len(labels))):
        rows = torch.arange(first, len(labels), _DEAR_SHARES, device="cpu")
        product = _product(network, inputs.chosen(rows), labels[rows], keep=False)
        assert product is not None, "the whole is not linear in theta"
        found.append(product)
    return found


def _traces(parts: PartSource, count: int) -> Tensor:
    """tr(G_n) of the first examples; 0 where no weight has an effect on what the network predicts."""
    try:
        return parts.get("information")["traces"][:count].cpu()
    except NotApplicable:
        return torch.zeros(count, dtype=torch.float64, device="cpu")


def _probed(probe: Callable[[int], float], most: int, enough: float) -> list[float]:
    """Values of `probe` until their mean is known to 7 % or to `enough`, or there are `most`."""
    found: list[float] = []
    while len(found) < most:
        found.append(probe(len(found)))
        if len(found) >= _LEAST_PROBES:
            values = torch.tensor(found, dtype=torch.float64, device="cpu")
            error = float(values.std()) / len(found) ** 0.5
            if error <= max(_PRECISE * abs(float(values.mean())), enough):
                break
    return found


def _product(network: TrainedNetwork, inputs: Inputs, labels: Tensor, keep: bool = True) -> Product | None:
    """v to H v, in micro-batches whose graphs fit; None if the loss is linear in theta.

    `keep`: if the graph of all examples fits, it is kept from one product to the next.
    """
    theta = trainable(network.model)
    sizes = [p.numel() for p in theta]

    def gradient(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        loss = cross_entropy(network.model(x), y, reduction="sum") / len(labels)
        return torch.autograd.grad(loss, theta, create_graph=True)

    if not any(g.requires_grad for g in gradient(inputs[:1], labels[:1])):
        return None
    micro = fitting(network, len(labels), _COPIES)
    keep &= micro == len(labels)
    kept = [gradient(inputs[:], labels)] if keep else []

    def graphs() -> Iterator[tuple[Tensor, ...]]:
        for x, y in zip(inputs.split(micro), labels.split(micro), strict=True):
            yield gradient(x, y)

    def product(vector: Tensor) -> Tensor:
        pieces = vector.to(theta[0].dtype).split(sizes)
        along = [v.view_as(p) for v, p in zip(pieces, theta, strict=True)]
        total = torch.zeros_like(vector, dtype=wide(vector.device))
        for graph in kept or graphs():
            out = torch.autograd.grad(
                graph, theta, along, retain_graph=keep, allow_unused=True, materialize_grads=True
            )
            for sum_, g in zip(total.split(sizes), out, strict=True):
                sum_ += g.flatten()
        return total.to(vector.dtype)

    return product


def _forms(network: TrainedNetwork, inputs: Inputs, vector: Tensor) -> Tensor:
    """vᵀG_n v = zᵀ(diag(p) − p pᵀ)z of every example, z the derivative of its logits along v.

    z comes from two reverse passes, because not every network can be differentiated forwards.
    """
    theta = trainable(network.model)
    pieces = vector.to(theta[0].dtype).split([p.numel() for p in theta])
    along = [v.view_as(p) for v, p in zip(pieces, theta, strict=True)]
    found = []
    for x in inputs.split(fitting(network, 32, _COPIES)):
        logits = network.model(x)
        dummy = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(
            logits, theta, dummy, create_graph=True, allow_unused=True, materialize_grads=True
        )
        (z,) = torch.autograd.grad(pulled, dummy, along)
        p, z = logits.detach().cpu().double().softmax(1), z.cpu().double()
        found.append((p * z.square()).sum(1) - (p * z).sum(1).square())
    return torch.cat(found)


def _start(size: int, device: torch.device, generator: torch.Generator) -> Tensor:
    precision = torch.float64 if size <= _DOUBLE else torch.float32
    drawn = torch.randn(size, generator=generator, dtype=precision, device="cpu")
    return drawn.to(min(precision, wide(device), key=lambda form: form.itemsize)).to(device)


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """Random signs, drawn a piece at a time, as they come as eight bytes each."""
    found = torch.empty_like(like)
    for piece in found.split(_DOUBLE):
        piece.copy_(torch.randint(0, 2, piece.shape, generator=generator, device="cpu"))
    return found.mul_(2).sub_(1)


def _dot(left: Tensor, right: Tensor) -> float:
    """left·right, a piece at a time in double precision: in single precision a long sum keeps six digits."""
    precision = wide(left.device)
    pieces = zip(left.split(_DOUBLE), right.split(_DOUBLE), strict=True)
    return sum(float(one.to(precision) @ other.to(precision)) for one, other in pieces)


def _lanczos(product: Product, start: Tensor, most: int) -> tuple[Tensor, Tensor, float]:
    """Orthonormal basis (k, size), the tridiagonal matrix in it, and the residual of the top Ritz pair."""
    most = min(most, max(2, _BASIS_BYTES // (start.numel() * start.element_size())))
    basis = start.new_empty(most, len(start))  # pages that are not written to take no memory
    torch.div(start, start.norm(), out=basis[0])
    del start
    alphas: list[float] = []
    betas: list[float] = []
    residual = 0.0
    while True:
        step = len(alphas)
        w = product(basis[step])
        alphas.append(_dot(w, basis[step]))
        for _ in range(2):  # once more, because rounding spoils the first orthogonalisation
            for vector in basis[: step + 1]:
                w -= (w @ vector) * vector
        beta = float(w.norm())
        matrix = torch.diag(torch.tensor(alphas, dtype=torch.float64, device="cpu"))
        if betas:
            off = torch.tensor(betas, dtype=torch.float64, device="cpu")
            matrix += torch.diag(off, 1) + torch.diag(off, -1)
        values, vectors = torch.linalg.eigh(matrix)
        residual = beta * abs(float(vectors[-1, -1]))
        scale = float(values.abs().max())
        done = residual <= _SETTLED * abs(float(values[-1])) or beta <= 1e-7 * max(scale, 1e-30)
        if done or step + 1 == most:
            return basis[: step + 1], matrix, residual
        torch.div(w, beta, out=basis[step + 1])
        del w
        betas.append(beta)
