"""The cells of a testbed: images, noise, adapted networks, features, evidence, cubes, trade-off points.

Training images of the seen classes, which measures see, live in a cell of their own: a process that runs
measures opens no file with anything held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.data.tensor_file import Joined, RowFile, write_rows
from genbench.engine.compute import autocast, compute_device
from genbench.engine.steps import read_result
from genbench.errors import UserError
from genbench.plugin.offers import BackboneRequest, DegradationTask
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.subject.inputs import Inputs, Rows
from genbench.subject.module_copies import can_be_copied, with_state
from genbench.subject.subject import TrainedNetwork
from genbench.testbed.adaptation import AdaptedNetwork, adapt, read_state, rounded_state
from genbench.testbed.batches import BATCH, fixed_batch
from genbench.testbed.degradations.calibrate import calibrate, degrade
from genbench.testbed.images import chosen_images, chosen_rows, load_data, turned, turns
from genbench.testbed.judged import judge
from genbench.testbed.loss_target import evaluation_logits
from genbench.testbed.step_types import (
    TRAINING_FILE,
    AdaptedResult,
    AdaptInputs,
    FeatureInputs,
    FeatureResult,
    ImageInputs,
    ImageResult,
    JudgedResult,
    JudgeInputs,
    NetworkJudgeInputs,
    NoiseInputs,
    NoiseLevel,
    NoiseResult,
)
from genbench.testbed.training_set import chosen_training_set
from genbench.zoo.features import extract_features
from genbench.zoo.loaded import LoadedBackbone
from genbench.zoo.weights import at_remembered_places

__all__ = [
    "adapted_network",
    "degraded_images",
    "features",
    "images",
    "judge_backbone",
    "judge_network",
    "load_subject",
    "warm",
]

_IMAGES = "images.safetensors"
_REACHED = 1.05
"""How many times its target the loss of a converged network may be, once its weights are rounded."""
_NOISE_TRAINING = 3000
"""Training images that a degradation may learn from, at most."""


def images(inputs: ImageInputs, parents: Mapping[str, Path], out: Path) -> ImageResult:
    """One part of the data: training images of the seen or the unseen classes, or the held-out images."""
    data = load_data(inputs.dataset, inputs.seen, inputs.unseen, inputs.seed)
    seen, total, part = inputs.seen, inputs.seen + inputs.unseen, inputs.part
    classes = {"seen": range(seen), "unseen": range(seen, total), "heldout": range(total)}[part]
    split = data.heldout if part == "heldout" else data.train
    rows = chosen_rows(split, classes, inputs.per_class, inputs.seed)
    labels = split.labels[rows]
    parts = chosen_images(split, rows, inputs.image_side)
    if inputs.augment_unseen and part != "seen":
        chosen = _turned(parts, labels >= seen, inputs.seed + (part == "heldout"))
    else:
        chosen = (pixels for pixels, _ in parts)
    shape = write_rows(out / _IMAGES, "images", chosen, len(rows), {"labels": labels})
    return ImageResult(
        images=len(labels),
        class_names=list(data.class_names[classes.start : classes.stop]),
        data_hash=data.content_hash,
        shape=list(shape[1:]),
    )


def _turned(parts: Iterator[tuple[Tensor, Tensor]], unseen: Tensor, seed: int) -> Iterator[Tensor]:
    """The images of `parts`, those of unseen classes augmented."""
    maps = turns(int(unseen.sum()), seed)
    number = unseen.cumsum(0) - 1
    for pixels, places in parts:
        here = unseen[places]
        pixels[here] = turned(pixels[here], maps[number[places][here]])
        yield pixels


def degraded_images(inputs: NoiseInputs, parents: Mapping[str, Path], out: Path) -> NoiseResult:
    """The held-out images at every SSIM level, and how each level was reached.

    They are stored, a byte a value on disk, and not made anew for each backbone. Of a dial only its tensors
    can be kept, so that a cell of features would have to fit all dials again (40 s of processor time on
    mini); and applying one costs more than reading what it gave (see `benchmarks/test_streaming.py`).
    """
    method = load_registry().get("degradations", inputs.degradation).item
    training = Joined([_pixels(parents["seen"]), _pixels(parents["unseen"])])
    labels = torch.cat([_labels(parents["seen"]), _labels(parents["unseen"])])
    generator = torch.Generator("cpu").manual_seed(inputs.seed)
    order = torch.randperm(len(labels), generator=generator, device="cpu")
    rows = order[:_NOISE_TRAINING].sort().values
    device = compute_device()
    dials = method.fit(DegradationTask(training[rows].to(device), labels[rows].to(device), inputs.seed))
    heldout = _pixels(parents["heldout"])
    found = calibrate(dials, heldout, inputs.levels, method=method.name)
    for level, setting in found.items():
        # The pixels of a batch do not depend on what else is in it.
        batches = torch.arange(len(heldout), device="cpu").split(BATCH)
        degraded = (degrade(setting.dial, setting.strength, heldout[part], part) for part in batches)
        write_rows(out / f"{level:g}.safetensors", "images", degraded, len(heldout))
    fitted = {
        f"{dial.name}.{name}": tensor.detach().cpu().clone().contiguous()
        for dial in dials
        for name, tensor in dial.tensors.items()
    }
    save_file(fitted, out / "dials.safetensors")
    return NoiseResult(
        recipe=[
            NoiseLevel(
                ssim=level,
                dial=setting.dial.name,
                strength=setting.strength,
                achieved=setting.achieved_mean_ssim,
            )
            for level, setting in found.items()
        ]
    )


def adapted_network(inputs: AdaptInputs, parents: Mapping[str, Path], out: Path) -> AdaptedResult:
    """One backbone adapted to the seen classes; its weights in fp16 and the trace of its training.

    Beside them, where it was trained on less than all images or on wrong labels, what it was trained on.
    """
    device = compute_device()
    backbone = _backbone(inputs.backbone)
    labels = _labels(parents["training"])
    network = AdaptedNetwork(backbone.module, backbone.feature_width, inputs.classes, inputs.head_seed)
    network.to(device)
    training = Inputs(_pixels(parents["training"]), backbone.preprocess, device=device)
    if inputs.train_share < 1 or inputs.label_noise > 0:
        rows, labels = chosen_training_set(
            labels,
            share=inputs.train_share,
            noise=inputs.label_noise,
            classes=inputs.classes,
            seed=inputs.subset_seed,
        )
        save_file({"rows": rows.to(torch.int32), "labels": labels.to(torch.int32)}, out / TRAINING_FILE)
        training = training.chosen(rows)
    trace = adapt(network, training, labels, inputs)
    network.load_state_dict(read_state(rounded_state(network)))
    logits = evaluation_logits(network, training)
    loss = float(torch.nn.functional.cross_entropy(logits, labels))
    save_file(rounded_state(network), out / "final.safetensors")
    save_file(trace.tensors(), out / "trace.safetensors")
    return AdaptedResult(
        backbone=inputs.backbone,
        classes=inputs.classes,
        feature_width=backbone.feature_width,
        head_seed=inputs.head_seed,
        weights=backbone.weight_count,
        pretrained_hash=backbone.weights_hash,
        epochs=len(trace.loss),
        train_loss=loss,
        train_accuracy=float((logits.argmax(dim=1) == labels).double().mean()),
        converged=None if inputs.stop == "training" else loss <= _REACHED * inputs.stop_loss,
    )


def features(inputs: FeatureInputs, parents: Mapping[str, Path], out: Path) -> FeatureResult:
    """Features of an adapted backbone: of all training images, or of held-out images at one SSIM level."""
    pixels = _training_pixels(parents) if inputs.level is None else _level_pixels(parents, inputs.level)
    backbone, network = _adapted(parents["network"])
    found = _features(backbone, network, pixels)
    with autocast():
        write_rows(out / "features.safetensors", "features", found, len(pixels))
    return FeatureResult(images=len(pixels))


def judge_backbone(inputs: JudgeInputs, parents: Mapping[str, Path], out: Path) -> JudgedResult:
    """What one adapted backbone did in every cell of its family's cube, from stored features."""

    def stored(name: str) -> Tensor:
        return load_file(parents[name] / "features.safetensors")["features"]

    levels = [stored(f"features {level:g}") for level in inputs.levels]
    return _judged(inputs, parents, stored("training_features"), levels, out)


