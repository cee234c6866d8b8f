"""Diagonals of the two information matrices of TIC (002 Eq. 42 to 44), from gradients of single examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from genbench.errors import NotApplicable
from genbench.subject.sampling import double_backward, drawn_by_size, example_order

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["EPS", "information"]

EPS = 1e-3
"""eps of 002 Eq. 43 and 44, which the paper leaves open, as a share of the mean of I_jj: on a network that
fits its data all of I is small, and no fixed number is small beside it."""

_EXAMPLES = 256
_FLOOR = 0.1
"""Least size of an example that is drawn by size, as a share of the mean: how far a weight's effect on the
logits may be larger where the prediction is sure."""
_GROUPS = 16
"""Groups of examples that are left out one at a time, for the error."""
_GROUP_FLOATS = 2**24
"""Numbers kept of the groups' sums: of a larger network, those of every k-th coordinate."""
_EXACT = 4
"""Directions of each example's L that are taken exactly; the rest by one random projection."""
_CHUNK_FLOATS = 2**25
"""Numbers of per-example gradients held at once."""


def information(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """ratio, the sum over coordinates of J_jj / (I_jj + eps); tr J; min I_jj; eps.

    J = mean of g_n g_nᵀ, g_n the gradient of one example's loss. I = the Hessian of the mean loss in its
    Gauss-Newton form, mean of A_nᵀ L_n A_n, with A_n the Jacobian of the logits and L_n = diag(p) − p pᵀ the
    Hessian of the cross-entropy in them. L_n is taken exactly along its largest eigenvectors, which hold
    nearly all of it for a network that fits its data; the rest enters by one random projection, unbiased.

    Of a larger training set 256 examples are drawn by the size of |p − y|² and tr L_n, which are known of
    all: on a network that fits its data a few examples carry both matrices, and are all among them.

    open: what the drawn examples leave to chance, as a share of their spread, 0 if all are in; left_out
    (groups, 4): ratio, tr J, min I_jj and eps without one group of the examples that were not certain to be
    drawn; left_out_rest (groups,): the ratio without one group's random projection alone; traces (n,):
    tr(A_nᵀ L_n A_n) of the first 256 examples of the fixed order, where it was not looked at in proportion to
    tr L_n.
    """
    m = len(network.labels)
    if m < 2:
        raise NotApplicable("it needs two training examples at least, to tell how far one matters")
    p = parts.get("logits")["logits"].double().softmax(1)
    targets = torch.nn.functional.one_hot(network.labels, p.shape[1])
    uncertain = 1 - p.square().sum(1)  # tr L_n
    far = (p - targets).square().sum(1)
    sizes = _FLOOR + uncertain / uncertain.mean().clamp(min=1e-300) + far / far.mean().clamp(min=1e-300)
    rows, chance = drawn_by_size(sizes, _EXAMPLES, generator)
    inputs = network.inputs[rows]
    directions = torch.cat([(p - targets)[rows, None], _roots(p[rows], generator)], 1).to(inputs.dtype)
    theta = {name: w.detach() for name, w in network.model.named_parameters() if w.requires_grad}
    size = sum(w.numel() for w in theta.values())
    chunk = max(1, min(128, _CHUNK_FLOATS // (size * directions.shape[1])))

    def gradients(x: Tensor, along: Tensor) -> list[dict[str, Tensor]]:
        _, pull = vjp(  # type: ignore[misc]  # no auxiliary output was asked for
            lambda w: functional_call(network.model, w, (x[None],))[0], theta
        )
        return [pull(direction)[0] for direction in along]

    sums = _Sums(chance, m, size, random=p.shape[1] - 1 > _EXACT)
    found = []
    with torch.no_grad(), double_backward():
        for some in torch.arange(len(rows)).split(chunk):
            found.append(sums.add(some, vmap(gradients)(inputs[some], directions[some])))
    traces = torch.cat(found)
    each = (traces / chance).sum() / (uncertain[rows] / chance).sum().clamp(min=1e-300) * uncertain
    each[rows] = traces
    return {**sums.part(), "traces": each[example_order(m)[:_EXAMPLES]]}


class _Sums:
    """Sums over examples of the squared gradients: of every coordinate, and by group of some of them.

    Three rows: of the score, of the exact directions, of the random projection.
    """

    def __init__(self, chance: Tensor, m: int, size: int, random: bool) -> None:
        self._random, n = random, len(chance)
        self._weights = 1 / (chance * m)
        groups = min(_GROUPS, n)
        # Of the random projections, all examples; of the choice of examples, those that were not certain.
        self._of_rest, self._of_choice = torch.arange(n) * groups // n, torch.full((n,), -1)
        doubtful = chance < 1
        count = int(doubtful.sum())
        self._of_choice[doubtful] = torch.arange(count) * min(_GROUPS, count) // max(count, 1)
        self.open = (1 - chance[doubtful]).mean().sqrt() if count else torch.zeros((), dtype=torch.float64)
        self._stride = -(-size * groups // _GROUP_FLOATS)
        kept = -(-size // self._stride)
        self._total = torch.zeros(3, size, dtype=torch.float64)
        self._choice = torch.zeros(int(self._of_choice.max()) + 1, 3, kept)
        self._rest = torch.zeros(groups, kept)

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
        traces = squares[1:].sum((0, 2)).double()
        squares *= self._weights[rows, None]
        self._total += squares.sum(1)
        some = squares[:, :, :: self._stride]
        for one in self._of_rest[rows].unique().tolist():
            self._rest[one] += some[2, self._of_rest[rows] == one].sum(0)
        for one in self._of_choice[rows].unique().tolist():
            if one >= 0:
                self._choice[one] += some[:, self._of_choice[rows] == one].sum(1)
        return traces

    def part(self) -> Part:
        j, known, rest = self._total
        i, kept = known + rest, slice(None, None, self._stride)
        eps = EPS * i.mean()
        if eps == 0:
            raise NotApplicable(
                "the information matrix is 0: no weight has an effect on what the network predicts"
            )
        ratio = _ratio(j, i)
        # What the coordinates that are kept of groups stand for.
        larger = ratio / _ratio(j[kept], i[kept]).clamp(min=1e-300)
        left_out = []
        for one in _without(self._total[:, kept], self._choice.double(), self._of_choice):
            of_one = one[1] + one[2]
            bound = (one[0].sum() * self._stride, of_one.min(), EPS * of_one.mean())
            left_out.append(torch.stack([larger * _ratio(one[0], of_one), *bound]))
        left_out_rest = [
            larger * _ratio(j[kept], known[kept] + one)
            for one in _without(rest[kept], self._rest.double(), self._of_rest)
            if self._random
        ]
        return {
            "ratio": ratio,
            "eps": eps,
            "trace_j": j.sum(),
            "least_i": i.min(),
            "open": self.open,
            "left_out": torch.stack(left_out) if left_out else ratio.new_zeros(0, 4),
            "left_out_rest": torch.stack(left_out_rest) if left_out_rest else ratio.new_zeros(0),
        }


def _without(total: Tensor, parts: Tensor, group: Tensor) -> list[Tensor]:
    """The total with what all groups give taken from all but one of them; with and without a single group."""
    if len(parts) < 2:
        return [total, *(total - part for part in parts)]
    given, counts = parts.sum(0), torch.bincount(group[group >= 0]).double()
    all_of_them = counts.sum()
    return [
        total - given + (given - part) * (all_of_them / (all_of_them - count))
        for count, part in zip(counts, parts, strict=True)
    ]


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
