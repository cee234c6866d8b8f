"""Diagonals of the two information matrices of TIC (002 Eq. 42 to 44), from gradients of single examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.gradients import trainable
from genbench.subject.precision import wide
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
_LOOPED = 2
"""Where no so many examples' gradients could be held, they are taken one by one and none is held."""
_ROUNDS = 16
"""Examples taken one by one whose squares are summed up in single precision before they join the sums."""
_ROOT_FLOATS = 2**22
"""Numbers of the matrices L_n that are decomposed at once."""


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
    p = parts.get("logits")["logits"].cpu().double().softmax(1)
    targets = torch.nn.functional.one_hot(network.labels.cpu(), p.shape[1])
    uncertain = 1 - p.square().sum(1)  # tr L_n
    far = (p - targets).square().sum(1)
    sizes = _FLOOR + uncertain / uncertain.mean().clamp(min=1e-300) + far / far.mean().clamp(min=1e-300)
    rows, chance = drawn_by_size(sizes, _EXAMPLES, generator, mixed=True)
    directions = torch.cat([(p - targets)[rows, None], _roots(p[rows], generator)], 1)
    directions = directions.to(network.inputs.dtype).to(network.device)
    lengths = [w.numel() for w in trainable(network.model)]
    sums = _Sums(chance, m, lengths, random=p.shape[1] - 1 > _EXACT, device=network.device)
    with double_backward():
        traces = torch.cat(list(_added(sums, network, rows, directions))).cpu().double()
    each = (traces / chance).sum() / (uncertain[rows] / chance).sum().clamp(min=1e-300) * uncertain
    each[rows] = traces
    return {**sums.part(), "traces": each[example_order(m)[:_EXAMPLES]]}


def _added(sums: _Sums, network: TrainedNetwork, rows: Tensor, directions: Tensor) -> Iterator[Tensor]:
    """Add the gradients of the logits of all rows along their directions; gives tr(A_nᵀ L_n A_n) of each."""
    theta = {name: w.detach() for name, w in network.model.named_parameters() if w.requires_grad}
    size = sum(w.numel() for w in theta.values())
    chunk = _CHUNK_FLOATS // (size * directions.shape[1])
    if chunk < _LOOPED:
        for number, row in enumerate(rows.split(1)):
            yield sums.add_one(number, _one_by_one(network, row, directions[number]), directions.shape[1])
        return

    def gradients(x: Tensor, along: Tensor) -> list[dict[str, Tensor]]:
        _, pull = vjp(  # type: ignore[misc]  # no auxiliary output was asked for
            lambda w: functional_call(network.model, w, (x[None],))[0], theta
        )
        return [pull(direction)[0] for direction in along]

    with torch.no_grad():
        numbers = torch.arange(len(rows), device="cpu")
        for some in numbers.split(fitting(network, min(128, chunk), copies=2)):
            yield sums.add(some, vmap(gradients)(network.inputs[rows[some]], directions[some]))


def _one_by_one(
    network: TrainedNetwork, row: Tensor, directions: Tensor
) -> Iterator[tuple[Tensor | None, ...]]:
    """The gradient of one example's logits along each direction; None for a weight it does not depend on."""
    theta, logits = trainable(network.model), network.model(network.inputs[row])[0]
    for direction in directions:
        yield torch.autograd.grad(logits, theta, direction, retain_graph=True, allow_unused=True)


