"""What the audit's cells are made from and what comes out of them; no torch: planning needs it."""

from __future__ import annotations

from msgspec import Struct

from genbench.population.step_types import BlockNetwork, BlockRecipe, NetworkRecipe, Number

__all__ = [
    "BEST_ACCURACY",
    "BEST_LOSS",
    "END",
    "INTERPOLATION",
    "AuditImages",
    "AuditShape",
    "ContinuedInputs",
    "ExponentialInputs",
    "ImagePoolInputs",
    "ImagePoolResult",
    "JudgedStack",
    "KeptNetwork",
    "StackInputs",
    "StackResult",
    "TruthInputs",
]

INTERPOLATION = "interpolation"
"""Keep the network of the first epoch with 100 % training accuracy."""
BEST_LOSS = "best validation cross-entropy"
BEST_ACCURACY = "best validation accuracy"
END = "end"


class _Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    step: int
    """Code version of the steps."""


class ImagePoolInputs(_Inputs, frozen=True, kw_only=True):
    """Which images: all of the data sets, split anew into training and held-out images."""

    content: list[str]
    """Versions of the data sets."""
    heldout: bool


class ImagePoolResult(Struct, frozen=True, kw_only=True):
    """Images of each data set."""

    sizes: dict[str, int]


class AuditShape(Struct, frozen=True):
    """A network of the audit, for images of 8 × 8 pixels of 10 classes."""

    architecture: str
    """`fcn` or `nin`."""
    depth: int
    width: int
    norm: str = ""
    """Of an fcn, after every hidden layer: `batch`, or `layer` without trained scale and with a readout that
    is not trained; a nin has batch norms."""


class AuditImages(Struct, frozen=True):
    """What a network is trained on."""

    task: str
    """`digits`; `digits 0/1`, the first two classes; `noisy digits`; `glyphs`, ten letters."""
    train_size: int
    label_noise: Number = 0
    """Share of the labels that are drawn anew, uniformly from all classes."""
    permutation: str = ""
    """`shared`: all images have their pixels in one other order; `own`: each in an order of its own."""
    validation: int = 0
    """So many further images choose between checkpoints."""


class StackInputs(_Inputs, frozen=True, kw_only=True):
    """Networks that are trained at once."""

    shape: AuditShape
    images: AuditImages
    recipe: BlockRecipe
    networks: list[BlockNetwork]
    keep: list[int | str]
    """What is kept of every network: epochs, and END, INTERPOLATION, BEST_LOSS or BEST_ACCURACY."""


class ContinuedInputs(_Inputs, frozen=True, kw_only=True):
    """Networks of another stack, trained further from INTERPOLATION by an optimizer without memory."""

    chosen: list[int]
    """Which networks of that stack."""
    recipe: BlockRecipe
    networks: list[NetworkRecipe]
    keep: list[int | str]


class ExponentialInputs(_Inputs, frozen=True, kw_only=True):
    """Runs of SGD under the schedules of 000's Exp++ (`genbench.audit.exponential`)."""

    shape: AuditShape
    images: AuditImages
    rate: float
    momentum: float
    batch_size: int
    steps: int
    init_seed: int
    order_seed: int
    schedules: list[tuple[float, float]]
    """(alpha, weight decay) of every run; those of one weight decay have the function of alpha = 1."""


class KeptNetwork(Struct, frozen=True, kw_only=True):
    """One network of the audit."""

    network: int
    """Which of the stack."""
    mark: str
    """Why it was kept: an epoch, or a word of `keep`."""
    epoch: int
    reached: bool
    """Whether it was what its mark says; one that never interpolates is kept as it ended."""
    train_loss: float | None
    train_accuracy: float
    stopped: bool = True
    """Whether the run ended by its stopping rule."""
    function_change: float | None = None
    """Of Exp++: largest change of a logit on training images, of the largest logit."""


class StackResult(Struct, frozen=True, kw_only=True):
    """Networks that were kept: row by row those of the weights' file."""

    shape: AuditShape
    images: AuditImages
    mean: float
    std: float
    parameters: int
    kept: list[KeptNetwork]


class TruthInputs(_Inputs, frozen=True, kw_only=True):
    """Nothing but the stack decides what its networks do on held-out images."""


class JudgedStack(Struct, frozen=True, kw_only=True):
    """What kept networks do on held-out images of their task."""

    error: list[float | None]
    """None of a network that gives no numbers any more."""
    test_size: int
    predictions: list[str]
    """A hash of what each predicts, to see whether two predict the same."""
