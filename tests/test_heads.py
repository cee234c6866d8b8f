"""Heads: scikit-learn's optimum, one standardisation for all levels, unseen rows on the seen rows' scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional as F

from genbench.data.glyphs import DATASET
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.testbed.heads import Head, Standardiser, fit_heads, prototypes
from genbench.zoo.features import extract_features
from genbench.zoo.mini import BACKBONES

LEVELS = [0, 10, 20, 30, 40, 50]
Features = tuple[Tensor, Tensor]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):  # on a busy machine two threads of BLAS wait for each other
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def glyphs() -> tuple[Features, Features]:
    """Training and held-out features of mini-efficientnet:b0 on all 100 classes, with labels."""
    backbone = next(b for b in BACKBONES if b.name == "mini-efficientnet:b0").load(BackboneRequest())
    data = DATASET.load(DataRequest())
    train, heldout = (
        (torch.cat(list(extract_features(backbone, split.images, 256))), split.labels)
        for split in (data.train, data.heldout)
    )
    return train, heldout


def clusters(classes: int, width: int, each: int, *, spread: float = 1.0, seed: int = 0) -> Features:
    """Gaussian classes in shuffled order, on features of unequal scales."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(classes), each))
    means = spread * generator.normal(size=(classes, width))
    mixing = generator.normal(size=(width, width)) / np.sqrt(width)
    features = (means[labels] + generator.normal(size=(len(labels), width))) @ mixing
    scaled = features * np.logspace(-1, 1, width) + 5
    return torch.from_numpy(scaled).float(), torch.from_numpy(labels)


def unbalanced() -> Features:
    features, labels = clusters(8, 20, 60, seed=3)
    kept = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 1 / (1 + labels)
    return features[kept], labels[kept]


def objective(weights: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray, c: float) -> float:
    """scikit-learn's: C · sum of cross entropies + ||W||²/2."""
    logits = x @ weights.T + bias
    losses = logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
    return float(c * losses.sum() + 0.5 * np.square(weights).sum())


def assert_is_scikit_learns_optimum(
    features: Tensor, labels: Tensor, head: Head, penalty: float, tolerance: float = 1e-8
) -> None:
    kept = labels < len(head.bias)
    x, y = head.standardiser(features[kept]).numpy(), labels[kept].numpy()
    reference = LogisticRegression(C=1 / penalty, tol=tolerance, max_iter=20_000).fit(x, y)
    best = objective(reference.coef_, reference.intercept_, x, y, 1 / penalty)
    ours = objective(head.weights.numpy(), head.bias.numpy(), x, y, 1 / penalty)
    assert ours == pytest.approx(best, rel=1e-6)
    assert head.weights.sum(dim=0).abs().max() < 1e-9
    probabilities = torch.softmax(head.logits(features[kept].double()), dim=1).numpy()
    assert np.abs(probabilities - reference.predict_proba(x)).max() < 5e-3


@pytest.mark.parametrize("penalty", [1.0, 10.0, 100.0])
def test_heads_on_real_features_are_scikit_learns(glyphs: tuple[Features, Features], penalty: float) -> None:
    (features, labels), _ = glyphs
    heads = fit_heads(features, labels, [0, 10], seen=10, penalty=penalty)
    for head in heads:
        assert_is_scikit_learns_optimum(features, labels, head, penalty, tolerance=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        lambda: clusters(6, 10, 40),
        lambda: clusters(6, 10, 40, spread=5.0),
        lambda: clusters(6, 150, 40),
        lambda: clusters(6, 130, 12),
        unbalanced,
    ],
    ids=["overlapping", "separable", "wide", "wider-than-images", "unbalanced"],
)
@pytest.mark.parametrize("penalty", [0.01, 1.0, 1000.0])
def test_heads_on_made_up_features_are_scikit_learns(data: Callable[[], Features], penalty: float) -> None:
    features, labels = data()
    for head in fit_heads(features, labels, [0, 1, 2], seen=4, penalty=penalty):
        assert_is_scikit_learns_optimum(features, labels, head, penalty)


