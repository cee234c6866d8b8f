"""The expensive parts that measures share, as methods of a subject: computed once for all its readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from genbench.errors import NotApplicable
from genbench.plugin.contract import Estimate
from genbench.subject.sigma import DRAWS, EPS

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource

__all__ = ["SharedParts"]


class SharedParts:
    """What `Subject` hands on from its part source, each time as private copies.

    Parts that sample training examples or draw noise depend on the subject's seed alone, not on the order in
    which measures ask.
    """

    _parts: PartSource
    used: set[str]
    sigma_eps: ClassVar[float] = EPS
    """eps of the magnitude-aware `sigma`."""

    @property
    def m(self) -> int:
        """Number of training examples."""
        raise NotImplementedError

    def _part(self, needs: Sequence[str], name: str, **options: object) -> Part:
        self.used.update(needs)
        return self._parts.get(name, **options)

    def logits(self) -> Tensor:
        """Outputs on the training set in order, (m, classes)."""
        return self._part(["training_data"], "logits")["logits"]

    def margins(self) -> Tensor:
        """Logit of the label minus the largest other logit, for each training example, (m,)."""
        return self._part(["training_data"], "margins")["margins"]

    def margin(self) -> float:
        """gamma: absolute value of the margin at rank floor(m/10) from below (ranks count from 1)."""
        gamma = abs(self.signed_margin())
        if gamma == 0:
            raise NotApplicable("the 10th-percentile margin is 0")
        return gamma

    def signed_margin(self) -> float:
        """The margin at rank floor(m/10) from below, with its sign."""
        rank = self.m // 10
        if rank < 1:
            raise NotApplicable(f"the 10th percentile of {self.m} margins is not defined; at least 10 needed")
        return float(self.margins().sort().values[rank - 1])

    def spectral_norms(self, of: str = "final", grid: str = "image") -> list[float]:
        """||W_i||_2 of every folded layer.

        `of`: "final", "initial" or "change" (W_i − W⁰_i). `grid`: "image", the Fourier grid is the input
        image's (what 001's authors computed), or "layer", it is each layer's own input size.
        """
        needs = {"final": ["weights"], "initial": ["initial_weights"]}.get(of, ["weights", "initial_weights"])
        norms: list[float] = self._part(needs, "spectral_norms", of=of, grid=grid)["norms"].tolist()
        return norms

    def flat_spectral_norms(self) -> dict[str, float]:
        """Largest singular value of every unfolded weight tensor as a matrix (outputs, all else), by name."""
        norms = self._part(["weights"], "flat_spectral_norms")
        return {name: float(norm) for name, norm in norms.items()}

    def log_path_sum(self, normalised: bool = True) -> float:
        """log of the sum over all paths of products of squared weights; -inf if that is 0.

        `normalised`: batch norms are folded and layer norms divide by their spread on the training set;
        otherwise both are taken for the identity.
        """
        if not normalised:
            return float(self._part(["weights"], "log_paths", normalised=False)["log_sum"])
        return float(self._part(["weights", "training_data"], "log_paths")["log_sum"])

    def sigma(self, magnitude_aware: bool = False) -> Estimate:
        """Largest noise on the folded parameters that costs .1 of the mean training accuracy.

        u ~ N(0, sigma² I), or u_i ~ N(0, sigma² w_i² + eps²) with eps = `sigma_eps` if `magnitude_aware`.
        """
        part = self._part(["weights", "training_data"], "sigma", magnitude_aware=magnitude_aware)
        return Estimate(float(part["sigma"]), standard_error=float(part["error"]), samples=DRAWS)

    def batch_gradients(self) -> Part:
        """Of 24 mini-batches of 32 training examples, none in two of them as far as they reach.

        norms (B,) of their gradients; losses (B, 7): at theta, after an ascent step of length .05, and of .01
        to 1 in five steps; doubts (B,): how large the errors p − y of their examples are; mean_doubt, that of
        batches at large.
        """
        return self._part(["gradients", "training_data"], "batch_gradients")

    def gradient_noise(self) -> Part:
        """Over all batches of 32 examples: variance of gradients; noise_scale (1,); mean_square of the mean.

        noise_scale is empty where the mean is 0. chances (n,) of the examples drawn; shares (n, 2): what each
        adds to variance and noise_scale.
        """
        return self._part(["gradients", "training_data"], "gradient_noise")

    def scores(self) -> Tensor:
        """theta·(gradient of log p(y_n | x_n)) for at most 1024 training examples."""
        return self._part(["gradients", "training_data"], "scores")["products"]

    def input_gradient_norms(self) -> Tensor:
        """|gradient of the loss of one example in its input| for at most 512 training examples."""
        return self._part(["gradients", "training_data"], "input_gradients")["norms"]

    def information(self) -> Part:
        """Of 256 examples drawn by size: ratio, sum of J_jj / (I_jj + eps); trace_j; least_i = min I_jj; eps.

        open: the share of the draw's spread that it leaves, 0 if all examples are in; left_out (groups, 4):
        the four without one group of examples each; left_out_rest (groups,): the ratio without one group's
        random projection; traces (n,): the trace of I for the first 256 examples of the fixed order.
        """
        return self._part(["gradients", "training_data"], "information")

    def curvature(self) -> Part:
        """Of the Hessian of the loss: top, its residual, and traces (probes,).

        Of all examples if they are at most 256, else of 128, of a network with long passes fewer. top_forms
        (n,) and trace_forms (n,): what single examples give to either, in Gauss-Newton form.
        """
        return self._part(["gradients", "training_data"], "curvature")

    def weight_noise(self, kind: str) -> Part:
        """40 draws of noise on theta (20 if isotropic), judged on 128 training examples, or on all.

        `kind`: "isotropic", standard deviation .01; "tensor", .05 of each tensor's standard deviation;
        "magnitude", .05·(|theta_i| + 1e-3). Gives log_likelihoods (draws, examples), wrong (draws, examples),
        whether each is classified wrongly, clean (examples,), the log-likelihoods without noise, and chances
        (examples,) of being drawn: a mean over the training set is the sum of value / (m · chance).
        """
        return self._part(["weights", "training_data"], "weight_noise", kind=kind)

    def response_curve(self, pairs: str, layer: int) -> Part:
        """alpha (points,) and right (rows, points): is the point between x and x' classified as x?

        `pairs`: "intra" or "inter" (class); `layer`: 0, the input, or 1, 2, …, the output of that block. A
        row has one x, and at every alpha an x' of its own. example (rows,): which x; seen, the share of the
        training examples among the x; partners, the share of its partners that an x meets at each alpha.
        """
        return self._part(["weights", "training_data"], "response_curve", pairs=pairs, layer=layer)

    def midpoints(self) -> Part:
        """right (pairs, 1): is the input half-way between two examples of one class classified so?

        Up to 768 pairs; example, seen and partners as in `response_curve`.
        """
        return self._part(["weights", "training_data"], "midpoints")

    def transformed_curve(self, transformation: str, sweep: str = "folded") -> tuple[Tensor, Tensor]:
        """alpha (points,) from 0 to 1, and right (examples, points): are changed images classified right?

        `transformation`: "rotation", "horizontal", "vertical" or "colour". `sweep`: "folded", alpha is the
        size of the change and a point the mean of it either way, or "signed", from one way to the other.
        """
        needs = ["weights", "training_data"]
        part = self._part(needs, "transformed_curve", transformation=transformation, sweep=sweep)
        return part["alpha"], part["right"]

    def log_evidence(self) -> Part:
        """log P(labels of one class against the rest) under random networks of this architecture.

        evidence (classes,) on n training examples; networks, how many were drawn; jackknife (4, few classes),
        with a quarter of them left out. A function of architecture and training set, of no seed.
        """
        return self._part(["weights", "training_data"], "log_evidence")
