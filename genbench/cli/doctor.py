"""`genbench doctor`: is this machine fit, and if not, what to do."""

from __future__ import annotations

from pathlib import Path

import click

from genbench.cli.common import common_options, store_option
from genbench.display.tables import print_json, print_table


@click.command()
@store_option
@common_options
def doctor(store: Path, as_json: bool) -> int:
    """Look at this machine, packages, plugins and store."""
    from genbench.cli.diagnosis import examine

    findings = list(examine(store))
    if as_json:
        print_json([{"what": f.what, "status": f.status, "detail": f.detail} for f in findings])
    else:
        rows = [{"what": f.what, "status": f.status, "detail": f.detail} for f in findings]
        print_table(["what", "status", "detail"], rows)
    problems = [f for f in findings if f.status == "problem"]
    if not as_json:
        click.echo("all well" if not problems else f"{len(problems)} problem(s) found")
    return 1 if problems else 0
