"""SSIM is scikit-image's, image by image, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.nn.functional import avg_pool2d

from genbench.data.glyphs import DATASET
from genbench.plugin.offers import DataRequest
from genbench.testbed.ssim import ssim

SIZES = [(11, 11), (12, 31), (32, 32), (40, 57), (64, 64), (130, 96)]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def glyphs() -> Tensor:
    """24 held-out images of as many classes, in [0, 1]."""
    split = DATASET.load(DataRequest()).heldout
    return split.batch(range(0, len(split), len(split) // 24)).float()[:24] / 255


def reference(first: Tensor, second: Tensor) -> np.ndarray:
    """scikit-image in float64, one image at a time."""
    return np.array(
        [
            structural_similarity(
                a.double().numpy(),
                b.double().numpy(),
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
                data_range=1,
                channel_axis=0,
            )
            for a, b in zip(first, second, strict=True)
        ]
    )


def noise(images: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (images + 0.1 * torch.randn(images.shape, generator=generator)).clamp(0, 1)


def blur(images: Tensor) -> Tensor:
    return avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False)


def blend_with_grey(images: Tensor) -> Tensor:
    return 0.6 * images + 0.2


def invert(images: Tensor) -> Tensor:
    return 1 - images


def shuffle(images: Tensor) -> Tensor:
    return images.roll(1, dims=0)


DEGRADATIONS = [noise, blur, blend_with_grey, invert, shuffle]


@pytest.mark.parametrize("degrade", DEGRADATIONS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_scikit_images_on_random_images(
    size: tuple[int, int], channels: int, degrade: Callable[[Tensor], Tensor]
) -> None:
    images = torch.rand(5, channels, *size, generator=torch.Generator().manual_seed(0))
    degraded = degrade(images)
    assert np.abs(ssim(images, degraded).numpy() - reference(images, degraded)).max() < 2e-6


@pytest.mark.parametrize("degrade", DEGRADATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_scikit_images_on_real_images(
    glyphs: Tensor, channels: int, degrade: Callable[[Tensor], Tensor]
) -> None:
    images = glyphs[:, :channels]
    degraded = degrade(images)
    values = ssim(images, degraded).numpy()
    assert values.shape == (24,)
    assert np.abs(values - reference(images, degraded)).max() < 2e-5
    # Something was measured: neither all equal nor all lost.
    assert values.min() < 0.999


@pytest.mark.parametrize("level", [0.0, 0.1, 0.5, 0.999, 1.0])
def test_float32_does_not_drown_in_flat_bright_images(level: float) -> None:
    """Where v1 + v2 is far below C2 a rounding error of the variance would show in full."""
    images = torch.full((3, 3, 32, 32), level)
    degraded = (images + 1e-3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))).clamp(
        0, 1
    )
    assert np.abs(ssim(images, degraded).numpy() - reference(images, degraded)).max() < 2e-6


@pytest.mark.parametrize(("first", "second"), [(0.0, 1.0), (0.25, 0.75), (0.9, 1.0), (0.3, 0.3)])
def test_of_constant_images_only_the_luminance_is_left(first: float, second: float) -> None:
    a, b = (torch.full((1, 3, 16, 20), value, dtype=torch.float64) for value in (first, second))
    expected = (2 * first * second + 1e-4) / (first**2 + second**2 + 1e-4)
    assert ssim(a, b).item() == pytest.approx(expected, abs=1e-10)


def test_equal_images_have_similarity_one_and_order_does_not_matter(glyphs: Tensor) -> None:
    assert torch.allclose(ssim(glyphs, glyphs), torch.ones(24), atol=1e-6)
    assert torch.allclose(ssim(glyphs, blur(glyphs)), ssim(blur(glyphs), glyphs), atol=1e-6)


def test_an_images_value_does_not_depend_on_its_batch(glyphs: Tensor) -> None:
    degraded = noise(glyphs)
    many = ssim(glyphs.repeat(9, 1, 1, 1), degraded.repeat(9, 1, 1, 1))
    alone = torch.cat([ssim(glyphs[i : i + 1], degraded[i : i + 1]) for i in range(24)])
    assert torch.allclose(many, alone.repeat(9), atol=1e-6)


def test_channels_count_equally(glyphs: Tensor) -> None:
    degraded = noise(glyphs)
    each = torch.stack([ssim(glyphs[:, c : c + 1], degraded[:, c : c + 1]) for c in range(3)])
    assert torch.allclose(ssim(glyphs, degraded), each.mean(dim=0), atol=1e-6)


def test_float64_is_kept_and_other_floats_become_float32(glyphs: Tensor) -> None:
    degraded = noise(glyphs)
    assert ssim(glyphs.double(), degraded.double()).dtype == torch.float64
    assert (
        np.abs(ssim(glyphs.double(), degraded.double()).numpy() - reference(glyphs, degraded)).max() < 1e-12
    )
    assert ssim(glyphs.double(), degraded).dtype == torch.float32
    assert ssim(glyphs.bfloat16(), degraded.bfloat16()).dtype == torch.float32


def test_the_inputs_are_left_alone(glyphs: Tensor) -> None:
    images, degraded = glyphs.clone(), noise(glyphs)
    kept = degraded.clone()
    ssim(images, degraded)
    assert torch.equal(images, glyphs)
    assert torch.equal(degraded, kept)


def test_images_smaller_than_the_window_are_refused() -> None:
    digits = torch.rand(4, 1, 8, 8)
    with pytest.raises(ValueError, match=r"at least 11 × 11 pixels.*not 8 × 8"):
        ssim(digits, digits)
    with pytest.raises(ValueError, match="not 32 × 10"):
        ssim(torch.rand(4, 3, 32, 10), torch.rand(4, 3, 32, 10))


def test_unequal_shapes_and_raw_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one shape.*\(2, 3, 32, 32\) with \(2, 1, 32, 32\)"):
        ssim(torch.rand(2, 3, 32, 32), torch.rand(2, 1, 32, 32))
    with pytest.raises(ValueError, match="one shape"):
        ssim(torch.rand(32, 32), torch.rand(32, 32))
    raw = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(TypeError, match="divide raw images by 255"):
        ssim(raw, raw)


def test_no_images_have_no_similarities() -> None:
    assert ssim(torch.rand(0, 3, 32, 32), torch.rand(0, 3, 32, 32)).shape == (0,)
