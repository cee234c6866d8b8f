"""Corruptions against independent implementations: Pillow, scikit-image, scipy, and their statistics."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from skimage.color import hsv2rgb, rgb2hsv
from skimage.metrics import structural_similarity

from genbench.data.corruptions import CORRUPTIONS, FAMILIES, SEVERITIES, corrupt
from genbench.errors import UserError


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """Eight smooth colour images with a bright square, uint8."""
    generator = torch.Generator().manual_seed(0)
    rough = torch.rand(8, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(rough, size=(32, 32), mode="bicubic").clamp(0, 1)
    smooth[:, :, 10:20, 12:22] = 1.0
    return (smooth * 255).round().byte()


def distance(images: torch.Tensor, name: str, severity: int) -> float:
    return float((corrupt(images, name, severity).double() - images.double()).square().mean().sqrt())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_severity_changes_the_images_and_five_is_worse_than_one(images, name) -> None:
    found = [distance(images, name, severity) for severity in SEVERITIES]
    assert min(found) > 0.5
    # Published elastic strengths trade the affine map for the field of shifts: they are not monotone.
    if name != "elastic":
        assert found[4] > found[0]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_kind_and_range_are_kept_and_bytes_agree_with_floats(images, name) -> None:
    changed = corrupt(images, name, 3, seed=5)
    assert changed.dtype == torch.uint8
    assert changed.shape == images.shape
    floats = corrupt(images.float() / 255, name, 3, seed=5)
    assert floats.dtype == torch.float32
    assert 0 <= float(floats.min()) <= float(floats.max()) <= 1
    assert float((floats * 255 - changed.float()).abs().max()) <= 1.001


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_what_is_random(images, name) -> None:
    first, again, other = (corrupt(images, name, 2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    random = {
        "gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "frost", "fog",
        "elastic",
    }  # fmt: skip
    assert torch.equal(first, other) == (name not in random)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(5, 1, 8, 8), (2, 3, 28, 20)])
def test_small_grey_and_oblong_images_work(name, shape) -> None:
    images = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).byte()
    for severity in SEVERITIES:
        assert corrupt(images, name, severity).shape == shape


def test_families_hold_every_corruption_once() -> None:
    assert list(FAMILIES) == ["noise", "blur", "weather", "digital"]
    assert len(CORRUPTIONS) == sum(map(len, FAMILIES.values())) == 15


def test_noise_has_the_published_strength() -> None:
    grey = torch.full((40, 3, 32, 32), 0.5)
    noise = corrupt(grey, "gaussian_noise", 5) - 0.5
    assert float(noise.std()) == pytest.approx(0.10, rel=0.02)
    # Poisson with 50 photons at full brightness: the variance of x is x / 50.
    assert float(corrupt(grey, "shot_noise", 5).var()) == pytest.approx(0.5 / 50, rel=0.03)
    salt = corrupt(grey, "impulse_noise", 5)
    assert float((salt == 1).float().mean()) == pytest.approx(0.035, abs=0.003)
    assert float((salt == 0).float().mean()) == pytest.approx(0.035, abs=0.003)


def test_brightness_adds_to_the_value_of_hsv(images) -> None:
    for image, changed in zip(images, corrupt(images.double() / 255, "brightness", 4), strict=True):
        hsv = rgb2hsv(image.permute(1, 2, 0).numpy() / 255)
        hsv[..., 2] = np.clip(hsv[..., 2] + 0.2, 0, 1)
        np.testing.assert_allclose(changed.permute(1, 2, 0).numpy(), hsv2rgb(hsv), atol=1e-9)


def test_pixelate_and_jpeg_are_pillows(images) -> None:
    blocky, packed = corrupt(images, "pixelate", 5), corrupt(images, "jpeg", 5)
    for image, found, compressed in zip(images, blocky, packed, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        small = picture.resize((20, 20), Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
        np.testing.assert_array_equal(found.permute(1, 2, 0).numpy(), np.array(small))
        file = BytesIO()
        picture.save(file, "JPEG", quality=40)
        np.testing.assert_array_equal(compressed.permute(1, 2, 0).numpy(), np.array(Image.open(file)))


def test_defocus_is_a_correlation_with_a_disk(images) -> None:
    # Radius 1.5 covers 3 × 3 pixels evenly; smoothing by 0.1 pixels leaves it as it is.
    given = images.double() / 255
    found = corrupt(given, "defocus_blur", 5)
    expected = ndimage.uniform_filter(given.numpy(), size=(1, 1, 3, 3), mode="mirror")
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def test_blurs_keep_a_plain_image_plain() -> None:
    plain = torch.full((3, 3, 16, 16), 0.25)
    for name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic", "contrast", "pixelate"):
        assert float((corrupt(plain, name, 5) - plain).abs().max()) < 3e-3, name


def test_motion_blur_is_a_line_of_half_a_gaussian() -> None:
    image = torch.zeros(1, 1, 33, 33, dtype=torch.float64)
    image[0, 0, 16, 16] = 1.0
    blurred = corrupt(image, "motion_blur", 3)[0, 0]
    steps = torch.arange(13, dtype=torch.float64)
    weights = torch.exp(-steps.square() / 8)
    weights /= weights.sum()
    down, right = torch.meshgrid(torch.arange(33) - 16, torch.arange(33) - 16, indexing="ij")
    assert float(blurred.sum()) == pytest.approx(1)
    # To one side only, at most 45° from level, and as long as the half Gaussian.
    seen = blurred > 1e-6
    assert int(right[seen].max()) == 0
    assert bool((down[seen].abs() <= right[seen].abs() + 1).all())
    length = (blurred * (down.square() + right.square()).double().sqrt()).sum()
    assert float(length) == pytest.approx(float((weights * steps).sum()), abs=0.3)


@pytest.mark.parametrize("name", ["zoom_blur", "snow", "frost"])
def test_the_structure_of_an_image_falls_with_severity(images, name) -> None:
    dark = images // 2  # so that nothing is cut off at white
    found = [similarity(dark, corrupt(dark, name, severity)) for severity in SEVERITIES]
    assert found == sorted(found, reverse=True)
    assert found[0] - found[4] > 0.05


def test_two_rounds_of_glass_are_worse_than_one_and_blur_hides_some_of_it(images) -> None:
    """The published severities 1–3 exchange pixels once, 4 and 5 twice; the blur grows within each."""
    found = [similarity(images, corrupt(images, "glass_blur", severity)) for severity in SEVERITIES]
    assert min(found[:3]) > max(found[3:]) + 0.05
    assert found[4] > found[3]


def similarity(images: torch.Tensor, changed: torch.Tensor) -> float:
    """Mean SSIM of scikit-image."""
    pairs = zip(images, changed, strict=True)
    return float(
        np.mean(
            [structural_similarity(a.numpy(), b.numpy(), channel_axis=0, data_range=255) for a, b in pairs]
        )
    )


def test_glass_moves_pixels_up_and_left_and_loses_none(images) -> None:
    # At severity 1 the Gaussian is narrower than a pixel: what is left is a permutation of whole pixels.
    for image, changed in zip(images, corrupt(images, "glass_blur", 1), strict=True):
        before, after = (one.flatten(1).T.tolist() for one in (image, changed))
        assert sorted(before) == sorted(after)
        assert before != after
    spot = torch.zeros(200, 1, 9, 9, dtype=torch.float64)
    spot[:, :, 5, 5] = 1.0
    rows, columns = corrupt(spot, "glass_blur", 1)[:, 0].nonzero()[:, 1:].T
    assert len(rows) == 200
    # A pixel that was taken up by the one before goes down once at most; up it may be handed on.
    assert (int(rows.max()), int(columns.max())) == (6, 6)
    assert int(rows.min()) < 4


def test_zoom_blur_is_the_mean_of_larger_images() -> None:
    # A ramp about the centre, z times larger, is 1 / z as steep.
    ramp = torch.linspace(0.2, 0.8, 31, dtype=torch.float64).expand(1, 1, 31, 31)
    factors = 1 + np.arange(26) / 100
    steepness = (1 + (1 / factors).sum()) / 27
    np.testing.assert_allclose(
        corrupt(ramp, "zoom_blur", 5).numpy(), 0.5 + steepness * (ramp.numpy() - 0.5), atol=1e-9
    )


def test_snow_falls_and_whitens() -> None:
    night, day = torch.zeros(40, 3, 32, 32), torch.ones(40, 3, 32, 32)
    assert bool((corrupt(day, "snow", 5) == 1).all())
    snow = corrupt(night, "snow", 5).double()
    # Black becomes .2 · .5 grey, and white flakes fall on it, alike in all channels and turned by 180°.
    torch.testing.assert_close(snow, snow[:, :1].expand_as(snow))
    torch.testing.assert_close(snow, snow.flip(2, 3))
    assert float(snow.min()) == pytest.approx(0.1, abs=1e-6)
    # Streaks within 45° of straight down: neighbours in a column are more alike than those in a row.
    down, across = ((snow.diff(dim=dim)).square().mean() for dim in (2, 3))
    assert float(down) < 0.8 * float(across)


def test_frost_is_a_darker_image_and_a_share_of_bright_ice() -> None:
    night, day = torch.zeros(40, 3, 32, 32), torch.full((40, 3, 32, 32), 0.4)
    ice = corrupt(night, "frost", 4).double() / 0.4
    torch.testing.assert_close(corrupt(day, "frost", 4).double(), 0.85 * 0.4 + 0.4 * ice, atol=1e-6, rtol=0)
    assert 0.3 < float(ice.mean()) < 0.7
    assert float(ice.flatten(1).std(dim=1).min()) > 0.05
    # Another pattern for every image.
    assert float(torch.corrcoef(ice.flatten(1))[0, 1:].abs().max()) < 0.9


def test_contrast_pulls_towards_the_mean(images) -> None:
    given = images.double() / 255
    mean = given.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(corrupt(given, "contrast", 1), mean + 0.75 * (given - mean))


@pytest.mark.parametrize(
    ("images", "name", "severity", "words"),
    [
        (torch.zeros(1, 3, 32, 32), "rain", 1, "unknown corruption 'rain'"),
        (torch.zeros(1, 3, 32, 32), "fog", 6, "severity 6 of fog"),
        (torch.zeros(1, 3, 4, 4), "fog", 1, "at least 8 × 8 pixels"),
        (torch.zeros(1, 2, 32, 32), "fog", 1, "1 or 3"),
        (torch.zeros(3, 32, 32), "fog", 1, "not (3, 32, 32)"),
    ],
)
def test_wrong_input_gets_a_sentence(images, name, severity, words) -> None:
    with pytest.raises(UserError) as problem:
        corrupt(images, name, severity)
    assert words in str(problem.value)


def test_no_images_give_none() -> None:
    assert corrupt(torch.zeros(0, 1, 8, 8, dtype=torch.uint8), "fog", 1).shape == (0, 1, 8, 8)
