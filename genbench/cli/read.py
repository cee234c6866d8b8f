"""`genbench read`: measures on a network of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from genbench.cli.common import common_options, debugging, store_option
from genbench.cli.execution import Execution, local_execution_options
from genbench.cli.names import complete_measures
from genbench.display.names import reading_note
from genbench.display.tables import print_json, print_table
from genbench.errors import UserError

if TYPE_CHECKING:
    from genbench.engine.cells import Outcome


@click.command()
@click.argument("network", metavar="FILE.py:FUNCTION|BACKBONE")
@click.option(
    "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
    help="A measure by name, or from a file; may be repeated.", shell_complete=complete_measures,
)  # fmt: skip
@click.option("--all", "all_measures", is_flag=True, help="Every registered measure.")
@click.option("--seed", type=int, default=0, show_default=True, help="For measures that draw random numbers.")
@click.option("--dataset", metavar="NAME", help="What a BACKBONE gets a linear head for, as folder:DIR.")
@click.option(
    "--images",
    type=click.IntRange(min=2),
    metavar="N",
    help="Training images of the data set.  [default: all]",
)
@local_execution_options
@store_option
@common_options
def read(
    network: str,
    dataset: str | None,
    images: int | None,
    specs: tuple[str, ...],
    all_measures: bool,
    seed: int,
    execution: Execution,
    store: Path,
    as_json: bool,
) -> int:
    """Read measures off a network of your own.

    FUNCTION takes nothing and returns genbench.Subject.from_module(model, initial=initial, data=(x, y)).
    BACKBONE is a pretrained network by name, as timm:resnet18, read with a linear head that is fitted to the
    training images of --dataset. What was read is kept: the same command goes on after an interruption.
    """
    from genbench.engine.cells import Status
    from genbench.plugin.registry import find_measure, load_registry
    from genbench.report.read_progress import read_progress
    from genbench.runs.own import read_network

    path, function = _builder(network, dataset, images, store)
    if not specs and not all_measures:
        raise UserError("say what to read: --measure NAME, --measure ./file.py, or --all")
    entries = [entry for spec in dict.fromkeys(specs) for entry in find_measure(spec)]
    if all_measures:
        named = {entry.item.name for entry in entries}
        entries += [e for e in load_registry().measures.values() if e.item.name not in named]
    how = execution.settle()
    with read_progress(quiet=as_json or len(entries) <= _FEW) as progress:
        found = read_network(path, function, entries, store, progress, seed=seed, **how)
    if debugging():
        from genbench.report.outputs import output_blocks

        for block in output_blocks((name, network, outcome) for name, outcome in found.items()):
            click.echo(block, err=True)
    rows = [_row(name, outcome) for name, outcome in found.items()]
    if as_json:
        print_json(rows)
    else:
        _show(rows, network)
    sys.stdout.flush()
    fine = (Status.OK, Status.NOT_APPLICABLE)
    return 0 if all(row.status in fine for row in rows) else 1


def _builder(network: str, dataset: str | None, images: int | None, store: Path) -> tuple[Path, str]:
    """The file and the function in it that give the network."""
    path, colon, function = network.rpartition(":")
    if dataset is not None:
        from genbench.api.named import write_builder

        if path.endswith(".py"):
            raise UserError(f"--dataset is for a network by name; {network} brings its own data")
        return write_builder(store, network, dataset, images), "build"
    if colon and not path.endswith(".py") and "/" not in path and not path.startswith("."):
        raise UserError(f"{network!r} needs a --dataset, as --dataset folder:DIR; or write ./mynet.py:build")
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise UserError(f"{network!r} does not name a function of a file; write ./mynet.py:build")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}; give the path of the Python file that builds your network")
    return Path(path), function


class _Row(Struct, frozen=True, kw_only=True):
    """A measure, as `--json` has it."""

    measure: str
    value: float | None
    standard_error: float | None
    samples: int | None
    layers: dict[str, float]
    status: str
    stored: bool
    seconds: float
    peak_bytes: int
    device: str
    threads: int
    reason: str


def _show(rows: list[_Row], title: str) -> None:
    shown = [
        {
            "measure": row.measure,
            "value": "" if row.value is None else f"{row.value:.6g}",
            "±": f"{row.standard_error:.2g}" if row.standard_error is not None else "",
            "status": row.status,
            "seconds": f"{row.seconds:.2g}",
            "reason": row.reason,
        }
        for row in rows
    ]
    errors = ["±"] if any(row["±"] for row in shown) else []
    reasons = ["reason"] if any(row["reason"] for row in shown) else []
    columns = ["measure", "value", *errors, "status", "seconds", *reasons]
    print_table(columns, shown, right=["value", "±", "seconds"], title=title)
    if len(rows) <= _FEW:
        for row in rows:
            if row.layers:
                layers = [{"layer": name, "value": f"{value:.6g}"} for name, value in row.layers.items()]
                print_table(["layer", "value"], layers, right=["value"], title=f"{row.measure} by layer")


_FEW = 3
"""Up to so many measures, their layers are shown too; `--json` always has them."""


def _row(name: str, outcome: Outcome) -> _Row:
    detail = outcome.result.get("detail", {})
    return _Row(
        measure=name,
        value=outcome.value,
        standard_error=detail.get("standard_error"),
        samples=detail.get("samples"),
        layers=detail.get("layers", {}),
        status=str(outcome.status),
        stored=not outcome.computed,
        seconds=outcome.cost.seconds + outcome.cost.shared_seconds,
        peak_bytes=outcome.cost.peak_bytes,
        device=outcome.cost.device,
        threads=outcome.cost.threads,
        reason=reading_note(outcome),
    )
