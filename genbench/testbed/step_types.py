"""What the cells of a testbed are made from and what comes out of them: one type for plan and step alike.

Inputs are hashed into the keys of cells as JSON, results lie in their manifests. No torch here: planning
needs it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = [
    "TRAINING_FILE",
    "AdaptInputs",
    "AdaptationRecipe",
    "AdaptedResult",
    "CubeInputs",
    "CubeResult",
    "FeatureInputs",
    "FeatureResult",
    "ImageInputs",
    "ImageResult",
    "JudgeInputs",
    "JudgedResult",
    "NetworkJudgeInputs",
    "NoiseInputs",
    "NoiseLevel",
    "NoiseResult",
    "TradeOffInputs",
]


TRAINING_FILE = "training.safetensors"
"""Of an adapted network: rows and labels that it was trained on, where those are not all."""


class Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that determines a cell beside its parents."""

    step: int
    """Code version of the steps."""


class Result(Struct, frozen=True, kw_only=True):
    """The small values of a cell; large ones are files in its folder."""


class ImageInputs(Inputs, frozen=True, kw_only=True):
    """Which images of a data set."""

    dataset: str
    dataset_version: str
    content: str
    """What tells the files found on this machine from others."""
    seen: int
    unseen: int
    seed: int
    image_side: int | None
    quick: bool
    """The first key of all: what a suite's quick subset computes is never taken for the full suite's."""
    part: str
    """`seen`, `unseen` or `heldout`."""
    per_class: int | None
    augment_unseen: bool


class ImageResult(Result, frozen=True, kw_only=True):
    """Images that were chosen."""

    images: int
    class_names: list[str]
    data_hash: str
    shape: list[int]


class NoiseInputs(Inputs, frozen=True, kw_only=True):
    """How held-out images are degraded."""

    degradation: str
    version: str
    levels: list[float]
    """SSIM."""
    seed: int


class NoiseLevel(Struct, frozen=True, kw_only=True):
    """How one SSIM level was reached."""

    ssim: float
    dial: str
    strength: float
    achieved: float


class NoiseResult(Result, frozen=True, kw_only=True):
    """All levels."""

    recipe: list[NoiseLevel]


class AdaptationRecipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to adapt; the table [adapt] of a suite, as one of its [[adaptations]] may change it.

    Fields with a default were added later; they stand in keys only where they are not that.
    """

    method: str
    """`finetune` trains everything, `frozen` the head alone."""
    epochs: int
    """At most this many."""
    batch_size: int
    learning_rate: float
    """Of the backbone's weights, at its highest."""
    head_learning_rate: float
    weight_decay: float
    stop_loss: float
    """Training ends when the training loss is at most this."""
    patience: int
    """Training ends when that loss has not fallen for so many epochs."""
    seed: int
    """Of the order of batches, and of how they are augmented."""
    stop: str = "training"
    """Which loss: `training`, the mean of an epoch's batches as they were trained on; `evaluation`, that of
    all training images in evaluation mode, and training then ends where the loss is `stop_loss`."""
    augmentation: str = "none"
    """`shift` turns and moves every image of a batch a little."""


class AdaptInputs(AdaptationRecipe, frozen=True, kw_only=True, omit_defaults=True):
    """A backbone, and how it is adapted."""

    step: int
    backbone: str
    backbone_version: str
    content: str
    """What tells the weights found on this machine from others."""
    classes: int
    head_seed: int
    train_share: float = 1.0
    label_noise: float = 0.0
    subset_seed: int = 0
    """Of which images and which wrong labels; the same for all adaptations, so that shares are nested."""


class AdaptedResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """An adapted network, and how its training went."""

    backbone: str
    classes: int
    feature_width: int
    head_seed: int
    weights: int
    pretrained_hash: str
    epochs: int
    train_loss: float
    train_accuracy: float
    """Both on the images and with the labels that it was trained on."""
    converged: bool | None = None
    """Whether it reached its loss, where that was asked of it; None where training may just end."""


class FeatureInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """Of which images an adapted backbone's features are wanted."""

    backbone: str
    level: float | None
    """SSIM of the held-out images; None for the training images."""
    autocast: bool = False
    """Whether they are computed in bfloat16; the engine sets it, and leaves it out of the key where not."""


class FeatureResult(Result, frozen=True, kw_only=True):
    """Features that were extracted."""

    images: int


class JudgeInputs(Inputs, frozen=True, kw_only=True):
    """How heads are fitted and judged."""

    backbone: str
    seen: int
    levels: list[float]
    zero_shot: list[int]
    unseen_head: str
    prototype_images: int
    penalty: float
    kappa_threshold: float


class NetworkJudgeInputs(JudgeInputs, frozen=True, kw_only=True, omit_defaults=True):
    """The same for features that are taken on the spot."""

    autocast: bool = False
    """As of `FeatureInputs`."""


class JudgedResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Of a judged backbone."""

    weights: int
    converged: bool | None = None
    """As its adaptation says."""


class CubeInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """The axes of a family's cube, and where they come from."""

    suite: str
    quick: bool
    family: str
    backbones: list[str]
    adaptations: list[str] = []
    """Of every backbone; none where each is adapted once, and the cube has no such axis."""
    seen: int
    zero_shot: list[int]
    ssim: list[float]
    dataset: str
    settings: dict[str, Any]
    """The whole suite, for the cube's own provenance."""


class CubeResult(Result, frozen=True, kw_only=True):
    """Of a cube."""

    family: str
    models: int


class TradeOffInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """Which trade-off point of a cube."""

    kappa: str
    scales: str
    weights: tuple[float, float, float]
    backbones: list[str]
    """A pack's cube may hold more models than were asked for."""
    adaptations: list[str] = []
