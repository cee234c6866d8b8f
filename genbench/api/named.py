"""Networks by name, for `genbench read timm:resnet18 --dataset folder:DIR`.

A pretrained tower and a linear head. The tower stays as it was pretrained; the head is a multinomial logistic
regression on its features of the training images, which are the network's training set. What the network was
before is not known: measures that need initial weights do not apply.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.keys import text_hash
from genbench.plugin.registry import load_registry

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["named_subject", "write_builder"]

_PENALTY = 10.0
"""Weight of ||W||²/2 beside the sum of cross entropies, as in testbeds."""
_STEPS = 100
_BATCH = 64


def named_subject(backbone: str, dataset: str, *, images: int | None = None) -> Subject:
    """A registered backbone with a linear head for the classes of a registered data set.

        genbench.api.named.named_subject("mini-clip:short4", "digits")

    Parameters
    ----------
    backbone, dataset : as `genbench backbones` and `genbench datasets` name them.
    images : training images to take, the first of each class in turn; all by default.
    """
    import torch

    from genbench.plugin.offers import BackboneRequest, DataRequest
    from genbench.subject.inputs import Inputs
    from genbench.subject.subject import Subject

    entry, argument = load_registry().resolve("datasets", dataset)
    data = entry.item.load(DataRequest(argument=argument, seed=None))
    rows = _spread(data.train.labels, images)
    entry, argument = load_registry().resolve("backbones", backbone)
    tower = entry.item.load(BackboneRequest(argument=argument))
    labels, classes = data.train.labels[rows].long(), len(data.class_names)
    if classes < 2 or len(labels.unique()) < 2:
        raise UserError(f"{dataset} has images of one class only; a classifier needs two")
    raw = torch.cat([data.train.batch(part) for part in rows.split(_BATCH)])
    inputs = Inputs(raw, tower.preprocess)
    with torch.no_grad():
        features = torch.cat([tower.module(batch) for batch in inputs.split(_BATCH)])
    head = torch.nn.Linear(tower.feature_width, classes)
    weight, bias = _regression(features, labels, classes)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return Subject.from_module(
        torch.nn.Sequential(tower.module, head),
        data=(inputs, labels),
        classes=classes,
        name=f"{backbone} on {dataset}",
        hyperparameters={"backbone": backbone, "dataset": dataset, "weights": tower.weight_count},
    )


def _spread(labels: Tensor, count: int | None) -> Tensor:
    """Rows of the first image of every class, then of the second, and so on; `count` of them, in order."""
    import torch

    if count is None or count >= len(labels):
        return torch.arange(len(labels), device="cpu")
    turn = torch.empty(len(labels), dtype=torch.int64, device="cpu")
    for label in labels.unique():
        own = (labels == label).nonzero()[:, 0]
        turn[own] = torch.arange(len(own), device="cpu")
    return turn.argsort(stable=True)[:count].sort().values


def _regression(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights (classes, d) and bias that minimise sum_n CE(W z_n + b, y_n) + penalty/2·||W||².

    z are the features with mean 0 and deviation 1; the result is for the features as they are.
    """
    import torch
    from torch.nn.functional import cross_entropy

    spread, mean = torch.std_mean(features.double(), dim=0, correction=0)
    scale = spread.clamp(min=max(1e-3 * float(spread.square().mean().sqrt()), 1e-12))
    z = (features.double() - mean) / scale
    weight = torch.zeros(classes, z.shape[1], dtype=torch.float64, device="cpu", requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, device="cpu", requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )

    def loss() -> Tensor:
        solver.zero_grad()
        found: Tensor = cross_entropy(z @ weight.T + bias, labels, reduction="sum")
        found = found + _PENALTY / 2 * weight.square().sum()
        found.backward()
        return found

    solver.step(loss)
    plain = weight.detach() / scale
    return plain.float(), (bias.detach() - plain @ mean).float()


def write_builder(store: Path, backbone: str, dataset: str, images: int | None) -> Path:
    """A file whose function `build` gives the network: readings of it are kept as those of anyone's."""
    load_registry().resolve("backbones", backbone)
    load_registry().resolve("datasets", dataset)
    call = f"named_subject({json.dumps(backbone)}, {json.dumps(dataset)}, images={images!r})"
    text = (
        '"""Written by `genbench read`."""\n\nfrom genbench.api.named import named_subject\n\n\n'
        f"def build():\n    return {call}\n"
    )
    with Store(store):  # or the folder would be taken for something else
        pass
    file = store / "named" / f"{text_hash(text)[:16]}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file