def judge_network(inputs: NetworkJudgeInputs, parents: Mapping[str, Path], out: Path) -> JudgedResult:
    """The same, with features that are taken here and not stored.

    Of a suite with many networks of each backbone they would fill a disk (50 MB a network on glyphs), and
    another suite seldom has use for them.
    """
    backbone, network = _adapted(parents["network"])
    with autocast():
        training, *levels = (
            torch.cat(list(_features(backbone, network, pixels)))
            for pixels in (
                _training_pixels(parents),
                *(_level_pixels(parents, level) for level in inputs.levels),
            )
        )
    return _judged(inputs, parents, training, levels, out)


def _training_pixels(parents: Mapping[str, Path]) -> Rows:
    return Joined([_pixels(parents["seen"]), _pixels(parents["unseen"])])


def _level_pixels(parents: Mapping[str, Path], level: float) -> Rows:
    return RowFile(parents["noise"] / f"{level:g}.safetensors", "images")


def _features(backbone: LoadedBackbone, network: AdaptedNetwork, pixels: Rows) -> Iterator[Tensor]:
    device = compute_device()
    tower = replace(backbone, module=network.backbone.eval().to(device), encode_text=None)
    size = fixed_batch(Inputs(pixels, backbone.preprocess))
    return extract_features(tower, pixels, size, device)


