"""`autoencoder`: a bottleneck that narrows steadily."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
import torch
from test_degradations import calibration_of, dials_of, images_of
from torch import Tensor

from genbench.testbed.degradations import autoencoder

pytestmark = pytest.mark.xdist_group("degradation autoencoder")  # one worker fits it for all


@cache
def autoencoder_of_glyphs() -> autoencoder.Autoencoder:
    (dial,) = dials_of("autoencoder", "glyphs")
    network = autoencoder.Autoencoder(images_of("glyphs")[0].images.shape[1], side=8)
    network.load_state_dict(dial.tensors)
    return network.requires_grad_(False).eval()


def test_an_open_bottleneck_gives_the_image_and_a_narrower_one_less() -> None:
    network = autoencoder_of_glyphs()
    images = images_of("glyphs")[1].images[:100].float() / 255
    errors = [
        float((network(network.squares(images), n, network.linear(n)) - images).square().mean())
        for n in (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
    ]
    assert errors[0] < 1e-6
    assert all(wide < narrow for wide, narrow in pairwise(errors)), errors


def test_the_code_is_along_principal_axes_and_shrunk_as_ridge_regression_does() -> None:
    """Against scikit-learn: the best linear reconstruction of squares from noisy copies of themselves."""
    from sklearn.linear_model import Ridge

    network = autoencoder_of_glyphs()
    images = images_of("glyphs")[0].images[::5].double() / 255 - network.mean
    # Squares anywhere, as the code is for any.
    squares = images.unfold(2, 8, 3).unfold(3, 8, 5).permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)
    for narrowness in (0.4, 0.7):
        # Noise of variance t on each of N inputs is, on average, a penalty of N · t.
        penalty = len(squares) * float(network.noise(narrowness))
        best = Ridge(penalty, fit_intercept=False).fit(squares, squares)
        found = network.linear(narrowness).double()

        def objective(matrix: Tensor, penalty: float = penalty) -> float:
            return float((squares - squares @ matrix.T).square().sum() + penalty * matrix.square().sum())

        assert objective(found) < 1.05 * objective(torch.from_numpy(best.coef_))


def test_no_sharp_ghost_is_left() -> None:
    """The finest pattern goes first; a blend would keep of it the share that it keeps of the image."""
    images = images_of("glyphs")[1].images[:20].float() / 255 * 0.8 + 0.1
    checks = 0.1 * (1 - 2.0 * (torch.arange(32)[:, None] + torch.arange(32)).remainder(2))
    shares = []
    for level in (0.95, 0.8, 0.65):
        strength = calibration_of("autoencoder", "glyphs")[level].strength
        turn = calibration_of("autoencoder", "glyphs")[level].dial.turn
        change = turn(images + checks, strength, torch.arange(20)) - turn(images, strength, torch.arange(20))
        shares.append(float((change * checks).sum() / (20 * 3 * checks.square().sum())))
    assert shares[0] < 0.5
    assert shares[2] < shares[1] < shares[0]
    assert shares[1] < 0.1
