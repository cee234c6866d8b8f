"""Images that the networks of a population are trained and judged on, and the choice each network makes.

A pool holds the images of one split of every data set of a suite, by domain, in files of their own: a process
that runs measures opens those of the training split and of the domains a network was trained on, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.data.corruptions import SEVERITIES, corrupt
from genbench.data.images import ImageData, ImageSplit
from genbench.engine.store import read_manifest
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry
from genbench.population.domain_folder import load_domains

__all__ = [
    "Choice",
    "TrainingSet",
    "heldout_images",
    "heldout_pool",
    "shifted_images",
    "shifts",
    "training_pool",
    "training_set",
]


@dataclass(frozen=True)
class Choice:
    """Which images a network is trained on."""

    dataset: str
    train_size: int
    label_noise: float
    """Share of the labels that are drawn anew, uniformly from all classes (000)."""
    heldout_domain: str
    """A domain left out of training; empty for none."""
    seed: int


@dataclass(frozen=True)
class TrainingSet:
    """Images as the networks take them."""

    images: Tensor
    labels: Tensor
    classes: int
    mean: float
    std: float


def training_pool(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Store the training images of every data set, of its first `classes` classes if that is given."""
    return {"datasets": [_store(name, "train", inputs, out) for name in inputs["datasets"]]}


def heldout_pool(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Store the held-out images of every data set, at most `heldout_size` of each."""
    return {"datasets": [_store(name, "heldout", inputs, out) for name in inputs["datasets"]]}


def _store(name: str, split: str, inputs: Mapping[str, Any], out: Path) -> dict[str, Any]:
    data = _load(name, bool(inputs["domains"]), int(inputs["seed"]))
    classes = min(inputs.get("classes") or len(data.class_names), len(data.class_names))
    parts = _parts(name, data, split, classes, inputs)
    most = inputs.get("heldout_size")
    ((images, rows), *more) = parts
    if most is not None and most < len(rows):
        generator = torch.Generator().manual_seed(derive_seed("heldout", int(inputs["seed"])))
        rows = rows[torch.randperm(len(rows), generator=generator)[:most]].sort().values
    domains = getattr(images, "domains", None) if inputs["domains"] else None
    if inputs["domains"] and domains is None:
        raise UserError(
            f"{name} has no domains to leave out; use glyphs, or folder:DIR with DIR/<domain>/<class>/*"
        )
    names = data.domain_names if domains is not None else ("",)
    size = 0
    for place, _ in enumerate(names):
        chosen = [(images, rows if domains is None else rows[domains[rows] == place]), *more]
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
    return {"name": name, "classes": classes, "domains": list(names), "size": size}


def _parts(
    name: str, data: ImageData, split: str, classes: int, inputs: Mapping[str, Any]
) -> list[tuple[ImageSplit, Tensor]]:
    """Splits and the rows of each that belong to a pool.

    With `training_pool` the training split is cut at random: that many images are for training, and the
    others, which no network sees, are held out like those of the data set's own held-out split.
    """
    own: ImageSplit = getattr(data, split)
    rows = (own.labels < classes).nonzero()[:, 0]
    most = inputs.get("training_pool")
    if most is None:
        return [(own, rows)]
    train = rows if split == "train" else (data.train.labels < classes).nonzero()[:, 0]
    if most > len(train):
        raise UserError(f"training_pool = {most}, but {name} has {len(train)} training images")
    generator = torch.Generator().manual_seed(derive_seed("training pool", int(inputs["seed"])))
    order = torch.randperm(len(train), generator=generator)
    if split == "train":
        return [(own, train[order[:most]].sort().values)]
    return [(own, rows), (data.train, train[order[most:]].sort().values)]


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
    """The images a network is trained on, standardised; a function of the pool and `choice` alone.

    Smaller sets are part of larger ones. Labels that are drawn anew may come out as they were.
    """
    images, labels, classes = _of_domains(pool, choice.dataset, choice.heldout_domain, inside=False)
    if choice.train_size > len(labels):
        raise UserError(
            f"train_size = {choice.train_size}, but {choice.dataset} has {len(labels)} training images"
        )
    generator = torch.Generator().manual_seed(choice.seed)
    rows = torch.randperm(len(labels), generator=generator)[: choice.train_size]
    raw, labels = images[rows].float() / 255, labels[rows]
    noise = torch.Generator().manual_seed(derive_seed("label noise", choice.seed))
    wrong = torch.randperm(len(labels), generator=noise)[: round(choice.label_noise * len(labels))]
    labels[wrong] = torch.randint(0, classes, (len(labels),), generator=noise)[: len(wrong)]
    mean, std = float(raw.mean()), float(raw.std())
    return TrainingSet((raw - mean) / std, labels, classes, mean, std)


def heldout_images(pool: Path, choice: Choice, *, inside: bool) -> tuple[Tensor, Tensor]:
    """Held-out images, uint8, and labels: of the domain that was left out, or of the others."""
    images, labels, _ = _of_domains(pool, choice.dataset, choice.heldout_domain, inside=inside)
    return images, labels


def _of_domains(pool: Path, dataset: str, domain: str, *, inside: bool) -> tuple[Tensor, Tensor, int]:
    """Images and labels of `domain` alone (`inside`) or of all others, in the order of the data set."""
    card = next(c for c in read_manifest(pool)["result"]["datasets"] if c["name"] == dataset)
    names: Sequence[str] = card["domains"]
    if domain and domain not in names:
        raise UserError(f"{dataset} has no domain {domain!r}; it has {', '.join(names)}")
    places = [place for place, name in enumerate(names) if (bool(domain) and name == domain) == inside]
    parts = [load_file(pool / f"{_file_name(dataset)}.{place}.safetensors") for place in places]
    order = torch.cat([part["rows"] for part in parts]).argsort()
    images, labels = (torch.cat([part[name] for part in parts])[order] for name in ("images", "labels"))
    return images, labels, int(card["classes"])


def shifts(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Store corrupted copies of held-out images: per data set, corruption and severity."""
    sizes = {}
    for card in read_manifest(parents["heldout"])["result"]["datasets"]:
        choice = Choice(card["name"], 0, 0.0, "", 0)
        images, labels = heldout_images(parents["heldout"], choice, inside=False)
        seed = derive_seed("shifts", int(inputs["seed"]))
        most = inputs.get("shifted_images") or len(labels)
        rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:most].sort().values
        tensors = {"labels": labels[rows]}
        for name in inputs["corruptions"]:
            for severity in inputs.get("severities") or SEVERITIES:
                tensors[f"{name}.{severity}"] = corrupt(images[rows], name, severity, seed).contiguous()
        save_file(tensors, out / f"{_file_name(card['name'])}.safetensors")
        sizes[card["name"]] = len(rows)
    return {"sizes": sizes}


def shifted_images(folder: Path, dataset: str) -> tuple[dict[str, Tensor], Tensor]:
    """Corrupted images by "corruption.severity", and their labels."""
    tensors = load_file(folder / f"{_file_name(dataset)}.safetensors")
    labels = tensors.pop("labels")
    return tensors, labels