def _judged(
    inputs: JudgeInputs, parents: Mapping[str, Path], training: Tensor, heldout: list[Tensor], out: Path
) -> JudgedResult:
    names = read_result(parents["heldout"], ImageResult).class_names
    text = None
    if inputs.unseen_head == "text":
        backbone = _backbone(inputs.backbone)
        if backbone.encode_text is None:
            raise UserError(f"{backbone.name} has no text tower; use testbed.unseen_head = 'probe'")
        text = backbone.encode_text([backbone.prompt.format(name=name) for name in names])
    found = judge(
        training=training,
        training_labels=torch.cat([_labels(parents[part]) for part in ("seen", "unseen")]),
        heldout=heldout,
        heldout_labels=_labels(parents["heldout"]),
        seen=inputs.seen,
        zero_shot=inputs.zero_shot,
        penalty=inputs.penalty,
        threshold=inputs.kappa_threshold,
        unseen_head=inputs.unseen_head,
        prototype_images=inputs.prototype_images,
        text=text,
    )
    save_file(found, out / "evidence.safetensors")
    network = read_result(parents["network"], AdaptedResult)
    return JudgedResult(weights=network.weights, converged=network.converged)


def load_subject(name: str, network: Path, training: Path) -> TrainedNetwork:
    """The originals of a subject: adapted, as its adaptation began, and the images it was trained on."""
    result = read_result(network, AdaptedResult)
    start = _start(result.backbone, result.feature_width, result.classes)
    inputs, labels = Inputs(_pixels(training), start.backbone.preprocess), _labels(training)
    if (network / TRAINING_FILE).exists():
        own = load_file(network / TRAINING_FILE)
        inputs, labels = inputs.chosen(own["rows"].long()), own["labels"].long()
    return TrainedNetwork(
        name=name,
        final=start.network(result.head_seed, read_state(load_file(network / "final.safetensors"))),
        initial=lambda: start.network(result.head_seed),
        inputs=inputs,
        labels=labels,
        classes=result.classes,
        hyperparameters={"backbone": result.backbone, "weights": result.weights},
        recorded=lambda: read_state(load_file(network / "trace.safetensors")),
        architecture=start.architecture,
    )


@dataclass(frozen=True)
class _Start:
    """What all adaptations of a backbone begin with."""

    backbone: LoadedBackbone
    feature_width: int
    classes: int
    architecture: tuple[str, int] | None
    """Of networks that are copied; None for those that are built one by one."""

    def network(self, head_seed: int, state: dict[str, Tensor] | None = None) -> AdaptedNetwork:
        """One of them with weights of its own, by default those before adaptation."""
        copied = self.architecture is not None
        backbone = self.backbone if copied else _backbone(self.backbone.name)
        network = AdaptedNetwork(backbone.module, self.feature_width, self.classes, head_seed).eval()
        if copied:
            # Building a backbone of mini takes 25 ms, more than a quick measure does.
            own = state or {key: value.clone() for key, value in network.state_dict().items()}
            network = with_state(network, own)
        elif state is not None:
            network.load_state_dict(state)
        return network


_SMALL = 10_000_000
"""Weights of a backbone that is kept in memory, to be copied."""


@lru_cache(maxsize=2)
def _start(name: str, feature_width: int, classes: int) -> _Start:
    """Of the last network too: a worker reads one adaptation of a backbone after the other."""
    backbone = _backbone(name)
    # Only of genbench's own backbones do we know that one is as good as the next.
    own = load_registry().resolve("backbones", name)[0].source.kind == BUILT_IN
    copied = own and backbone.weight_count <= _SMALL and can_be_copied(backbone.module)
    architecture = (f"{name} {backbone.weights_hash}", classes) if copied else None
    return _Start(backbone, feature_width, classes, architecture)


def warm(inputs: object) -> None:
    """Import what a step will need, in the worker itself, so that its children need not, each anew."""
    backbone = str(getattr(inputs, "backbone", ""))
    if backbone.startswith("mini-"):
        import genbench.zoo.mini.load  # noqa: F401
    if backbone.startswith("mini-clip:"):
        import open_clip.model  # noqa: F401


def _backbone(name: str) -> LoadedBackbone:
    with at_remembered_places():
        entry, argument = load_registry().resolve("backbones", name)
        backbone: LoadedBackbone = entry.item.load(BackboneRequest(argument=argument))
    return backbone


def _network(backbone: LoadedBackbone, result: AdaptedResult) -> AdaptedNetwork:
    return AdaptedNetwork(backbone.module, result.feature_width, result.classes, result.head_seed)


def _adapted(folder: Path) -> tuple[LoadedBackbone, AdaptedNetwork]:
    result = read_result(folder, AdaptedResult)
    backbone = _backbone(result.backbone)
    network = _network(backbone, result)
    network.load_state_dict(read_state(load_file(folder / "final.safetensors")))
    return backbone, network


def _pixels(folder: Path) -> RowFile:
    return RowFile(folder / _IMAGES, "images")


def _labels(folder: Path) -> Tensor:
    return RowFile(folder / _IMAGES, "labels")[:]