def test_at_the_optimum_the_gradient_vanishes(glyphs: tuple[Features, Features]) -> None:
    """All six levels at full size: torch's own cross entropy, and F − min F ≤ ||gradient||²/(2·penalty)."""
    (features, labels), _ = glyphs
    heads = fit_heads(features, labels, LEVELS, seen=50, penalty=10.0)
    assert [len(head.bias) for head in heads] == [50, 60, 70, 80, 90, 100]
    for head in heads:
        kept = labels < len(head.bias)
        x, y = head.standardiser(features[kept]), labels[kept]
        weights, bias = head.weights.clone().requires_grad_(), head.bias.clone().requires_grad_()
        value = F.cross_entropy(x @ weights.T + bias, y, reduction="sum") + 5.0 * weights.square().sum()
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(value, [weights, bias])])
        assert gradient.square().sum() / 20 < 1e-6 * value
        assert gradient.norm() < 1e-4 * value


def test_with_an_overwhelming_penalty_only_the_shares_of_the_classes_are_left() -> None:
    features, labels = unbalanced()
    (head,) = fit_heads(features, labels, [4], seen=4, penalty=1e10)
    shares = torch.bincount(labels) / len(labels)
    predicted = torch.softmax(head.logits(features.double()), dim=1)
    assert torch.allclose(predicted, shares.double().expand_as(predicted), atol=1e-4)


def test_levels_come_back_in_the_order_asked_and_do_not_lean_on_each_other() -> None:
    features, labels = clusters(6, 10, 40)
    heads = fit_heads(features, labels, [2, 0, 1, 0], seen=4)
    assert [len(head.bias) for head in heads] == [6, 4, 5, 4]
    (alone,) = fit_heads(features, labels, [0], seen=4)
    for head in (heads[1], heads[3]):
        assert torch.allclose(head.logits(features), alone.logits(features), atol=5e-3)


def test_the_same_data_give_the_same_head_to_the_bit(glyphs: tuple[Features, Features]) -> None:
    (features, labels), _ = glyphs
    once, again = (fit_heads(features, labels, [10], seen=10)[0] for _ in range(2))
    assert torch.equal(once.weights, again.weights)
    assert torch.equal(once.bias, again.bias)


def test_features_are_standardised_by_the_seen_classes_alone() -> None:
    features, labels = clusters(6, 10, 40)
    moved = torch.where(labels[:, None] >= 4, features * 3 + 7, features)
    first, second = fit_heads(moved, labels, [0, 2], seen=4)
    seen = features[labels < 4].double().numpy()
    for head in (first, second):
        assert np.allclose(head.standardiser.mean, seen.mean(axis=0))
        assert np.allclose(head.standardiser.scale, seen.std(axis=0))
    unit = first.standardiser(features[labels < 4])
    assert torch.allclose(unit.mean(dim=0), torch.zeros(10, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(unit.std(dim=0, correction=0), torch.ones(10, dtype=torch.float64))


def test_a_dead_unit_is_not_blown_up() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    features[:, 1] = 2.0
    features[:, 2] *= 1e-8
    standardised = Standardiser.fit(features)(features)
    assert standardised[:, 1].abs().max() < 1e-9
    assert standardised[:, 2].abs().max() < 1e-3
    assert Standardiser.fit(torch.ones(5, 2))(torch.ones(5, 2)).abs().max() == 0


def test_logits_keep_the_features_precision(glyphs: tuple[Features, Features]) -> None:
    (features, labels), (heldout, _) = glyphs
    (head,) = fit_heads(features, labels, [10], seen=10)
    single, double = head.logits(heldout), head.logits(heldout.double())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.allclose(double, head.standardiser(heldout) @ head.weights.T + head.bias)
    assert torch.allclose(single.double(), double, atol=1e-4)


def test_a_prototype_is_the_direction_of_the_mean_of_the_first_images() -> None:
    features, labels = clusters(4, 6, 10)
    found = prototypes(features, labels, 4, 3)
    for k in range(4):
        mean = features[labels == k][:3].double().numpy().mean(axis=0)
        assert np.allclose(found[k], mean / np.linalg.norm(mean))
    with pytest.raises(ValueError, match="class 0 has 10 training images; it needs at least 11"):
        prototypes(features, labels, 4, 11)


def test_unseen_rows_are_cosines_beside_the_seen_classes_own_head() -> None:
    features, labels = clusters(9, 6, 30)
    embeddings = torch.randn(9, 6, generator=torch.Generator().manual_seed(1)) * 4
    heads = fit_heads(features, labels, [0, 3], seen=6, embeddings=embeddings)
    (probe,) = fit_heads(features, labels, [0], seen=6)
    x = features.double()
    assert torch.equal(heads[0].logits(x), probe.logits(x))
    logits = heads[1].logits(x)
    assert logits.shape == (270, 9)
    assert torch.equal(logits[:, :6], probe.logits(x))
    rows = heads[1].unseen
    assert rows is not None
    cosines = F.cosine_similarity(x[:, None], embeddings.double()[None, 6:], dim=2)
    assert torch.allclose(logits[:, 6:], rows.temperature * cosines + rows.offset)


def test_no_image_of_an_unseen_class_is_looked_at_for_an_embedding_head() -> None:
    features, labels = clusters(9, 6, 30)
    embeddings = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))
    spoiled = torch.where(labels[:, None] >= 6, torch.nan, features)
    seen = labels < 6
    with_them, spoiled_them, without_them = (
        fit_heads(x, y, [3], seen=6, embeddings=embeddings)[0].logits(features)
        for x, y in ((features, labels), (spoiled, labels), (features[seen], labels[seen]))
    )
    assert torch.equal(with_them, spoiled_them)
    assert torch.equal(with_them, without_them)


