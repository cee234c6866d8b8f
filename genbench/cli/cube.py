"""`genbench cube`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import print_json

if TYPE_CHECKING:
    from genbench.suites.evidence import Evidence

__all__ = ["cube", "find_evidence"]


@click.command()
@suite_options
@store_option
@execution_options
@click.option("--full", is_flag=True, help="Show every grid point.")
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE.nc|.csv|.xlsx",
    help="Write the cubes; of several families, .nc and .csv give FILE-FAMILY.nc each.",
)  # fmt: skip
@click.option(
    "--figures", type=click.Path(path_type=Path), metavar="DIR",
    help="Write heat maps and marginals as PNG.",
)  # fmt: skip
@common_options
def cube(
    choice: SuiteChoice,
    store: Path,
    execution: Execution,
    full: bool,
    export: Path | None,
    figures: Path | None,
    as_json: bool,
) -> None:
    """Show the cubes of a testbed.

    Error and kappa over zero-shot share × SSIM × model size, one cube per family (004), with mean (M),
    standard deviation (SD) and 10th percentile (P10) over classes. Computes what the store does not have.
    """
    from genbench._version import __version__
    from genbench.testbed.cube_tables import (
        check_export,
        cube_record,
        export_cubes,
        show_cube,
        write_figures,
    )

    if export is not None:
        check_export(export)
    evidence = find_evidence(choice, store, execution, quiet=as_json)
    suite, pack, families = evidence.suite, evidence.pack, evidence.families()
    resolved = evidence.resolved()
    written = [] if export is None else export_cubes(families, export)
    written += [] if figures is None else write_figures(families, figures)
    if as_json:
        print_json(
            {
                "genbench": __version__,
                "suite": suite.name,
                "quick": suite.quick,
                "changes": dict(suite.changes),
                "pack": None if pack is None else pack.version,
                "store": str(store),
                "families": [cube_record(name, family, resolved) for name, family in families.items()],
                "written": [str(path) for path in written],
            }
        )
        return
    for name, family in families.items():
        show_cube(name, family, resolved, full=full)
    for path in written:
        click.echo(f"written: {path}")


def find_evidence(choice: SuiteChoice, store: Path, execution: Execution, *, quiet: bool) -> Evidence:
    """The evidence of the suite that the options choose; a `UserError` if it has no cubes."""
    from genbench.suites.kind import kind_of

    loaded = choice.open(store, execution)
    kind_of(loaded.suite).require_cubes(loaded.suite)
    return loaded.compute_evidence(quiet=quiet)
