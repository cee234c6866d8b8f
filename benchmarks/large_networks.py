"""Every built-in measure on one large network: seconds and memory, read under the limits of `genbench read`.

    python benchmarks/large_networks.py read resnet18 --side 224 -m 200 --classes 1000 --to resnet18-224.jsonl
    python benchmarks/large_networks.py table resnet18-224.jsonl vit_small_patch16_224-224.jsonl

A line is written for each measure as it ends; the same command goes on from there. Seconds are processor
time, since a network takes long and machines are shared: of the measure's own code, and of the shared parts
that it used, whether they were computed for it or before. `--timeout` is by the clock on the wall.

The network has random weights, drawn from the seed; its initial weights are another draw. Batch norms have
the statistics of 40 images. Images are random and smooth. The head is shifted to give every class the same
mean logit on them, and labels are what the network answers, but for a tenth, which are random: it is right as
often as a trained network, so that searches for the noise that it bears have something to find. (With
`--short`, of 20 classes at random.)
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import psutil
import torch
from torch import Tensor, nn

import genbench
from genbench.cli.common import parse_memory
from genbench.engine import taking
from genbench.engine.cells import Cell, Limits, Outcome, Status
from genbench.engine.compute import Compute
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.runs.own import read_network
from genbench.subject import (
    gradient_noise,
    gradients,
    hessian,
    information,
    nngp,
    noise,
    parts,
    responses,
    sigma,
    transformations,
)
from genbench.subject.fitting import fitting
from genbench.subject.inputs import Inputs
from genbench.zoo.weights import import_library

WANTED = "GENBENCH_LARGE_NETWORK"
"""Environment variable that tells `build`, which runs in another process, what to build."""
WRONG = 0.1
"""Share of the labels that are random."""
BATCH, SOME = 20, 40
"""Images in a pass, and those that statistics of batch norm and the mean logits are taken from."""
FEW: dict[ModuleType, dict[str, Any]] = {
    sigma: {"_GLANCE": 16, "_LEAST": 2, "_MOST": 2, "_LOOK_DRAWS": 2, "_ROUNDS": 1},
    noise: {"_DRAWS": 2, "_ISOTROPIC_DRAWS": 2},
    gradients: {"_BATCHES": 1, "_SCORED": 32, "_AT_INPUT": 32},
    gradient_noise: {"_MEAN": 32, "_SQUARED": 8},
    information: {"_EXAMPLES": 16},
    responses: {"_POINTS": 3, "_ROWS": 32, "_MIDPOINTS": 32},
    transformations: {"_POINTS": 2, "_EXAMPLES": 32},
    nngp: {"_NETWORKS": 4, "_FEATURES": 40, "_LEAST_EXAMPLES": 40},
}
"""What `--short` repeats less often. At 224 pixels no more examples than these go through a network at once,
so that the largest batches are in it, and what is kept from one to the next is as large as ever."""


def build() -> genbench.Subject:
    """The subject that `WANTED` asks for."""
    clock = SimpleNamespace(perf_counter=time.process_time)  # of this process, which workers are forked from
    for module in (taking, parts):
        setattr(module, "time", clock)  # noqa: B010
    wanted = json.loads(os.environ[WANTED])
    generator = torch.Generator("cpu").manual_seed(wanted["seed"])
    inputs = Inputs(images(wanted["m"], wanted["side"], generator), prepared)
    final, initial = (network(wanted, inputs, wanted["seed"] + number) for number in range(2))
    random = torch.randint(wanted["classes"], (wanted["m"],), generator=generator)
    wrong = torch.rand(wanted["m"], generator=generator) < WRONG
    answers = random % 20 if wanted["short"] else answered(final, inputs)
    labels = torch.where(wrong, random, answers)
    trace = {"gradient_variance": torch.ones(1)}  # so that the measure that is its mean is read too
    subject = genbench.Subject.from_module(final, initial=initial, data=(inputs, labels), trace=trace)
    if wanted["short"]:
        for changed, values in FEW.items():
            vars(changed).update(values)
        # Two micro-batches.
        few = 2 * fitting(subject._network, hessian._FEWEST, hessian._COPIES)
        vars(hessian).update(_PASS=1, _FEWEST=min(hessian._FEWEST, few))
    return subject


def answered(model: nn.Module, inputs: Inputs) -> Tensor:
    """The class that the network finds."""
    with torch.no_grad():
        return torch.cat([model(x).argmax(1) for x in inputs.split(BATCH)])


def images(m: int, side: int, generator: torch.Generator) -> Tensor:
    """Bytes (m, 3, side, side): 4 × 4 random colours, and what lies between them."""
    colours = torch.rand(m, 3, 4, 4, generator=generator)
    parts = [nn.functional.interpolate(some, side, mode="bilinear") for some in colours.split(BATCH)]
    return torch.cat([(255 * part).to(torch.uint8) for part in parts])


def prepared(raw: Tensor) -> Tensor:
    """As a network takes them."""
    return (raw.float() / 255 - 0.5) / 0.25


def network(wanted: dict[str, Any], inputs: Inputs, seed: int) -> nn.Module:
    """timm's network with weights that the seed draws."""
    torch.manual_seed(seed)
    # Residual branches that start at zero would have no gradients.
    options = {"zero_init_last": False} if "resnet" in wanted["name"] else {}
    timm: Any = import_library("timm")
    model: Any = timm.create_model(wanted["name"], num_classes=wanted["classes"], **options)
    if wanted["small_stem"]:
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # the mean over all batches
    some = list(inputs.chosen(torch.arange(SOME)).split(BATCH))
    with torch.no_grad():
        for x in some:
            model.train()(x)
        logits = torch.cat([model.eval()(x) for x in some])
        model.get_classifier().bias -= logits.mean(0)
    module: nn.Module = model
    return module


