"""Spectral norms of all convolutions of ResNet-18 at 32 pixels, against decomposing every frequency.

The baseline is complete and as fast as decomposing gets: it takes one of each pair of conjugate frequencies,
`torch.linalg.svdvals` in batches, and single precision. Time is the processor time of this process at one
thread, and the bar is a ratio within one run.
"""

from __future__ import annotations

import time

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor, nn

from genbench.subject.spectral import spectral_norm

GRID = 32
RATIO = 10.0
PRECISION = 1e-5


def convolutions() -> list[nn.Conv2d]:
    """All 20 convolutions of He et al.'s ResNet-18, with torch's random weights."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 7, stride=2, bias=False)]
    width = 64
    for channels in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if channels != width else 1
            layers.append(nn.Conv2d(width, channels, 3, stride=stride, bias=False))
            layers.append(nn.Conv2d(channels, channels, 3, bias=False))
            if block == 0 and channels != width:
                layers.append(nn.Conv2d(width, channels, 1, stride=stride, bias=False))
            width = channels
    return layers


def every_frequency(weight: Tensor) -> float:
    """The largest singular value over all frequencies, each of which is decomposed."""
    if weight[0, 0].numel() == 1:  # the same matrix at every frequency
        return float(torch.linalg.svdvals(weight.flatten(1))[0])
    spectrum = torch.fft.rfft2(weight, s=(GRID, GRID)).flatten(2).permute(2, 0, 1)
    return max(float(torch.linalg.svdvals(part)[:, 0].max()) for part in spectrum.split(32))


def test_spectral_norms_are_ten_times_as_fast_as_decomposing_every_frequency(
    benchmark: BenchmarkFixture,
) -> None:
    torch.set_num_threads(1)
    layers = convolutions()
    assert len(layers) == 20
    start = time.process_time()
    expected = [every_frequency(layer.weight.detach()) for layer in layers]
    baseline = time.process_time() - start

    def found() -> list[float]:
        return [spectral_norm(layer, layer.weight, GRID) for layer in layers]

    start = time.process_time()
    norms = benchmark.pedantic(found, rounds=1)
    seconds = time.process_time() - start
    benchmark.extra_info.update(seconds=seconds, ratio=baseline / seconds)
    print(
        f"\nspectral norms of ResNet-18: {seconds:.1f} s of processor time, "
        f"every frequency {baseline:.1f} s, ratio {baseline / seconds:.1f}"
    )
    assert norms == pytest.approx(expected, rel=PRECISION)
    assert baseline >= RATIO * seconds
