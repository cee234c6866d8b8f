"""`genbench tradeoff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench.cli.common import common_options
from genbench.report.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.testbed.tradeoff import TradeOff


@click.command()
@click.option(
    "--cube", type=click.Path(path_type=Path), required=True, metavar="FILE",
    help="A cube as netCDF (.nc) or CSV (.csv).",
)  # fmt: skip
@click.option(
    "--reading", type=click.Choice(["normalised", "squared", "released"]), default="normalised",
    show_default=True, help="Which scales the trade-off puts on its terms.",
)  # fmt: skip
@click.option(
    "--weights", default="1,1,1", show_default=True, metavar="L1,L2,L3",
    help="Weights of zero-shot, SSIM and model size; relative ones if normalised.",
)  # fmt: skip
@common_options
def tradeoff(cube: Path, reading: str, weights: str, as_json: bool) -> int:
    """Find the trade-off point of a cube.

    The least degraded SSIM, the largest share of unseen classes and the model size at which error and kappa
    are still worth it (004 Eq. 4), solved with GEKKO and certified against brute force.

    \b
    A CSV cube has one row per grid point and the columns
    ssim, zero_shot, weights, error_mean, error_sd, error_p10, kappa_mean, kappa_sd, kappa_p10.
    """
    from genbench.scoring.cube import read_cube
    from genbench.testbed.tradeoff import trade_off

    data = read_cube(cube)
    family = str(data.attrs.get("family", cube.stem))
    result = trade_off(data, reading, _weights(weights))
    if as_json:
        print_json([{"family": family, **result.record()}])
    else:
        show({family: result})
    return 0 if result.certified else 1


def show(results: dict[str, TradeOff]) -> None:
    """The paper's table (004 Tables 2 and 3): one row per bound, one column per family."""
    rows: dict[str, dict[str, Any]] = {}
    for family, result in results.items():
        cells = {
            "generalization bound": f"{result.generalization_bound:.3f}",
            "diversity bound": f"{result.diversity_bound:.3f}",
            "SSIM (lower bound)": f"{result.ssim:.3f}",
            "zero-shot (upper bound)": f"{result.zero_shot:.3f}",
            "model size": _size(result.model_size),
            "objective": f"{result.objective:.6f}",
            "gap to brute force": f"{result.gap:+.1e}",
            "solver": result.solver,
        }
        for label, text in cells.items():
            rows.setdefault(label, {"trade-off point": label})[family] = text
    readings = {f"{r.reading}, weights {','.join(f'{w:g}' for w in r.weights)}" for r in results.values()}
    print_table(
        ["trade-off point", *results], rows.values(), title="; ".join(sorted(readings)), right=list(results)
    )
    for family, result in results.items():
        if result.reason:
            click.echo(f"{family}: solved with SciPy, because {result.reason}", err=True)
        if not result.certified:
            click.echo(f"{family}: not certified, a scan found {result.scanned:.6f}; do not use it", err=True)


def _size(weights: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if weights >= scale:
            return f"{weights / scale:.3g}{unit}"
    return f"{weights:.0f}"


def _weights(text: str) -> tuple[float, float, float]:
    from genbench.errors import UserError

    try:
        first, second, third = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--weights {text!r} is not three numbers; write 1,1,1") from None
    return first, second, third
