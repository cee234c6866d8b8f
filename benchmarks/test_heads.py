"""The six heads of a backbone together against six scikit-learn fits at the same optimum, in the same run.

scikit-learn's default solver (lbfgs) in float64 on the same standardised features, at the loosest of the
tolerances below that brings the objective of a level within 1e-6 of the optimum: it is not made to
work for digits nobody asks for. Looking for that tolerance is not timed. The heads are timed with their
standardisation, the best of several turns; a scikit-learn fit that takes seconds is timed once.

Time is the processor time of this process, with one thread on either side.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from genbench.data.glyphs import DATASET
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.testbed.heads import Head, fit_heads
from genbench.zoo.features import extract_features
from genbench.zoo.mini import BACKBONES

LEVELS = [0, 10, 20, 30, 40, 50]
PENALTY = 10.0
SAME = 1e-6
TOLERANCES = [3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 1e-8]
BAR = 3.0
Array = NDArray[np.float64]


def objective(weights: Array, bias: Array, x: Array, y: NDArray[np.int64]) -> float:
    """C · sum of cross entropies + ||W||²/2, as scikit-learn writes it."""
    logits = x @ weights.T + bias
    losses = logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
    return float(losses.sum() / PENALTY + 0.5 * np.square(weights).sum())


def scikit_learn(x: Array, y: NDArray[np.int64], ours: float) -> tuple[float, float]:
    """Seconds and objective of the loosest fit within 1e-6 of the best objective known."""
    for tolerance in TOLERANCES:
        start = time.process_time()
        fit = LogisticRegression(C=1 / PENALTY, tol=tolerance, max_iter=100_000).fit(x, y)
        seconds = time.process_time() - start
        value = objective(fit.coef_, fit.intercept_, x, y)
        if value <= ours * (1 + SAME):
            return seconds, value
    raise AssertionError("scikit-learn did not reach the optimum")


@pytest.mark.parametrize("name", ["mini-clip:short9", "mini-efficientnet:b0"])
def test_six_heads_are_found_faster_than_six_fits(name: str, benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    backbone = next(b for b in BACKBONES if b.name == name).load(BackboneRequest())
    split = DATASET.load(DataRequest()).train
    features, labels = extract_features(backbone, split, 256), split.labels

    def heads() -> list[Head]:
        return fit_heads(features, labels, LEVELS, seen=50, penalty=PENALTY)

    with threadpool_limits(1):
        best, baseline, worst = float("inf"), 0.0, -float("inf")
        for level in range(len(LEVELS)):
            # A turn of ours before each of theirs: both meet the same neighbours on the machine.
            start = time.process_time()
            head = heads()[level]
            best = min(best, time.process_time() - start)
            kept = labels < len(head.bias)
            x, y = head.standardiser(features[kept]).numpy(), labels[kept].numpy()
            ours = objective(head.weights.numpy(), head.bias.numpy(), x, y)
            seconds, theirs = scikit_learn(x, y, ours)
            baseline += seconds
            worst = max(worst, ours / theirs - 1)
        benchmark.pedantic(heads, rounds=1)
    ratio = baseline / best
    benchmark.extra_info.update(seconds=best, ratio_to_scikit_learn=ratio, worst_excess=worst)
    print(
        f"{name}: six heads in {best:.2f} s, {ratio:.1f} times as fast as six fits in {baseline:.2f} s; "
        f"objective at most {worst:+.1e} from theirs"
    )
    assert worst <= SAME
    assert ratio >= BAR
