"""The cells of a testbed: images, noise, adapted networks, features, evidence, cubes, trade-off points.

Training images of the seen classes, which measures see, live in a cell of their own: a process that runs
measures opens no file with anything held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.data.images import TensorImages
from genbench.engine.steps import read_result
from genbench.errors import UserError
from genbench.plugin.offers import BackboneRequest, DegradationTask
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.subject import TrainedNetwork
from genbench.testbed.adaptation import AdaptedNetwork, adapt, read_state, rounded_state
from genbench.testbed.degradations.calibrate import calibrate, degrade
from genbench.testbed.images import augment, chosen_images, load_data
from genbench.testbed.judged import judge
from genbench.testbed.step_types import (
    AdaptedResult,
    AdaptInputs,
    FeatureInputs,
    FeatureResult,
    ImageInputs,
    ImageResult,
    JudgedResult,
    JudgeInputs,
    NoiseInputs,
    NoiseLevel,
    NoiseResult,
)
from genbench.zoo.features import extract_features
from genbench.zoo.loaded import LoadedBackbone

__all__ = [
    "adapted_network",
    "degraded_images",
    "features",
    "images",
    "judge_backbone",
    "load_subject",
    "warm",
]

_BATCH = 64
"""Images in a forward pass. Fixed, because another size could change the last bit of a feature."""
_NOISE_TRAINING = 3000
"""Training images that a degradation may learn from, at most."""


def images(inputs: ImageInputs, parents: Mapping[str, Path], out: Path) -> ImageResult:
    """One part of the data: training images of the seen or the unseen classes, or the held-out images."""
    data = load_data(inputs.dataset, inputs.seen, inputs.unseen, inputs.seed)
    seen, total, seed = inputs.seen, inputs.seen + inputs.unseen, inputs.seed
    part = inputs.part
    classes = {"seen": range(seen), "unseen": range(seen, total), "heldout": range(total)}[part]
    split = data.heldout if part == "heldout" else data.train
    chosen, labels = chosen_images(split, classes, inputs.per_class, inputs.image_side, seed)
    if inputs.augment_unseen and part != "seen":
        unseen = labels >= seen
        chosen[unseen] = augment(chosen[unseen], seed + (part == "heldout"))
    save_file({"images": chosen, "labels": labels}, out / "images.safetensors")
    return ImageResult(
        images=len(labels),
        class_names=list(data.class_names[classes.start : classes.stop]),
        data_hash=data.content_hash,
        shape=list(chosen.shape[1:]),
    )


def degraded_images(inputs: NoiseInputs, parents: Mapping[str, Path], out: Path) -> NoiseResult:
    """The held-out images at every SSIM level, and how each level was reached."""
    method = load_registry().get("degradations", inputs.degradation).item
    seen, seen_labels = _images(parents["seen"])
    unseen, unseen_labels = _images(parents["unseen"])
    pixels, labels = torch.cat([seen, unseen]), torch.cat([seen_labels, unseen_labels])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(inputs.seed))
    rows = order[:_NOISE_TRAINING].sort().values
    dials = method.fit(DegradationTask(pixels[rows], labels[rows], inputs.seed))
    heldout, heldout_labels = _images(parents["heldout"])
    found = calibrate(dials, TensorImages(heldout, heldout_labels), inputs.levels, method=method.name)
    everything = torch.arange(len(heldout))
    for level, setting in found.items():
        degraded = degrade(setting.dial, setting.strength, heldout, everything)
        save_file({"images": degraded}, out / f"{level:g}.safetensors")
    fitted = {
        f"{dial.name}.{name}": tensor.detach().clone().contiguous()
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
    """One backbone adapted to the seen classes; its weights in fp16 and the trace of its training."""
    backbone = _backbone(inputs.backbone)
    pixels, labels = _images(parents["training"])
    network = AdaptedNetwork(backbone.module, backbone.feature_width, inputs.classes, inputs.head_seed)
    prepared = backbone.preprocess(pixels)
    trace = adapt(network, prepared, labels, inputs)
    network.load_state_dict(read_state(rounded_state(network)))
    with torch.inference_mode():
        logits = torch.cat([network(part) for part in prepared.split(_BATCH)])
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
        train_loss=float(torch.nn.functional.cross_entropy(logits, labels)),
        train_accuracy=float((logits.argmax(dim=1) == labels).double().mean()),
    )


def features(inputs: FeatureInputs, parents: Mapping[str, Path], out: Path) -> FeatureResult:
    """Features of an adapted backbone: of all training images, or of held-out images at one SSIM level."""
    backbone, network = _adapted(parents["network"])
    if inputs.level is None:
        parts = [_images(parents["seen"]), _images(parents["unseen"])]
        pixels, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    else:
        pixels = load_file(parents["noise"] / f"{inputs.level:g}.safetensors")["images"]
        labels = torch.zeros(len(pixels), dtype=torch.int64)  # nobody reads them
    tower = LoadedBackbone(
        backbone.name,
        network.backbone.eval(),
        backbone.preprocess,
        backbone.feature_width,
        backbone.weight_count,
        backbone.weights_hash,
    )
    save_file(
        {"features": extract_features(tower, TensorImages(pixels, labels), _BATCH)},
        out / "features.safetensors",
    )
    return FeatureResult(images=len(pixels))


def judge_backbone(inputs: JudgeInputs, parents: Mapping[str, Path], out: Path) -> JudgedResult:
    """What one adapted backbone did in every cell of its family's cube."""
    with safe_open(parents["heldout"] / "images.safetensors", "pt") as file:
        heldout_labels = file.get_tensor("labels")
    training_labels = torch.cat(
        [load_file(parents[part] / "images.safetensors")["labels"] for part in ("seen", "unseen")]
    )
    names = read_result(parents["heldout"], ImageResult).class_names
    text = None
    if inputs.unseen_head == "text":
        backbone = _backbone(inputs.backbone)
        if backbone.encode_text is None:
            raise UserError(f"{backbone.name} has no text tower; use testbed.unseen_head = 'probe'")
        text = backbone.encode_text([backbone.prompt.format(name=name) for name in names])
    found = judge(
        training=load_file(parents["training_features"] / "features.safetensors")["features"],
        training_labels=training_labels,
        heldout=[
            load_file(parents[f"features {level:g}"] / "features.safetensors")["features"]
            for level in inputs.levels
        ],
        heldout_labels=heldout_labels,
        seen=inputs.seen,
        zero_shot=inputs.zero_shot,
        penalty=inputs.penalty,
        threshold=inputs.kappa_threshold,
        unseen_head=inputs.unseen_head,
        prototype_images=inputs.prototype_images,
        text=text,
    )
    save_file(found, out / "evidence.safetensors")
    return JudgedResult(weights=read_result(parents["network"], AdaptedResult).weights)


def load_subject(name: str, network: Path, training: Path) -> TrainedNetwork:
    """The originals of a subject: adapted, as its adaptation began, and the seen classes' training set."""
    backbone, adapted = _adapted(network)
    result = read_result(network, AdaptedResult)
    pixels, labels = _images(training)
    return TrainedNetwork(
        name=name,
        final=adapted.eval(),
        initial=lambda: _network(_backbone(name), result).eval(),
        inputs=Inputs(pixels, backbone.preprocess),
        labels=labels,
        classes=result.classes,
        hyperparameters={"weights": result.weights},
        recorded=lambda: read_state(load_file(network / "trace.safetensors")),
    )


def warm(inputs: object) -> None:
    """Import what a step will need, in the worker itself, so that its children need not, each anew."""
    if str(getattr(inputs, "backbone", "")).startswith("mini-"):
        import genbench.zoo.mini.load  # noqa: F401


def _backbone(name: str) -> LoadedBackbone:
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


def _images(folder: Path) -> tuple[Tensor, Tensor]:
    tensors = load_file(folder / "images.safetensors")
    return tensors["images"], tensors["labels"]
