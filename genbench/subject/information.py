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
_GROUPS = 16
"""Groups of examples that are left out one at a time, for the error."""
_GROUP_FLOATS = 2**24
"""Numbers kept of the groups' sums: of a larger network, those of every k-th coordinate."""
_EXACT = 4
"""Directions of each example's L that are taken exactly; the rest by one random projection."""
_CHUNK_FLOATS = 2**25
"""Numbers of per-example gradients held at once."""


def information(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """ratio, the sum over coordinates of J_jj / (I_jj + eps); tr J; min I_jj; eps; traces (n,), of examples.

    J = mean of g_n g_nᵀ, g_n the gradient of one example's loss. I = the Hessian of the mean loss in its
    Gauss-Newton form, mean of A_nᵀ L_n A_n, with A_n the Jacobian of the logits and L_n = diag(p) − p pᵀ the
    Hessian of the cross-entropy in them. L_n is taken exactly along its largest eigenvectors, which hold
    nearly all of it for a network that fits its data; the rest enters by one random projection, unbiased.

    left_out (groups, 4): ratio, tr J, min I_jj and eps without one group of examples; left_out_rest
    (groups,): the ratio without one group's random projection alone.
    """
    inputs, labels = examples(network, _EXAMPLES)
    if len(labels) < 2:
        raise NotApplicable("it needs two training examples at least, to tell how far one matters")
    with torch.no_grad():
        p = torch.cat([network.model(x) for x in inputs.split(128)]).double().softmax(1)
    targets = torch.nn.functional.one_hot(labels, p.shape[1])
    directions = torch.cat([(p - targets)[:, None], _roots(p, generator)], 1).to(inputs.dtype)
    theta = {name: w.detach() for name, w in network.model.named_parameters() if w.requires_grad}
    size = sum(w.numel() for w in theta.values())
    chunk = max(1, min(128, _CHUNK_FLOATS // (size * directions.shape[1])))

    def gradients(x: Tensor, along: Tensor) -> list[dict[str, Tensor]]:
        _, pull = vjp(  # type: ignore[misc]  # no auxiliary output was asked for
            lambda w: functional_call(network.model, w, (x[None],))[0], theta
        )
        return [pull(direction)[0] for direction in along]

    n = len(labels)
    sums = _Sums(n, size, random=p.shape[1] - 1 > _EXACT)
    traces = []
    with torch.no_grad(), double_backward():
        for rows in torch.arange(n).split(chunk):
            traces.append(sums.add(rows, vmap(gradients)(inputs[rows], directions[rows])))
    return {**sums.part(), "traces": torch.cat(traces)}


class _Sums:
    """Sums over examples of the squared gradients: of every coordinate, and by group of some of them.

    Three rows: of the score, of the exact directions, of the random projection.
    """

    def __init__(self, n: int, size: int, random: bool) -> None:
        self._random = random
        groups = min(_GROUPS, n)
        self._group = torch.arange(n) * groups // n
        self._stride = -(-size * groups // _GROUP_FLOATS)
        self._counts = torch.bincount(self._group, minlength=groups).double()
        self._total = torch.zeros(3, size, dtype=torch.float64)
        self._parts = torch.zeros(groups, 3, -(-size // self._stride))

    def add(self, rows: Tensor, found: list[dict[str, Tensor]]) -> Tensor:
        """Add the gradients of some examples along each direction; gives tr(A_nᵀ L_n A_n) of each."""
        squares = torch.zeros(3, len(rows), self._total.shape[1])
        for direction, gradient in enumerate(found):
            last = self._random and direction == len(found) - 1
            into, start = squares[0 if direction == 0 else 2 if last else 1], 0
            for values in gradient.values():
                flat = values.flatten(1)
                into[:, start : start + flat.shape[1]].addcmul_(flat, flat)
                start += flat.shape[1]
        group = self._group[rows]
        for one in group.unique().tolist():
            first, count = int((group < one).sum()), int((group == one).sum())
            part = squares[:, first : first + count].sum(1)
            self._total += part
            self._parts[one] += part[:, :: self._stride]
        return squares[1:].sum((0, 2)).double()

    def part(self) -> Part:
        n = float(self._counts.sum())
        j, known, rest = self._total / n
        ratio, kept = _ratio(j, known + rest), slice(None, None, self._stride)
        among = self._total[:, kept]
        scale = ratio / _ratio(j[kept], (known + rest)[kept]).clamp(min=1e-300)
        left_out, left_out_rest = [], []
        for count, part in zip(self._counts, self._parts.double(), strict=True):
            if count == n:  # a single example: nothing is left without it
                break
            one = (among - part) / (n - count)
            i = one[1] + one[2]
            bound = (one[0].sum() * self._stride, i.min(), EPS * i.mean())
            left_out.append(torch.stack([scale * _ratio(one[0], i), *bound]))
            left_out_rest.append(scale * _ratio(j[kept], known[kept] + one[2]))
        nothing = torch.zeros(0, dtype=torch.float64)
        eps = EPS * (known + rest).mean()
        if eps == 0:
            raise NotApplicable(
                "the information matrix is 0: no weight has an effect on what the network predicts"
            )
        return {
            "ratio": ratio,
            "eps": eps,
            "trace_j": j.sum(),
            "least_i": (known + rest).min(),
            "left_out": torch.stack(left_out) if left_out else nothing.view(0, 4),
            "left_out_rest": torch.stack(left_out_rest) if self._random and left_out else nothing,
        }


def _ratio(j: Tensor, i: Tensor) -> Tensor:
    return (j / (i + EPS * i.mean())).sum()


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
