"""`genbench tradeoff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import print_json, print_table

if TYPE_CHECKING:
    import xarray as xr

    from genbench.testbed.tradeoff import TradeOff

_SUITE_OPTIONS = ("suite", "quick", "dataset", "backbones", "settings", "from_scratch", "pack")


@click.command()
@click.option(
    "--cube", type=click.Path(path_type=Path), metavar="FILE",
    help="Anyone's cube as netCDF (.nc) or CSV (.csv), instead of a suite's.",
)  # fmt: skip
@suite_options
@click.option(
    "--scales", type=click.Choice(["normalised", "squared", "released"]), default="normalised",
    show_default=True, help="Which scales the trade-off puts on its terms.",
)  # fmt: skip
@click.option(
    "--weights", default="1,1,1", show_default=True, metavar="L1,L2,L3",
    help="Weights of zero-shot, SSIM and model size; relative ones if normalised.",
)  # fmt: skip
@store_option
@execution_options
@common_options
def tradeoff(
    cube: Path | None,
    choice: SuiteChoice,
    scales: str,
    weights: str,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> int:
    """Find the trade-off point of a cube.

    The least degraded SSIM, the largest share of unseen classes and the model size at which error and kappa
    are still worth it (004 Eq. 4), solved with GEKKO and certified against brute force: of every family of a
    suite, whose cubes are computed where the store does not have them, or of one cube in a file.

    \b
    A CSV cube has one row per grid point and the columns
    ssim, zero_shot, weights, error_mean, error_sd, error_p10, kappa_mean, kappa_sd, kappa_p10.
    """
    from genbench.cli.cube import find_evidence
    from genbench.testbed.tradeoff import trade_off

    prices = _weights(weights)
    if cube is not None:
        _check_no_suite()
        cubes = _cube_in(cube)
    else:
        evidence = find_evidence(choice, store, execution, quiet=as_json)
        cubes = {name: family.cube for name, family in evidence.families().items()}
    results = {name: trade_off(data, scales, prices) for name, data in cubes.items()}
    if as_json:
        print_json([{"family": name, **to_builtins(result)} for name, result in results.items()])
    else:
        show(results)
    return 0 if all(result.certified for result in results.values()) else 1


def _check_no_suite() -> None:
    from genbench.errors import UserError

    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and option.name in _SUITE_OPTIONS:
            raise UserError(
                f"--cube and {option.opts[0]} exclude each other; give a file, or a suite to compute cubes of"
            )


def _cube_in(path: Path) -> dict[str, xr.Dataset]:
    from genbench.testbed.cube import read_cube

    data = read_cube(path)
    return {str(data.attrs.get("family", path.stem)): data}


def show(results: dict[str, TradeOff]) -> None:
    """The paper's table (004 Tables 2 and 3): one row per bound, one column per family."""
    from genbench.display.names import short_count

    rows: dict[str, dict[str, str]] = {}
    for family, result in results.items():
        cells = {
            "generalization bound": f"{result.generalization_bound:.3f}",
            "diversity bound": f"{result.diversity_bound:.3f}",
            "SSIM (lower bound)": f"{result.ssim:.3f}",
            "zero-shot (upper bound)": f"{result.zero_shot:.3f}",
            "model size": short_count(result.model_size),
            "objective": f"{result.objective:.6f}",
            "gap to brute force": f"{result.gap:+.1e}",
            "solver": result.solver,
        }
        for label, text in cells.items():
            rows.setdefault(label, {"trade-off point": label})[family] = text
    used = {f"{r.scales}, weights {','.join(f'{w:g}' for w in r.weights)}" for r in results.values()}
    print_table(
        ["trade-off point", *results], rows.values(), title="; ".join(sorted(used)), right=list(results)
    )
    for family, result in results.items():
        if result.reason:
            click.echo(f"{family}: solved with SciPy, because {result.reason}", err=True)
        if not result.certified:
            click.echo(f"{family}: not certified, a scan found {result.scanned:.6f}; do not use it", err=True)


def _weights(text: str) -> tuple[float, float, float]:
    from genbench.errors import UserError

    try:
        first, second, third = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--weights {text!r} is not three numbers; write 1,1,1") from None
    return first, second, third