class _Sums:
    """Sums over examples of the squared gradients: of every coordinate, and by group of some of them.

    Three rows: of the score, of the exact directions, of the random projection.
    """

    def __init__(
        self, chance: Tensor, m: int, lengths: list[int], random: bool, device: torch.device
    ) -> None:
        self._random, n, size = random, len(chance), sum(lengths)
        self._lengths = lengths
        self._weights = (1 / (chance * m)).to(wide(device)).to(device)
        groups = min(_GROUPS, n)
        # Of the random projections, all examples; of the choice of examples, those that were not certain.
        self._of_rest = torch.arange(n, device="cpu") * groups // n
        self._of_choice = torch.full((n,), -1, device="cpu")
        doubtful = chance < 1
        count = int(doubtful.sum())
        self._of_choice[doubtful] = torch.arange(count, device="cpu") * min(_GROUPS, count) // max(count, 1)
        self.open = (1 - chance[doubtful]).mean().sqrt() if count else chance.new_zeros(())
        self._stride = -(-size * groups // _GROUP_FLOATS)
        kept = -(-size // self._stride)
        self._total = torch.zeros(3, size, dtype=wide(device), device=device)
        self._recent: Tensor | None = None
        self._choice = torch.zeros(int(self._of_choice.max()) + 1, 3, kept, device=device)
        self._rest = torch.zeros(groups, kept, device=device)

    def add(self, rows: Tensor, found: list[dict[str, Tensor]]) -> Tensor:
        """Add the gradients of some examples along each direction; gives tr(A_nᵀ L_n A_n) of each."""
        squares = torch.zeros(3, len(rows), self._total.shape[1], device=self._total.device)
        for direction, gradient in enumerate(found):
            into, start = squares[self._kind(direction, len(found))], 0
            for values in gradient.values():
                flat = values.flatten(1)
                into[:, start : start + flat.shape[1]].addcmul_(flat, flat)
                start += flat.shape[1]
        traces = squares[1:].sum((0, 2)).to(self._total.dtype)
        squares *= self._weights[rows, None]
        self._total += squares.sum(1)
        some = squares[:, :, :: self._stride]
        for one in self._of_rest[rows].unique().tolist():
            self._rest[one] += some[2, self._of_rest[rows] == one].sum(0)
        for one in self._of_choice[rows].unique().tolist():
            if one >= 0:
                self._choice[one] += some[:, self._of_choice[rows] == one].sum(1)
        return traces

    def _kind(self, direction: int, directions: int) -> int:
        """Which of the three rows a direction belongs to."""
        last = self._random and direction == directions - 1
        return 0 if direction == 0 else 2 if last else 1

    def add_one(self, row: int, found: Iterable[Sequence[Tensor | None]], directions: int) -> Tensor:
        """Add the gradients of one example, which come one after the other; gives tr(A_nᵀ L_n A_n), (1,).

        The same sums, but each gradient is read once and dropped: of millions of weights the passes over
        memory would cost more than the network's own.
        """
        if self._recent is None:
            self._recent = self._total.new_zeros(self._total.shape, dtype=torch.float32)
        weight, trace = float(self._weights[row]), self._total.new_zeros(1)
        some = self._rest.new_zeros(3, self._rest.shape[1])
        for direction, gradient in enumerate(found):
            kind, start = self._kind(direction, directions), 0
            for values, length in zip(gradient, self._lengths, strict=True):
                if values is not None:
                    flat = values.flatten()
                    self._recent[kind, start : start + length].addcmul_(flat, flat, value=weight)
                    few = flat[-start % self._stride :: self._stride]
                    at = -(-start // self._stride)
                    some[kind, at : at + len(few)].addcmul_(few, few, value=weight)
                    if kind:
                        trace += flat.square().sum()
                start += length
        self._rest[self._of_rest[row]] += some[2]
        if self._of_choice[row] >= 0:
            self._choice[self._of_choice[row]] += some
        if row % _ROUNDS == _ROUNDS - 1:
            self._settle()
        return trace

    def _settle(self) -> None:
        if self._recent is not None:
            self._total += self._recent
            self._recent.zero_()

    def part(self) -> Part:
        """What is asked of the sums."""
        self._settle()
        self._recent = None
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
        for one in _without(self._total[:, kept], self._choice.to(i.dtype), self._of_choice):
            of_one = one[1] + one[2]
            bound = (one[0].sum() * self._stride, of_one.min(), EPS * of_one.mean())
            left_out.append(torch.stack([larger * _ratio(one[0], of_one), *bound]))
        left_out_rest = [
            larger * _ratio(j[kept], known[kept] + one)
            for one in _without(rest[kept], self._rest.to(i.dtype), self._of_rest)
            if self._random
        ]
        part = {
            "ratio": ratio,
            "eps": eps,
            "trace_j": j.sum(),
            "least_i": i.min(),
            "open": self.open,
            "left_out": torch.stack(left_out) if left_out else ratio.new_zeros(0, 4),
            "left_out_rest": torch.stack(left_out_rest) if left_out_rest else ratio.new_zeros(0),
        }
        return {name: values.cpu() for name, values in part.items()}


def _without(total: Tensor, parts: Tensor, group: Tensor) -> list[Tensor]:
    """The total with what all groups give taken from all but one of them; with and without a single group."""
    if len(parts) < 2:
        return [total, *(total - part for part in parts)]
    given, counts = parts.sum(0), torch.bincount(group[group >= 0]).double()
    all_of_them = counts.sum()
    return [
        total - given + (given - part) * float(all_of_them / (all_of_them - count))
        for count, part in zip(counts, parts, strict=True)
    ]


def _ratio(j: Tensor, i: Tensor) -> Tensor:
    return (j / (i + EPS * i.mean())).sum()


def _roots(p: Tensor, generator: torch.Generator) -> Tensor:
    """(n, k, classes) vectors u with sum of u uᵀ = diag(p) − p pᵀ, the last one in expectation."""
    few = max(1, _ROOT_FLOATS // p.shape[1] ** 2)
    if p.shape[1] - 1 <= _EXACT:  # L_n has a zero eigenvalue, so nothing is left out
        return torch.cat([_scaled(some) for some in p.split(few)])
    signs = torch.randint(0, 2, (len(p), p.shape[1] - _EXACT, 1), generator=generator, device="cpu") * 2 - 1
    found = []
    for some, sign in zip(p.split(few), signs.split(few), strict=True):
        scaled = _scaled(some)
        rest = (scaled[:, :-_EXACT] * sign).sum(1, keepdim=True)
        found.append(torch.cat([scaled[:, -_EXACT:], rest], 1))
    return torch.cat(found)


def _scaled(p: Tensor) -> Tensor:
    """(n, eigenvector, classes): eigenvectors of diag(p) − p pᵀ, times the roots of their eigenvalues."""
    values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    scaled: Tensor = (vectors * values.clamp(min=0).sqrt()[:, None, :]).transpose(1, 2)
    return scaled
