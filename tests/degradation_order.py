"""Does the harm of a degradation grow as SSIM falls? A few networks, nine levels, any images.

    python tests/degradation_order.py glyphs --networks mini-clip:short4 mini-clip:short8 mini-efficientnet:b0
    python tests/degradation_order.py folder:DIR --side 224 --networks lite:0 lite:1 lite:2
        [--degradations autoencoder jpeg] [--classes 20] [--train 30] [--heldout 10] [--heads 10 --shots 5]
        [--bfloat16] [--network-side 128] [--folds 3] [--json FILE] [--picture FILE.png --rows 3]

A head is fitted to each network's features of clean training images; its error is taken on held-out images,
clean and degraded to every level of paper 004. The table says the mean error per level, the SSIM that was
reached, Spearman's rank correlation of error and level (-1 if every step down makes it worse), and by how
many standard errors the error grows from each level to the one below it, of the same images. Where there are
few images, --folds K learns from every K-th part of them in turn, and judges all others each time.
A small version is in tests/test_degradations.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from torch import Tensor

from genbench.data.images import TensorImages
from genbench.keys import derive_seed
from genbench.packs.pack import copy_files
from genbench.plugin.offers import BackboneRequest, DegradationTask
from genbench.plugin.registry import load_registry
from genbench.suites import load_suite
from genbench.suites.evidence_packs import find_pack
from genbench.testbed.adaptation import AdaptedNetwork, read_state
from genbench.testbed.degradations.calibrate import calibrate, degrade
from genbench.testbed.heads import Head, fit_heads
from genbench.testbed.images import chosen_images, chosen_rows, load_data
from genbench.testbed.manifest import TestbedManifest
from genbench.zoo.features import Preprocess, extract_features
from genbench.zoo.loaded import LoadedBackbone

LEVELS = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.0)
_PIXELS = 2**18
"""Of images that pass through a network at a time."""


@dataclass(frozen=True)
class Material:
    """Images to learn from and images to degrade."""

    training: TensorImages
    heldout: TensorImages

    @classmethod
    def of(
        cls, dataset: str, classes: int, train: int | None, heldout: int | None, side: int | None
    ) -> Material:
        """Some images per class of a data set, its first classes."""
        data = load_data(dataset, classes, 0, seed=0)
        splits = []
        for split, count in ((data.train, train), (data.heldout, heldout)):
            rows = chosen_rows(split, range(classes), count, seed=0)
            images = torch.cat([part for part, _ in chosen_images(split, rows, side)])
            splits.append(TensorImages(images, split.labels[rows]))
        return cls(*splits)

    @classmethod
    def folds(cls, dataset: str, classes: int, folds: int, side: int | None) -> list[Material]:
        """All images of a data set, to learn from one part of each class and degrade the others, in turn."""
        whole = cls.of(dataset, classes, None, None, side)
        images = torch.cat([whole.training.images, whole.heldout.images])
        labels = torch.cat([whole.training.labels, whole.heldout.labels])
        part = torch.zeros_like(labels)
        for label in range(classes):
            rows = (labels == label).nonzero()[:, 0]
            part[rows] = torch.arange(len(rows)) * folds // len(rows)
        return [
            cls(*(TensorImages(images[rows], labels[rows]) for rows in (part == fold, part != fold)))
            for fold in range(folds)
        ]

    @property
    def task(self) -> DegradationTask:
        """What a degradation is fitted to."""
        return DegradationTask(self.training.images, self.training.labels, derive_seed("noise", 0))


class Probe:
    """A network with a head for the classes of some images.

    Networks of `mini` are those of its evidence, which were adapted to the first 50 classes of glyphs.

    Parameters
    ----------
    heads, shots : how many heads are fitted, each to so many images of a class, drawn anew (all if None).
        Easy classes are told apart without an error by a head that saw many.
    """

    def __init__(
        self,
        name: str,
        training: TensorImages,
        *,
        bfloat16: bool = False,
        side: int | None = None,
        heads: int = 1,
        shots: int | None = None,
    ) -> None:
        entry, argument = load_registry().resolve("backbones", name)
        self.backbone: LoadedBackbone = entry.item.load(BackboneRequest(argument=argument))
        if name.startswith("mini-"):
            _adapt(self.backbone)
        if side is not None:
            assert isinstance(self.backbone.preprocess, Preprocess)
            self.backbone = replace(self.backbone, preprocess=replace(self.backbone.preprocess, side=side))
        self.bfloat16 = bfloat16
        self.batch = max(1, _PIXELS // self.backbone.preprocess(training.images[:1]).shape[-2:].numel())
        if bfloat16:
            self.backbone.module.to(memory_format=torch.channels_last)
        classes = int(training.labels.max()) + 1
        features = self._features(training.images)
        self.heads: list[Head] = []
        for seed in range(heads):
            rows = chosen_rows(training, range(classes), shots, seed)
            found = fit_heads(features[rows], training.labels[rows], [0], seen=classes, tolerance=1e-5)
            self.heads.append(found[0])

    def error(self, images: Tensor, labels: Tensor) -> float:
        """Share of `images` whose class is not found."""
        return float(self.errors(images, labels).mean())

    def errors(self, images: Tensor, labels: Tensor) -> Tensor:
        """(n,) share of the heads that do not find the class of each image."""
        features = self._features(images)
        wrong = [head.logits(features).argmax(dim=1) != labels for head in self.heads]
        return torch.stack(wrong).double().mean(dim=0)

    def _features(self, images: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            return torch.cat(list(extract_features(self.backbone, images, self.batch)))


def _adapt(backbone: LoadedBackbone) -> None:
    pack = find_pack(load_suite("mini"))
    assert pack is not None
    files = pack.read_as(TestbedManifest).networks[f"{backbone.name}/a2"].files
    with tempfile.TemporaryDirectory() as folder:
        copy_files(pack.folder, files, Path(folder), pack.manifest.shared, pack.manifest.compressed)
        state = read_state(load_file(Path(folder) / "final.safetensors"))
    network = AdaptedNetwork(backbone.module, backbone.feature_width, classes=50, seed=0)
    network.load_state_dict(state)
    network.eval()


def degraded_levels(material: Material, name: str) -> dict[float, tuple[Tensor, float]]:
    """Level to the held-out images there and the mean SSIM that was reached."""
    method = load_registry().get("degradations", name).item
    heldout = material.heldout
    found = calibrate(method.fit(material.task), heldout, LEVELS, method=name)
    rows = torch.arange(len(heldout))
    return {
        level: (degrade(one.dial, one.strength, heldout.images, rows), one.achieved_mean_ssim)
        for level, one in found.items()
    }


def spearman(errors: Sequence[float]) -> float:
    """Rank correlation of mean errors with `LEVELS`."""
    return float(spearmanr(LEVELS, errors).statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("--networks", nargs="*", default=[])
    parser.add_argument(
        "--degradations", nargs="+", default=["autoencoder", "gaussian", "blur", "jpeg", "fgsm"]
    )
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--train", type=int)
    parser.add_argument("--heldout", type=int)
    parser.add_argument("--side", type=int)
    parser.add_argument("--network-side", type=int, help="that the networks take, where not their own")
    parser.add_argument(
        "--bfloat16", action="store_true", help="features as `genbench run --autocast` takes them"
    )
    parser.add_argument("--folds", type=int, help="instead of --train and --heldout")
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--shots", type=int)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--rows", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.folds:
        parts = Material.folds(given.dataset, given.classes, given.folds, given.side)
    else:
        parts = [Material.of(given.dataset, given.classes, given.train, given.heldout, given.side)]
    shape = "×".join(map(str, parts[0].heldout.images.shape[1:]))
    sizes = ", ".join(f"{len(part.training)} training and {len(part.heldout)} held-out" for part in parts)
    print(f"{given.dataset}, {shape}: {sizes}")
    judged = defaultdict(list)
    for material in parts:
        probes = {
            network: Probe(
                network, material.training, bfloat16=given.bfloat16, side=given.network_side,
                heads=given.heads, shots=given.shots,
            )
            for network in given.networks
        }  # fmt: skip
        labels = material.heldout.labels
        clean = {network: probe.errors(material.heldout.images, labels) for network, probe in probes.items()}
        pictured = {}
        for name in given.degradations:
            began = time.process_time()
            levels = degraded_levels(material, name)
            reached = " ".join(f"{ssim:6.3f}" for _, ssim in levels.values())
            print(f"{name:14} {'SSIM':22} {reached}   {time.process_time() - began:.0f} s", flush=True)
            for network, probe in probes.items():
                judged[name, network].append(torch.stack([
                    clean[network] if level == 1 else probe.errors(images, labels)
                    for level, (images, _) in levels.items()
                ]))  # fmt: skip
                wrong = torch.cat(judged[name, network], dim=1)
                errors = wrong.mean(dim=1).tolist()
                said = " ".join(f"{error:6.3f}" for error in errors)
                steps = " ".join(f"{step:.1f}" for step in _steps(wrong))
                print(f"{name:14} {network:22} {said}  {spearman(errors):6.3f}  steps {steps}", flush=True)
            if given.picture:
                pictured[name] = levels
        if given.picture and material is parts[0]:
            save_picture(given.picture, pictured, len(material.heldout), given.rows)
    results = {
        f"{name} {network}": torch.cat(wrong, dim=1).mean(dim=1).tolist()
        for (name, network), wrong in judged.items()
    }
    if given.json:
        given.json.write_text(json.dumps(results))


def _steps(wrong: Tensor) -> list[float]:
    """Growth of the mean error from each level to the one below it, in standard errors of paired images."""
    growth = wrong[:-1] - wrong[1:]
    error = growth.std(dim=1) / growth.shape[1] ** 0.5
    return [float(step) for step in growth.mean(dim=1) / error.clamp(min=1e-9)]


def save_picture(
    path: Path, degraded: Mapping[str, Mapping[float, tuple[Tensor, float]]], images: int, rows: int
) -> None:
    """A row per degradation and image, a column per level."""
    from PIL import Image

    shown = torch.linspace(0, images - 1, rows).long()
    lines = [
        torch.cat([levels[level][0][row] for level in sorted(levels, reverse=True)], dim=2)
        for levels in degraded.values()
        for row in shown
    ]
    table = torch.cat(lines, dim=1)
    table = table.expand(3, -1, -1) if len(table) == 1 else table
    picture = Image.fromarray(table.permute(1, 2, 0).contiguous().numpy())
    scale = max(1, round(96 / (picture.width / len(LEVELS))))
    picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST).save(path)


if __name__ == "__main__":
    main()
