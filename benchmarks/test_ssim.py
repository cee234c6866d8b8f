"""SSIM of a batch against scikit-image, image by image, in the same run.

Time is the processor time of this process with one thread on either side, the best of several turns in
alternating order. Both are given float32, the precision scikit-image is faster in.

The bar of ten is for 32 pixels, the size of the embedded suite and of CIFAR. With larger images
scikit-image's fixed cost per call fades and the ratio falls; the other cases hold what is left of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from skimage.metrics import structural_similarity
from threadpoolctl import threadpool_limits

from genbench.testbed.ssim import ssim

ROUNDS = 8


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize(
    ("side", "images", "bar"), [(32, 1024, 10.0), (64, 256, 6.0), (224, 16, 2.0)], ids=["32", "64", "224"]
)
def test_a_batch_is_much_faster_than_one_image_after_the_other(
    side: int, images: int, bar: float, benchmark: BenchmarkFixture
) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(images, 3, side, side, generator=generator)
    degraded = (clean + 0.1 * torch.randn(clean.shape, generator=generator)).clamp(0, 1)
    few = max(1, images // 16)
    pairs = list(zip(clean[:few].numpy(), degraded[:few].numpy(), strict=True))

    def batched() -> torch.Tensor:
        return ssim(clean, degraded)

    def one_by_one() -> list[float]:
        return [
            structural_similarity(
                a,
                b,
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
                data_range=1,
                channel_axis=0,
            )
            for a, b in pairs
        ]

    with threadpool_limits(1):
        expected = torch.tensor(one_by_one())  # warms up, too
        assert torch.allclose(batched()[:few].double(), expected.double(), atol=1e-4)
        best_batched = best_one = float("inf")
        for _ in range(ROUNDS):
            best_batched = min(best_batched, seconds(batched) / images)
            best_one = min(best_one, seconds(one_by_one) / few)
        benchmark.pedantic(batched, rounds=1)
    ratio = best_one / best_batched
    benchmark.extra_info.update(microseconds_per_image=1e6 * best_batched, ratio_to_scikit_image=ratio)
    print(
        f"{side} pixels: {1e6 * best_batched:.1f} µs an image, {ratio:.1f} times as fast as scikit-image's "
        f"{1e6 * best_one:.1f} µs"
    )
    assert ratio >= bar
