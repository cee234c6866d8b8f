"""`genbench read`: measures on a network of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench.cli.common import common_options, parse_memory
from genbench.display.names import reading_note
from genbench.display.tables import print_json, print_table
from genbench.errors import UserError

if TYPE_CHECKING:
    from genbench.engine.cells import Outcome


@click.command()
@click.argument("network", metavar="FILE.py:FUNCTION")
@click.option(
    "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
    help="A measure by name, or from a file; may be repeated.",
)  # fmt: skip
@click.option("--all", "all_measures", is_flag=True, help="Every registered measure.")
@click.option("--seed", type=int, default=0, show_default=True, help="For measures that draw random numbers.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
    metavar="SECONDS", help="Time limit of one measure.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", help="Memory limit of one measure, as 4G.  [default: half the machine]"
)
@common_options
def read(
    network: str,
    specs: tuple[str, ...],
    all_measures: bool,
    seed: int,
    timeout: float,
    memory: str | None,
    as_json: bool,
) -> int:
    """Read measures off a network of your own.

    FUNCTION takes nothing and returns genbench.Subject.from_module(model, initial=initial, data=(x, y)).
    """
    from genbench.engine.cells import Status
    from genbench.engine.guard import Limits
    from genbench.engine.own import read_network
    from genbench.plugin.registry import find_measure, load_registry

    path, colon, function = network.rpartition(":")
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise UserError(f"{network!r} does not name a function of a file; write ./mynet.py:build")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}; give the path of the Python file that builds your network")
    if not specs and not all_measures:
        raise UserError("say what to read: --measure NAME, --measure ./file.py, or --all")
    entries = [entry for spec in dict.fromkeys(specs) for entry in find_measure(spec)]
    if all_measures:
        named = {entry.item.name for entry in entries}
        entries += [e for e in load_registry().measures.values() if e.item.name not in named]
    limits = Limits(timeout, parse_memory(memory))
    rows = []
    for name, outcome in read_network(Path(path), function, entries, limits, seed):
        rows.append(_row(name, outcome))
        if len(entries) > 3 and not as_json:
            click.echo(f"{len(rows)}/{len(entries)} {name}: {outcome.status}", err=True)
    if as_json:
        print_json(rows)
    else:
        _show(rows, network)
    sys.stdout.flush()
    fine = (Status.OK, Status.NOT_APPLICABLE)
    return 0 if all(row["status"] in fine for row in rows) else 1


def _show(rows: list[dict[str, Any]], title: str) -> None:
    shown = [
        {
            **row,
            "value": "" if row["value"] is None else f"{row['value']:.6g}",
            "±": f"{row['standard_error']:.2g}" if row["standard_error"] is not None else "",
            "seconds": f"{row['seconds']:.2g}",
        }
        for row in rows
    ]
    errors = ["±"] if any(row["±"] for row in shown) else []
    reasons = ["reason"] if any(row["reason"] for row in shown) else []
    columns = ["measure", "value", *errors, "status", "seconds", *reasons]
    print_table(columns, shown, right=["value", "±", "seconds"], title=title)
    if len(rows) <= _FEW:
        for row in rows:
            if row["layers"]:
                layers = [{"layer": name, "value": f"{value:.6g}"} for name, value in row["layers"].items()]
                print_table(["layer", "value"], layers, right=["value"], title=f"{row['measure']} by layer")


_FEW = 3
"""Up to so many measures, their layers are shown too; `--json` always has them."""


def _row(name: str, outcome: Outcome) -> dict[str, Any]:
    detail = outcome.result.get("detail", {})
    return {
        "measure": name,
        "value": outcome.value,
        "standard_error": detail.get("standard_error"),
        "samples": detail.get("samples"),
        "layers": detail.get("layers", {}),
        "status": str(outcome.status),
        "seconds": outcome.cost.seconds + outcome.cost.shared_seconds,
        "reason": reading_note(outcome),
    }
