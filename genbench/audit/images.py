"""Images of the audit: tasks of known difficulty at 8 × 8 pixels, with noisy labels or permuted pixels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.audit.step_types import AuditImages, ImagePoolInputs, ImagePoolResult
from genbench.keys import derive_seed
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry
from genbench.population.pools import TrainingSet

__all__ = ["CLASSES", "heldout_set", "pixel_order", "store_images", "training_set", "validation_set"]

CLASSES = 10
"""Outputs of every network, whatever its task: they have one architecture."""
_SIDE = 8
_TRAINING = {"digits": 1300, "glyphs": 660}
"""Images that networks may be trained and validated on; the others, 497 and 300, are held out."""
_PIXEL_NOISE = 0.4
"""Standard deviation of the noise on `noisy digits`, of pixels from 0 to 1."""
_SOURCE = {"digits": "digits", "digits 0/1": "digits", "noisy digits": "digits", "glyphs": "glyphs"}


def store_images(inputs: ImagePoolInputs, parents: Mapping[str, Path], out: Path) -> ImagePoolResult:
    """Store the training images of all tasks, or the held-out ones."""
    sizes = {}
    for name in dict.fromkeys(_SOURCE.values()):
        images, labels = _all_images(name)
        order = _shuffled(len(labels), derive_seed("audit split", name))
        rows = order[_TRAINING[name] :] if inputs.heldout else order[: _TRAINING[name]]
        save_file({"images": images[rows], "labels": labels[rows]}, out / f"{name}.safetensors")
        sizes[name] = len(rows)
    return ImagePoolResult(sizes=sizes)


def _all_images(name: str) -> tuple[Tensor, Tensor]:
    """Both splits of a data set, its first ten classes, as bytes of 8 × 8 pixels."""
    data = load_registry().get("datasets", name).item.load(DataRequest())
    images, labels = [], []
    for split in (data.train, data.heldout):
        rows = (split.labels < CLASSES).nonzero()[:, 0]
        raw = split.batch(rows)
        factor = raw.shape[-1] // _SIDE
        small = torch.nn.functional.avg_pool2d(raw.float().mean(dim=1, keepdim=True), factor)
        images.append(small.round().to(torch.uint8))
        labels.append(split.labels[rows])
    return torch.cat(images), torch.cat(labels)


def training_set(pool: Path, choice: AuditImages) -> TrainingSet:
    """What a network is trained on; smaller sets are part of larger ones."""
    images, labels = _task(pool, choice, "train")
    raw, labels = images[: choice.train_size], labels[: choice.train_size].clone()
    noise = torch.Generator("cpu").manual_seed(derive_seed("audit labels"))
    order = torch.randperm(len(labels), generator=noise, device="cpu")
    wrong = order[: round(choice.label_noise * len(labels))]
    drawn = torch.randint(0, CLASSES, (len(labels),), generator=noise, device="cpu")
    # By image, so that a larger share draws the same labels and more.
    labels[wrong] = drawn[wrong]
    scaled = raw.float() / 255
    return TrainingSet(raw, labels, CLASSES, float(scaled.mean()), float(scaled.std()))


def validation_set(pool: Path, choice: AuditImages) -> tuple[Tensor, Tensor]:
    """Bytes and labels of the images after those of training."""
    images, labels = _task(pool, choice, "train")
    rows = slice(choice.train_size, choice.train_size + choice.validation)
    return images[rows], labels[rows]


def heldout_set(pool: Path, choice: AuditImages) -> tuple[Tensor, Tensor]:
    """Bytes and labels of held-out images of the task, with true labels."""
    return _task(pool, choice, "heldout")


def pixel_order() -> Tensor:
    """The one order of pixels of `shared`."""
    return _shuffled(_SIDE**2, derive_seed("audit pixels"))


def _task(pool: Path, choice: AuditImages, part: str) -> tuple[Tensor, Tensor]:
    stored = load_file(pool / f"{_SOURCE[choice.task]}.safetensors")
    images, labels = stored["images"].clone(), stored["labels"].clone()
    if choice.task == "digits 0/1":
        images, labels = images[labels < 2], labels[labels < 2]
    generator = torch.Generator("cpu").manual_seed(derive_seed("audit images", choice.task, part))
    if choice.task == "noisy digits":
        noise = torch.randn(images.shape, generator=generator, device="cpu") * (255 * _PIXEL_NOISE)
        images = (images.float() + noise).round().clamp(0, 255).to(torch.uint8)
    if choice.permutation:
        flat = images.flatten(1)
        if choice.permutation == "shared":
            flat = flat[:, pixel_order()]
        else:
            own = torch.rand(flat.shape, generator=generator, device="cpu").argsort(dim=1)
            flat = flat.gather(1, own)
        images = flat.view_as(images)
    return images, labels


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