class Lines:
    """Writes what became of each measure into a file, as it ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = 0.0

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        """The network is built, and no measure is read."""
        self._before = processor_seconds()

    def started(self, cell: Cell) -> None:
        """All of a trip start together: nothing to say."""

    def note(self, text: str) -> None:
        """To whoever watches."""
        click.echo(text, err=True)

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """A line for the file and one for whoever watches."""
        now, cost = processor_seconds(), outcome.cost
        measured = outcome.status is Status.OK  # else `seconds` are by the clock on the wall
        row = {
            "measure": cell.label,
            "status": str(outcome.status),
            "reason": outcome.reason,
            "value": outcome.value,
            "own_seconds": cost.seconds if measured else None,
            "shared_seconds": cost.shared_seconds if measured else None,
            "took_seconds": now - self._before,
            "peak_bytes": cost.peak_bytes,
            "threads": cost.threads,
        }
        self._before = now
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        click.echo(f"{cell.label}: {outcome.status}, {row['took_seconds']:.1f} s {outcome.reason}", err=True)


def processor_seconds() -> float:
    """Of all processes that this one started, and of those that they started."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


@click.group()
def main() -> None:
    """Seconds and memory of all built-in measures on a large network."""


@main.command()
@click.argument("name")
@click.option("--side", default=224, show_default=True, help="Pixels of an image's side.")
@click.option("-m", "m", default=200, show_default=True, help="Training images.")
@click.option("--classes", default=1000, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--memory", default="4G", show_default=True)
@click.option("--timeout", default=3000.0, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--small-stem", is_flag=True, help="Of a ResNet: 3 × 3 and no pooling, as for 32 pixels.")
@click.option("--short", is_flag=True, help="Few draws of each sort: for the memory, not for the seconds.")
@click.option("--measure", "only", multiple=True, help="Not all, but these; may be repeated.")
@click.option("--to", "file", type=click.Path(path_type=Path), required=True)
def read(
    name: str, side: int, m: int, classes: int, seed: int, memory: str, timeout: float, threads: int,
    small_stem: bool, short: bool, only: tuple[str, ...], file: Path,
) -> None:  # fmt: skip
    """Read the measures of timm's network NAME that the file does not have."""
    known = {row["measure"] for row in rows(file)} if file.exists() else set()
    entries = [entry for entry in load_registry().measures.values() if entry.source.kind == BUILT_IN]
    left = [e for e in entries if e.item.name not in known and (not only or e.item.name in only)]
    wanted = {"name": name, "side": side, "m": m, "classes": classes, "seed": seed}
    os.environ[WANTED] = json.dumps({**wanted, "small_stem": small_stem, "short": short})
    limits = Limits(timeout, parse_memory(memory), Compute("cpu", threads))
    with tempfile.TemporaryDirectory() as store:
        here = Path(__file__).resolve()
        read_network(here, "build", left, Path(store), Lines(file), seed=seed, jobs=1, limits=limits)


@main.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
def table(files: tuple[Path, ...]) -> None:
    """Markdown: seconds (own and shared) and peak gigabytes of every measure, a pair of columns a file."""
    found = {file.stem: {row["measure"]: row for row in rows(file)} for file in files}
    print("| measure |" + "".join(f" {name}, s | GB |" for name in found))
    print("| --- |" + " ---: | ---: |" * len(found))
    for measure in dict.fromkeys(name for by_name in found.values() for name in by_name):
        print(f"| {measure} |" + "".join(shown(by_name.get(measure)) for by_name in found.values()))
    print("| **most** |" + "".join(shown(largest(by_name)) for by_name in found.values()))
    whole = (sum(row["took_seconds"] for row in by_name.values()) for by_name in found.values())
    print("| **all together** |" + "".join(f" {seconds:,.0f} | |" for seconds in whole))


def rows(file: Path) -> list[dict[str, Any]]:
    """What was read so far."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def largest(by_name: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The most that any measure took, of either."""
    fine = [row for row in by_name.values() if row["status"] == Status.OK]
    slowest = max(row["own_seconds"] + row["shared_seconds"] for row in fine)
    peak = max(row["peak_bytes"] for row in by_name.values())
    return {"status": Status.OK, "own_seconds": slowest, "shared_seconds": 0.0, "peak_bytes": peak}


def shown(row: dict[str, Any] | None) -> str:
    """Two cells."""
    if row is None:
        return " | |"
    gigabytes = f"{row['peak_bytes'] / 2**30:.2f}"
    if row["status"] != Status.OK:
        return f" {row['status'].replace('_', ' ')} | {gigabytes} |"
    return f" {row['own_seconds'] + row['shared_seconds']:.1f} | {gigabytes} |"


if __name__ == "__main__":
    main()
