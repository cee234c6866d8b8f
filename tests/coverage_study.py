"""Do the reported errors hold? Six networks, many seeds: is the value on all data within two errors?

    python tests/coverage_study.py collect FOLDER [--networks 0,1] [--seeds 20] [--measures tic,tic_bias]
                                                  [--fresh 1] [--same-examples] [--examples 1700]
    python tests/coverage_study.py table FOLDER

`collect` trains its networks on scikit-learn's digits, takes the value of every stochastic measure on the
whole training set with many draws (kept in FOLDER/truths for the next time), and a reading per seed, each
with the training set in another order: the seed then stands for the choice of examples as well as for the
draws. `table` prints, per measure, how often value ± 2 errors holds the value on all data, and how often two
seeds disagree on the order of two networks. `--fresh K` trains other networks, on other digits, and reads
them with other seeds; with `--same-examples` only the reading's own seed differs; `--examples` is the size of
the training set. A small version is in tests/test_coverage.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import genbench
from genbench.keys import derive_seed
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.parts import LocalParts
from genbench.subject.subject import TrainedNetwork

MEASURES = {
    name: entry.item for name, entry in load_registry().measures.items() if entry.source.kind == "built-in"
}
OF_CHOSEN = ["gi_rotation_l0", "gi_horizontal_l0", "gi_vertical_l0"]
"""Not seeded: only the choice of examples leaves something open. gi_colour_l0 is alike; digits are grey."""
LEFT_OUT = {"baseline_random"}
"""Nothing but its draw."""
STOCHASTIC = [
    name
    for name, item in MEASURES.items()
    if name in OF_CHOSEN or (item.randomness == "seeded" and name not in LEFT_OUT)
]
_ROUNDING = 1e-7
"""By so much sums in single precision may differ where the same examples come in another order."""
SEEDS = 20
EXAMPLES = 1000


class Residual(nn.Module):
    """A small residual network with batch norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
            )
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = (x + block(x)).relu()
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def convolutional(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * width, 10),
    )  # fmt: skip


NETWORKS = [
    ("MLP 24", lambda: perceptron(24), 12),
    ("MLP 64", lambda: perceptron(64), 30),
    ("CNN 4", lambda: convolutional(4), 8),
    ("CNN 8", lambda: convolutional(8), 20),
    ("ResNet 6", lambda: Residual(6), 12),
    ("ResNet 10", lambda: Residual(10), 25),
]
"""Name, architecture, epochs of training."""


def digits(m: int, fresh: int = 0) -> tuple[Tensor, Tensor]:
    """m of scikit-learn's digits, standardised, in random order."""
    data = load_digits()
    rows = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(fresh))[:m]
    inputs = torch.tensor(data.images, dtype=torch.float32)[rows, None]
    return (inputs - inputs.mean()) / inputs.std(), torch.tensor(data.target)[rows]


def trained(number: int, m: int, fresh: int = 0) -> TrainedNetwork:
    """Network `number`, trained with Adam."""
    name, make, epochs = NETWORKS[number]
    with torch.random.fork_rng():
        torch.manual_seed(number + len(NETWORKS) * fresh)
        model, inputs_labels = make(), digits(m, fresh)
        initial = {key: value.clone() for key, value in model.state_dict().items()}
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        inputs, labels = inputs_labels
        for _ in range(epochs):
            for rows in torch.randperm(m).split(32):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                optimizer.step()
        start = make()
        start.load_state_dict(initial)
    return TrainedNetwork(name, model.eval(), start.eval(), Inputs(inputs), labels, 10)


def readings(
    network: TrainedNetwork, seed: int, names: Iterable[str], shuffle: bool = True
) -> dict[str, tuple[float, float]]:
    """Value and error of each measure, with the training set in an order that depends on the seed alone."""
    m = len(network.labels)
    generator = torch.Generator().manual_seed(derive_seed("order", seed))
    rows = torch.randperm(m, generator=generator) if shuffle else torch.arange(m)
    about = {"classes": network.classes, "initial": network.initial_model}
    again = TrainedNetwork(
        name=network.name,
        final=network.model,
        inputs=network.inputs.chosen(rows),
        labels=network.labels[rows],
        **about,
    )
    of_reading = derive_seed("reading", seed, network.name)
    subject = genbench.Subject(again, LocalParts(again, of_reading), seed=of_reading)
    found = {}
    for name in names:
        value = MEASURES[name](subject.fresh())
        found[name] = (float(value), float(getattr(value, "standard_error", None) or 0.0))
    return found


