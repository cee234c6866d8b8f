"""The strength of a degradation that gives a set of images a target mean SSIM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from genbench.engine.compute import compute_device
from genbench.errors import ContractError, UserError
from genbench.plugin.offers import Dial
from genbench.testbed.ssim import WINDOW, ssim

__all__ = ["BAR", "Calibrated", "ImageSource", "calibrate", "degrade"]

BAR = 0.01
"""Largest distance of the achieved mean SSIM from its level."""
_AIM = 0.001
"""Distance at which the search stops."""
_ROUNDS = 6
"""Passes over all images, at most; two are the rule."""
_VALUES = 2**22
"""Pixel values degraded at a time, which bounds the memory."""
_SAMPLE = 256
"""Images that the strengths are sought on; fewer large ones, as many as are degraded at a time."""
_HALVINGS = 20
_SAMPLE_AIM = 5e-4


class ImageSource(Protocol):
    """Images by their row numbers; every `genbench.data.images.ImageSplit` is one."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor:
        """Images as (len(indices), channels, height, width) uint8."""
        ...


@dataclass(frozen=True)
class Calibrated:
    """How to reach one SSIM level."""

    dial: Dial
    strength: float
    """0 leaves the images untouched."""
    achieved_mean_ssim: float
    """Over all images, after rounding to 8 bits."""


def degrade(dial: Dial, strength: float, images: Tensor, rows: Tensor) -> Tensor:
    """Degraded images, rounded to 8 bits, where the images lie; in between, the dial turns them elsewhere.

    Parameters
    ----------
    dial, strength : as `calibrate` gives them; strength 0 returns the images bit for bit.
    images : (n, channels, height, width) uint8; moved to the step's device a few at a time.
    rows : (n,) int64, the numbers of these images in their set; how they are batched does not matter.
    """
    if strength == 0:
        return images
    rows = torch.as_tensor(rows, dtype=torch.int64, device="cpu")
    size = _chunk(images)
    parts = [
        _turned(dial, strength, part, part_rows)
        for part, part_rows in zip(images.split(size), rows.split(size), strict=True)
    ]
    return torch.cat(parts) if parts else images


def _turned(dial: Dial, strength: float, images: Tensor, rows: Tensor) -> Tensor:
    degraded = dial.turn(_values(images), strength, rows)
    if not isinstance(degraded, Tensor) or degraded.shape != images.shape:
        found = tuple(degraded.shape) if isinstance(degraded, Tensor) else type(degraded).__name__
        raise ContractError(f"dial {dial.name!r} turned images {tuple(images.shape)} into {found}")
    lowest, highest = degraded.aminmax()
    # Written so that NaN fails too.
    if not (lowest >= -1e-3 and highest <= 1 + 1e-3):
        raise ContractError(
            f"dial {dial.name!r} gave values from {lowest:.3g} to {highest:.3g} at strength {strength:.4g}; "
            "they must stay within 0 and 1"
        )
    return (degraded.detach() * 255).round_().clamp_(0, 255).to(torch.uint8).to(images.device)


def _values(images: Tensor) -> Tensor:
    """Pixels in [0, 1], on the step's device."""
    return images.to(compute_device()).float() / 255


def calibrate(
    dials: Sequence[Dial], heldout: ImageSource, levels: Iterable[float], *, method: str = ""
) -> dict[float, Calibrated]:
    """For each level the dial and the strength whose mean SSIM over all of `heldout` is that level.

    The strength is sought by bisection on a sample of the images, then passes over all of them correct it
    for what the sample differs. Bisection, because its strengths are dyadic fractions: they are the same to
    the bit as long as each comparison comes out the same.

    Parameters
    ----------
    dials : weakest first; a level is met with the first whose full strength reaches it.
    heldout : the images to degrade; only pixels are looked at.
    levels : mean SSIMs in (0, 1]; 1 means untouched.
    method : name of the degradation, for the error message.

    Raises
    ------
    UserError : if a level cannot be met within `BAR`.
    """
    levels = list(dict.fromkeys(levels))
    _check(dials, heldout, levels)
    found = {level: Calibrated(dials[0], 0.0, 1.0) for level in levels if level == 1}
    searches = _searches(dials, heldout, [level for level in levels if level != 1])
    for _ in range(_ROUNDS):
        pending = [search for search in searches if search.propose()]
        if not pending:
            break
        means = _mean_ssims(heldout, [(search.curve.dial, search.strength) for search in pending])
        for search, mean in zip(pending, means, strict=True):
            search.learn(mean)
    for search in searches:
        if search.best is None or abs(search.best.achieved_mean_ssim - search.level) > BAR:
            raise UserError(_unreachable(method or dials[-1].name, search.level, dials[-1], heldout))
        found[search.level] = search.best
    return {level: found[level] for level in levels}