def test_the_scale_of_unseen_rows_is_the_likeliest_with_seen_classes_left_out() -> None:
    """The documented definition, with scikit-learn's fits and SciPy's search."""
    features, labels = clusters(7, 6, 30, spread=1.5)
    embeddings = prototypes(features, labels, 7, 10)
    (head,) = fit_heads(features, labels, [1], seen=6, penalty=1.0, embeddings=embeddings)
    assert head.unseen is not None
    seen = labels < 6
    x, y = head.standardiser(features[seen]).numpy(), labels[seen].numpy()
    cosines = (F.normalize(features[seen].double(), dim=1) @ embeddings[:6].T).numpy()
    folds = []
    for fold in range(5):
        plays = np.arange(6) % 5 == fold
        fit = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(x[~plays[y]], y[~plays[y]])
        right = np.full((len(y), 6), False)
        right[np.arange(len(y)), y] = True
        order = np.concatenate([fit.classes_, np.flatnonzero(plays)])
        folds.append((fit.decision_function(x), cosines[:, plays], right[:, order]))

    def loss(pair: np.ndarray) -> float:
        logits = [np.hstack([rest, pair[0] * played + pair[1]]) for rest, played, _ in folds]
        return float(
            sum(
                (logsumexp(row, axis=1) - row[right]).mean()
                for row, (_, _, right) in zip(logits, folds, strict=True)
            )
        )

    found = np.array([head.unseen.temperature, head.unseen.offset])
    best = minimize(
        loss, found + np.array([3.0, -2.0]), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}
    )
    assert loss(found) == pytest.approx(best.fun, rel=1e-7)
    assert found == pytest.approx(best.x, rel=1e-2)


def test_neither_seen_nor_unseen_rows_swallow_the_others(glyphs: tuple[Features, Features]) -> None:
    """On held-out images of 100 classes, prototypes of 5 images: both halves are far above chance."""
    (features, labels), (heldout, truth) = glyphs
    embeddings = prototypes(features, labels, 100, 5)
    (head,) = fit_heads(features, labels, [50], seen=50, embeddings=embeddings)
    right = (head.logits(heldout).argmax(dim=1) == truth).float()
    assert right[truth < 50].mean() > 0.4
    assert right[truth >= 50].mean() > 0.15


def test_what_cannot_be_fitted_is_refused_by_name() -> None:
    features, labels = clusters(6, 10, 5)
    with pytest.raises(ValueError, match="class 6 has 0 training images"):
        fit_heads(features, labels, [0, 3], seen=4)
    with pytest.raises(ValueError, match="penalty must be positive, not 0"):
        fit_heads(features, labels, [0], seen=4, penalty=0)
    with pytest.raises(ValueError, match=r"levels z ≥ 0 .* not levels \[-1\]"):
        fit_heads(features, labels, [-1], seen=4)
    with pytest.raises(ValueError, match=r"with n labels, not \(30, 10\) and \(29,\)"):
        fit_heads(features, labels[1:], [0], seen=4)
    with pytest.raises(ValueError, match=r"level 2 needs embeddings \(6, 10\).*not \(5, 10\)"):
        fit_heads(features, labels, [2], seen=4, embeddings=torch.rand(5, 10))
    with pytest.raises(ValueError, match="at least three seen classes to set their scale, not 2"):
        fit_heads(features, labels, [2], seen=2, embeddings=torch.rand(4, 10))