def many_draws(m: int, work: float = 1.0) -> ExitStack:
    """All examples, and so many draws that their error hardly matters."""

    def most(count: float) -> int:
        return int(count * work)

    room = "genbench.subject"
    stack = ExitStack()
    for module, values in {
        "noise": {"_EXAMPLES": m, "_DRAWS": most(400), "_ISOTROPIC_DRAWS": most(200)},
        "sigma": {"_LOOK_DRAWS": most(800), "_EXAMPLES": 128, "_APART": 0.08},
        "gradients": {"_BATCHES": most(800), "_AT_INPUT": m, "_SCORED": m},
        "information": {"_EXAMPLES": m, "_EXACT": 9},
        "gradient_noise": {"_SQUARED": m, "_MEAN": m},
        "hessian": {
            "_ALL": m, "_MOST_STEPS": 60, "_SETTLED": 1e-3, "_PRECISE": 0.01 / work, "_PROBED": math.inf,
        },
        "transformations": {"_EXAMPLES": m},
        "responses": {"_POOL": m, "_ROWS": most(20_000), "_MIDPOINTS": most(40_000)},
    }.items():  # fmt: skip
        stack.enter_context(patch.multiple(f"{room}.{module}", **values))
    stack.enter_context(patch("genbench.measures.perturbation._REPRESENTED", m))
    return stack


def on_all_data(network: TrainedNetwork, names: Iterable[str], work: float = 1.0) -> dict[str, float]:
    """The value of each measure on the whole training set."""
    with many_draws(len(network.labels), work):
        return {name: value for name, (value, _) in readings(network, -1, names, False).items()}


def collect(folder: Path, numbers: list[int], options: argparse.Namespace) -> None:
    names = options.measures.split(",") if options.measures else STOCHASTIC
    folder.mkdir(parents=True, exist_ok=True)
    seeds = range(options.fresh * 1000, options.fresh * 1000 + options.seeds)
    for number in numbers:
        file = folder / f"{number}.json"
        network = trained(number, options.examples, options.fresh)
        began = time.process_time()
        found = [readings(network, seed, names, not options.same_examples) for seed in seeds]
        each = (time.process_time() - began) / len(seeds)
        print(f"{network.name}: {len(seeds)} seeds, {each:.2f} s of processor time each", flush=True)
        kept = folder / "truths" / f"{number}.json"
        truth = json.loads(kept.read_text()) if kept.exists() else {}
        if missing := [name for name in names if name not in truth]:
            began = time.process_time()
            kept.parent.mkdir(exist_ok=True)
            truth |= on_all_data(network, missing)
            kept.write_text(json.dumps(truth))
            print(f"{network.name}: on all data {time.process_time() - began:.0f} s", flush=True)
        kept_of = {name: truth[name] for name in names}
        about = {"name": network.name, "m": options.examples, "truth": kept_of}
        file.write_text(json.dumps({**about, "readings": found}))


def coverage(networks: list[dict[str, Any]], name: str) -> float:
    """Share of readings within two errors of the value on all data."""
    within = [
        abs(value - network["truth"][name]) <= 2 * error + _ROUNDING * abs(value)
        for network in networks
        for value, error in (reading[name] for reading in network["readings"])
    ]
    return statistics.fmean(within)


def flips(networks: list[dict[str, Any]], name: str, apart: float = 0.0) -> float:
    """Share of pairs of networks and pairs of seeds in which the two seeds order the networks differently.

    Only of networks whose values on all data differ by more than a share `apart` of the larger.
    """
    found = []
    for a, b in itertools.combinations(networks, 2):
        true = sorted((abs(a["truth"][name]), abs(b["truth"][name])))
        if true[1] - true[0] <= apart * true[1] and apart:
            continue
        orders = [
            (x[name][0] > y[name][0]) - (x[name][0] < y[name][0])
            for x, y in zip(a["readings"], b["readings"], strict=True)
        ]
        found += [one != other for one, other in itertools.combinations(orders, 2)]
    return statistics.fmean(found) if found else math.nan


def table(folder: Path) -> str:
    networks = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    lines = [
        f"{len(networks)} networks ({', '.join(n['name'] for n in networks)}), m = {networks[0]['m']}, "
        f"{len(networks[0]['readings'])} seeds",
        "",
        "| measure | coverage | worst network | flips | flips if > 10 % apart | rms deviation / value | "
        "error / rms deviation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in STOCHASTIC:
        if not all(name in n["truth"] for n in networks):
            continue
        relative, ratio = [], []
        for n in networks:
            values = [reading[name] for reading in n["readings"]]
            rms = math.sqrt(statistics.fmean((value - n["truth"][name]) ** 2 for value, _ in values))
            relative.append(rms / abs(n["truth"][name]) if n["truth"][name] else 0.0)
            ratio.append(
                statistics.fmean(error for _, error in values) / rms
                if rms > _ROUNDING * abs(n["truth"][name])
                else math.nan
            )
        ratios = [r for r in ratio if not math.isnan(r)]
        lines.append(
            f"| {name} | {coverage(networks, name):.0%} | {min(coverage([n], name) for n in networks):.0%} | "
            f"{flips(networks, name):.1%} | {flips(networks, name, 0.1):.1%} | "
            f"{statistics.median(relative):.3f} | "
            f"{statistics.median(ratios) if ratios else math.nan:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["collect", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", default=",".join(map(str, range(len(NETWORKS)))))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--measures", default="")
    parser.add_argument("--fresh", type=int, default=0)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--same-examples", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "collect":
        collect(options.folder, [int(number) for number in options.networks.split(",")], options)
    else:
        print(table(options.folder))


if __name__ == "__main__":
    main()
