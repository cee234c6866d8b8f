"""Images that the networks of a population are trained and judged on, and the choice each network makes.

A pool holds the images of one split of every data set of a suite, by domain, in files of their own: a process
that runs measures opens those of the training split and of the domains a network was trained on, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.data.corruptions import SEVERITIES, corrupt
from genbench.data.images import ImageData, ImageSplit
from genbench.engine.precise import precise_device
from genbench.engine.steps import read_result
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry
from genbench.population.domain_folder import load_domains
from genbench.population.step_types import (
    Choice,
    HeldoutInputs,
    PooledData,
    PoolInputs,
    PoolResult,
    ShiftInputs,
    ShiftResult,
)
from genbench.subject.inputs import Inputs

__all__ = [
    "Choice",
    "TrainingSet",
    "heldout_images",
    "heldout_pool",
    "shifted_images",
    "shifts",
    "standardised",
    "training_pool",
    "training_set",
]


@dataclass(frozen=True)
class TrainingSet:
    """What a network is trained on, on the CPU."""

    raw: Tensor
    """Bytes; networks take them standardised."""
    labels: Tensor
    classes: int
    mean: float
    """Of all pixels, of 0 to 1."""
    std: float

    def inputs(self, device: torch.device) -> Inputs:
        """The images as networks on `device` take them, standardised there as they are asked for."""
        return Inputs(self.raw.to(device), partial(standardised, mean=self.mean, std=self.std))


def standardised(images: Tensor, mean: float, std: float) -> Tensor:
    """Bytes -> what the networks of a population take."""
    return (images.float() / 255 - mean) / std


def training_pool(inputs: PoolInputs, parents: Mapping[str, Path], out: Path) -> PoolResult:
    """Store the training images of every data set, of its first `classes` classes if that is given."""
    return PoolResult(datasets=[_store(name, "train", inputs, None, out) for name in inputs.datasets])


def heldout_pool(inputs: HeldoutInputs, parents: Mapping[str, Path], out: Path) -> PoolResult:
    """Store the held-out images of every data set, at most `heldout_size` of each."""
    most = inputs.heldout_size
    return PoolResult(datasets=[_store(name, "heldout", inputs, most, out) for name in inputs.datasets])


def _store(name: str, split: str, inputs: PoolInputs, most: int | None, out: Path) -> PooledData:
    data = _load(name, inputs.domains, inputs.seed)
    classes = min(inputs.classes or len(data.class_names), len(data.class_names))
    parts = _parts(name, data, split, classes, inputs)
    ((images, rows), *more) = parts
    if most is not None and most < len(rows):
        rows = rows[_shuffled(len(rows), derive_seed("heldout", inputs.seed))[:most]].sort().values
    domains = getattr(images, "domains", None) if inputs.domains else None
    if inputs.domains and domains is None:
        raise UserError(
            f"{name} has no domains to leave out; use glyphs, or folder:DIR with DIR/<domain>/<class>/*"
        )
    names = data.domain_names if domains is not None else ("",)
    size = 0
    for place, _ in enumerate(names):
        chosen = [(images, rows), *more]
        if domains is not None:
            chosen = [(source, _of_domain(source, part, place)) for source, part in chosen]
        tensors = {
            "images": torch.cat([_batched(source, part) for source, part in chosen]),
            "labels": torch.cat([source.labels[part] for source, part in chosen]),
        }
        # Where two splits are in the pool, the numbers of the second go on where those of the first end.
        starts = accumulate((len(source) for source, _ in chosen), initial=0)
        numbers = [part + start for (_, part), start in zip(chosen, starts, strict=False)]
        tensors["rows"] = torch.cat(numbers)
        size += len(tensors["rows"])
        save_file(tensors, out / f"{_file_name(name)}.{place}.safetensors")
    return PooledData(name=name, classes=classes, domains=list(names), size=size)


def _parts(
    name: str, data: ImageData, split: str, classes: int, inputs: PoolInputs
) -> list[tuple[ImageSplit, Tensor]]:
    """Splits and the rows of each that belong to a pool.

    With `training_pool` the training split is cut at random: that many images are for training, and the
    others, which no network sees, are held out like those of the data set's own held-out split.
    """
    own: ImageSplit = getattr(data, split)
    rows = (own.labels < classes).nonzero()[:, 0]
    most = inputs.training_pool
    if most is None:
        return [(own, rows)]
    train = rows if split == "train" else (data.train.labels < classes).nonzero()[:, 0]
    if most > len(train):
        raise UserError(f"training_pool = {most}, but {name} has {len(train)} training images")
    order = _shuffled(len(train), derive_seed("training pool", inputs.seed))
    if split == "train":
        return [(own, train[order[:most]].sort().values)]
    return [(own, rows), (data.train, train[order[most:]].sort().values)]


def _of_domain(split: ImageSplit, rows: Tensor, place: int) -> Tensor:
    domains: Tensor = getattr(split, "domains")  # noqa: B009, of both splits or of none
    return rows[domains[rows] == place]


def _load(name: str, domains: bool, seed: int) -> ImageData:
    if domains and name.startswith("folder:"):
        return load_domains(Path(name.removeprefix("folder:")).expanduser(), seed)
    entry, argument = load_registry().resolve("datasets", name)
    data: ImageData = entry.item.load(DataRequest(argument=argument))
    return data


def _batched(split: ImageSplit, rows: Tensor) -> Tensor:
    return torch.cat([split.batch(part) for part in rows.split(1024)]).contiguous()


def _file_name(dataset: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in dataset)


def training_set(pool: Path, choice: Choice) -> TrainingSet:
    """The images a network is trained on; a function of the pool and `choice` alone.

    Smaller sets are part of larger ones. Labels that are drawn anew may come out as they were.
    """
    images, labels, classes = _of_domains(pool, choice.dataset, choice.heldout_domain, inside=False)
    if choice.train_size > len(labels):
        raise UserError(
            f"train_size = {choice.train_size}, but {choice.dataset} has {len(labels)} training images"
        )
    rows = _shuffled(len(labels), choice.seed)[: choice.train_size]
    raw, labels = images[rows], labels[rows]
    noise = torch.Generator("cpu").manual_seed(derive_seed("label noise", choice.seed))
    order = torch.randperm(len(labels), generator=noise, device="cpu")
    wrong = order[: round(choice.label_noise * len(labels))]
    drawn = torch.randint(0, classes, (len(labels),), generator=noise, device="cpu")
    labels[wrong] = drawn[: len(wrong)]
    scaled = raw.float() / 255
    return TrainingSet(raw, labels, classes, float(scaled.mean()), float(scaled.std()))


def heldout_images(pool: Path, choice: Choice, *, inside: bool) -> tuple[Tensor, Tensor]:
    """Held-out images, uint8, and labels: of the domain that was left out, or of the others."""
    images, labels, _ = _of_domains(pool, choice.dataset, choice.heldout_domain, inside=inside)
    return images, labels


def _of_domains(pool: Path, dataset: str, domain: str, *, inside: bool) -> tuple[Tensor, Tensor, int]:
    """Images and labels of `domain` alone (`inside`) or of all others, in the order of the data set."""
    card = next(c for c in read_result(pool, PoolResult).datasets if c.name == dataset)
    names = card.domains
    if domain and domain not in names:
        raise UserError(f"{dataset} has no domain {domain!r}; it has {', '.join(names)}")
    places = [place for place, name in enumerate(names) if (bool(domain) and name == domain) == inside]
    parts = [load_file(pool / f"{_file_name(dataset)}.{place}.safetensors") for place in places]
    order = torch.cat([part["rows"] for part in parts]).argsort()
    images, labels = (torch.cat([part[name] for part in parts])[order] for name in ("images", "labels"))
    return images, labels, card.classes


def shifts(inputs: ShiftInputs, parents: Mapping[str, Path], out: Path) -> ShiftResult:
    """Store corrupted copies of held-out images: per data set, corruption and severity."""
    sizes = {}
    for card in read_result(parents["heldout"], PoolResult).datasets:
        choice = Choice(card.name, 0, 0.0, "", 0)
        images, labels = heldout_images(parents["heldout"], choice, inside=False)
        seed = derive_seed("shifts", inputs.seed)
        rows = _shuffled(len(labels), seed)[: inputs.shifted_images or len(labels)].sort().values
        tensors = {"labels": labels[rows]}
        chosen = images[rows].to(precise_device())
        for name in inputs.corruptions:
            for severity in inputs.severities or SEVERITIES:
                tensors[f"{name}.{severity}"] = corrupt(chosen, name, severity, seed).cpu().contiguous()
        save_file(tensors, out / f"{_file_name(card.name)}.safetensors")
        sizes[card.name] = len(rows)
    return ShiftResult(sizes=sizes)


def shifted_images(folder: Path, dataset: str) -> tuple[dict[str, Tensor], Tensor]:
    """Corrupted images by "corruption.severity", and their labels."""
    tensors = load_file(folder / f"{_file_name(dataset)}.safetensors")
    labels = tensors.pop("labels")
    return tensors, labels


def _shuffled(count: int, seed: int) -> Tensor:
    """The numbers below `count` in an order of their own; drawn on the CPU, as every draw."""
    return torch.randperm(count, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
