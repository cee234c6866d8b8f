"""Diagonals of the two information matrices of TIC (002 Eq. 42 to 44), from gradients of single examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from genbench.errors import NotApplicable
from genbench.subject.sampling import double_backward, examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["EPS", "information"]

EPS = 1e-3
"""eps of 002 Eq. 43 and 44, which the paper leaves open, as a share of the mean of I_jj: on a network that
fits its data all of I is small, and no fixed number is small beside it."""

_EXAMPLES = 256
_EXACT = 4
"""Directions of each example's L that are taken exactly; the rest by one random projection."""
_CHUNK_FLOATS = 2**25
"""Numbers of per-example gradients held at once."""

Diagonal = dict[str, Tensor]


def information(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Sums over coordinates of J_jj / (I_jj + eps) for all examples and for either half; tr J; min I_jj; eps.

    J = mean of g_n g_nᵀ, g_n the gradient of one example's loss. I = the Hessian of the mean loss in its
    Gauss-Newton form, mean of A_nᵀ L_n A_n, with A_n the Jacobian of the logits and L_n = diag(p) − p pᵀ the
    Hessian of the cross-entropy in them. L_n is taken exactly along its largest eigenvectors, which hold
    nearly all of it for a network that fits its data; the rest enters by one random projection, unbiased.
    """
    inputs, labels = examples(network, _EXAMPLES)
    if len(labels) < 2:
        raise NotApplicable("it needs two training examples at least, to tell how far one matters")
    with torch.no_grad():
        p = network.model(inputs).double().softmax(1)
    targets = torch.nn.functional.one_hot(labels, p.shape[1])
    directions = torch.cat([(p - targets)[:, None], _roots(p, generator)], 1).to(inputs.dtype)
    theta = {name: w.detach() for name, w in network.model.named_parameters() if w.requires_grad}
    size = sum(w.numel() for w in theta.values())
    chunk = max(1, min(32, _CHUNK_FLOATS // (size * directions.shape[1])))

    def gradients(x: Tensor, along: Tensor) -> list[Diagonal]:
        _, pull = vjp(  # type: ignore[misc]  # no auxiliary output was asked for
            lambda w: functional_call(network.model, w, (x[None],))[0], theta
        )
        return [pull(direction)[0] for direction in along]

    halves = []
    with torch.no_grad(), double_backward():
        for rows in torch.arange(len(labels)).chunk(2):
            j, i = ({name: torch.zeros_like(w) for name, w in theta.items()} for _ in range(2))
            for part in rows.split(chunk):
                score, *roots = vmap(gradients)(inputs[part], directions[part])
                for name in theta:
                    j[name] += score[name].square().sum(0)
                    for root in roots:
                        i[name] += root[name].square().sum(0)
            halves.append((_flat(j) / len(rows), _flat(i) / len(rows), len(rows)))
    n = len(labels)
    j_all = torch.stack([j * (k / n) for j, _, k in halves]).sum(0)
    i_all = torch.stack([i * (k / n) for _, i, k in halves]).sum(0)
    eps = EPS * i_all.mean()
    if eps == 0:
        raise NotApplicable(
            "the information matrix is 0: no weight has an effect on what the network predicts"
        )
    ratios = [(j / (i + EPS * i.mean())).sum() for j, i in ((j_all, i_all), *((j, i) for j, i, _ in halves))]
    return {"ratios": torch.stack(ratios), "trace_j": j_all.sum(), "least_i": i_all.min(), "eps": eps}


def _flat(diagonal: Diagonal) -> Tensor:
    return torch.cat([values.flatten().double() for values in diagonal.values()])


def _roots(p: Tensor, generator: torch.Generator) -> Tensor:
    """(n, k, classes) vectors u with sum of u uᵀ = diag(p) − p pᵀ, the last one in expectation."""
    values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    scaled: Tensor = (vectors * values.clamp(min=0).sqrt()[:, None, :]).transpose(
        1, 2
    )  # (n, eigenvector, classes)
    if p.shape[1] - 1 <= _EXACT:
        return scaled  # L_n has a zero eigenvalue, so nothing is left out
    signs = torch.randint(0, 2, (len(p), p.shape[1] - _EXACT, 1), generator=generator) * 2 - 1
    rest = (scaled[:, :-_EXACT] * signs).sum(1, keepdim=True)
    return torch.cat([scaled[:, -_EXACT:], rest], 1)
