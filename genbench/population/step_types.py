"""What the cells of a population are made from and what comes out of them: one type for plan and step alike.

Inputs are hashed into the keys of cells as JSON, results lie in their manifests. A number stays what the
suite's file has, 1 or 1.0: the two have different keys. No torch here: planning needs it.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "BlockInputs",
    "BlockNetwork",
    "BlockRecipe",
    "BlockResult",
    "Choice",
    "HeldoutInputs",
    "JudgeInputs",
    "JudgedResult",
    "NetworkRecipe",
    "NetworkShape",
    "PoolInputs",
    "PoolResult",
    "PooledData",
    "Shape",
    "ShiftInputs",
    "ShiftResult",
    "TrainedSummary",
]

Number = int | float


class Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that determines a cell beside its parents."""

    step: int
    """Code version of the steps."""


class Result(Struct, frozen=True, kw_only=True):
    """The small values of a cell; large ones are files in its folder."""


# -- images --------------------------------------------------------------------------------------------------


class PoolInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """Which images of which data sets are in a pool; as such, those of the training split."""

    datasets: list[str]
    versions: list[str]
    content: list[str]
    """What tells the files found on this machine from others."""
    domains: bool
    """Whether a domain is left out of training; the pool then has a file for each."""
    classes: int | None
    """So many of the first classes; None for all."""
    seed: int
    quick: bool
    """Keys contain their parents': what a quick subset computes is never taken for the full suite's."""
    training_pool: int | None = None
    """So many images of the training split are for training, the others are held out."""


class HeldoutInputs(PoolInputs, frozen=True, kw_only=True):
    """The same, of those that no network is trained on."""

    heldout_size: int | None
    """At most so many."""


class PooledData(Struct, frozen=True, kw_only=True):
    """One data set of a pool."""

    name: str
    classes: int
    domains: list[str]
    """Of its files, in their order; one without a name where domains do not matter."""
    size: int


class PoolResult(Result, frozen=True, kw_only=True):
    """Images that were chosen."""

    datasets: list[PooledData]


class ShiftInputs(Inputs, frozen=True, kw_only=True):
    """How held-out images are corrupted."""

    corruptions: list[str]
    severities: list[int] | None
    """None for all five."""
    shifted_images: int | None
    """At most so many of a data set."""
    seed: int


class ShiftResult(Result, frozen=True, kw_only=True):
    """Data set to the number of its images that were corrupted."""

    sizes: dict[str, int]


# -- networks ------------------------------------------------------------------------------------------------


class NetworkShape(Struct, frozen=True):
    """What a suite says of the tensors of a network."""

    architecture: str
    depth: int
    width: int
    dropout: Number


class Shape(NetworkShape, frozen=True):
    """Everything that decides which tensors a network has."""

    channels: int
    height: int
    image_width: int
    classes: int


class Choice(Struct, frozen=True):
    """Which images a network is trained on."""

    dataset: str
    train_size: int
    label_noise: Number
    """Share of the labels that are drawn anew, uniformly from all classes (000)."""
    heldout_domain: str
    """A domain left out of training; empty for none."""
    seed: int


class BlockRecipe(Struct, frozen=True):
    """What all networks of a stack have in common."""

    optimizer: str
    batch_size: int
    stop: str
    """`cross_entropy`: the first epoch after which the training cross-entropy in eval mode is at most
    `stop_cross_entropy`; `accuracy`: the first with 100 % training accuracy; `epochs`: all `max_epochs`."""
    stop_cross_entropy: Number
    max_epochs: int
    schedule: str = "constant"
    """`cosine` takes the learning rate of epoch t to ½ (1 + cos(π t / max_epochs)) of the first."""


class NetworkRecipe(Struct, frozen=True):
    """How each network of a stack is trained for itself."""

    learning_rate: Number
    momentum: Number
    weight_decay: Number
    order_seed: int
    """Decides the order of the examples, and what dropout drops."""


class BlockNetwork(NetworkRecipe, frozen=True):
    """A network of a stack."""

    init_seed: int
    """Decides its initial weights; nothing else but its shape does."""


class BlockInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """A stack of networks, and how they are trained."""

    shape: NetworkShape
    choice: Choice
    recipe: BlockRecipe
    networks: list[BlockNetwork]
    half: bool = False
    """Whether trained weights are rounded to fp16 before anything is measured on them."""


class TrainedSummary(Struct, frozen=True, kw_only=True):
    """How the training of one network ended."""

    converged: bool
    """Whether it met its stopping rule, or reached the training accuracy that counts as that."""
    stopped: bool
    """Whether it met its stopping rule."""
    epochs: int
    train_loss: float | None
    """JSON has no NaN; a diverged network has no loss."""
    train_accuracy: float


class BlockResult(Result, frozen=True, kw_only=True):
    """Trained networks, in their order in the stack."""

    shape: Shape
    choice: Choice
    mean: float
    """Of the training images' pixels, which inputs are standardised by."""
    std: float
    parameters: int
    networks: list[TrainedSummary]


# -- evidence ------------------------------------------------------------------------------------------------


class JudgeInputs(Inputs, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of a stack's networks beside their gaps."""

    calibration: bool = False
    """Whether heldout_ece is wanted too."""
    bits: bool = False
    """Whether right or wrong is stored as a bit an image."""


class JudgedResult(Result, frozen=True, kw_only=True):
    """What the networks of a stack did on held-out images."""

    networks: list[dict[str, int | float | dict[str, float]]]
    """Of each, by name: test_accuracy, test_size, gap, gap_ood_… as the suite has shifted images,
    heldout_ece where it was asked for and is a number, shifted_accuracy by corruption and severity."""