@dataclass
class _Curve:
    """Mean SSIM of a sample under one dial, as a function of strength."""

    dial: Dial
    images: Tensor
    rows: Tensor
    known: dict[float, float] = field(default_factory=dict)
    """Kept, since the searches for several levels begin alike."""

    def __call__(self, strength: float) -> float:
        if strength not in self.known:
            degraded = degrade(self.dial, strength, self.images, self.rows)
            self.known[strength] = _summed_ssim(self.images, degraded) / len(self.images)
        return self.known[strength]

    def strength_for(self, target: float) -> float:
        """Strength in (0, 1] at which the sample's mean SSIM is `target`, or as close as it gets."""
        if self(1.0) >= target:
            return 1.0
        weak, strong = 0.0, 1.0
        middle = 0.5
        for _ in range(_HALVINGS):
            middle = (weak + strong) / 2
            excess = self(middle) - target
            if abs(excess) <= _SAMPLE_AIM:
                break
            weak, strong = (middle, strong) if excess > 0 else (weak, middle)
        return middle


@dataclass
class _Search:
    """The search for one level with one dial."""

    level: float
    curve: _Curve
    strength: float = 0.0
    shift: float = 0.0
    """By how much the mean over all images exceeds the sample's."""
    best: Calibrated | None = None

    def propose(self) -> bool:
        """Choose the next strength to try on all images; False if there is nothing better to try."""
        if self.best is not None and abs(self.best.achieved_mean_ssim - self.level) <= _AIM:
            return False
        before = self.strength
        self.strength = self.curve.strength_for(self.level - self.shift)
        return self.strength != before

    def learn(self, mean: float) -> None:
        """Take in the mean SSIM of all images at the proposed strength."""
        self.shift = mean - self.curve(self.strength)
        if self.best is None or abs(mean - self.level) < abs(self.best.achieved_mean_ssim - self.level):
            self.best = Calibrated(self.curve.dial, self.strength, mean)


def _searches(dials: Sequence[Dial], heldout: ImageSource, levels: Sequence[float]) -> list[_Search]:
    if not levels:
        return []
    count = len(heldout)
    size = min(_SAMPLE, max(16, _chunk(_first(heldout))))
    order = torch.randperm(count, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    rows = order[:size].sort().values
    images = heldout.batch(rows)
    curves = [_Curve(dial, images, rows) for dial in dials]
    # With room to spare: the sample decides, and all images may come out a little higher.
    return [
        _Search(level, next((c for c in curves[:-1] if c(1.0) <= level - BAR), curves[-1]))
        for level in levels
    ]


def _mean_ssims(heldout: ImageSource, settings: Sequence[tuple[Dial, float]]) -> list[float]:
    """Mean SSIM over all images under each setting: the images are read once, in batches."""
    totals = [0.0] * len(settings)
    size = _chunk(_first(heldout))
    for rows in torch.arange(len(heldout), device="cpu").split(size):
        images = heldout.batch(rows)
        for i, (dial, strength) in enumerate(settings):
            totals[i] += _summed_ssim(images, degrade(dial, strength, images, rows))
    return [total / len(heldout) for total in totals]


def _summed_ssim(first: Tensor, second: Tensor) -> float:
    size = _chunk(first)
    pairs = zip(first.split(size), second.split(size), strict=True)
    return sum(ssim(_values(a), _values(b)).cpu().double().sum().item() for a, b in pairs)


def _first(source: ImageSource) -> Tensor:
    return source.batch(torch.zeros(1, dtype=torch.int64, device="cpu"))


def _chunk(images: Tensor) -> int:
    return max(1, _VALUES // max(1, images.shape[1:].numel()))


def _unreachable(method: str, level: float, strongest: Dial, heldout: ImageSource) -> str:
    (lowest,) = _mean_ssims(heldout, [(strongest, 1.0)])
    if lowest <= level:
        return (
            f"degradation {method!r} cannot be set to a mean SSIM of {level:g} ± {BAR:g} on these images: "
            "its SSIM jumps over that level as its strength rises; use another degradation or level"
        )
    return (
        f"degradation {method!r} cannot reach a mean SSIM of {level:g} on these images: "
        f"its full strength gives {lowest:.3f}; use levels of at least that, or another degradation"
    )


def _check(dials: Sequence[Dial], heldout: ImageSource, levels: Sequence[float]) -> None:
    if not dials:
        raise ContractError("a degradation's fit must return at least one dial")
    wrong = [level for level in levels if not 0 < level <= 1]
    if wrong:
        raise UserError(f"an SSIM level is above 0 and at most 1, not {wrong[0]:g}")
    if not len(heldout):
        raise UserError("there are no held-out images to degrade")
    height, width = _first(heldout).shape[-2:]
    if min(height, width) < WINDOW and any(level != 1 for level in levels):
        raise UserError(
            f"SSIM needs images of at least {WINDOW} × {WINDOW} pixels, not {height} × {width}; "
            "use the level 1 alone, or a data set with larger images"
        )
