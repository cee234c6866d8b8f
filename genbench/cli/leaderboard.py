"""`genbench leaderboard`: boards from records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from genbench.cli.common import common_options
from genbench.report.tables import print_json

F = TypeVar("F", bound=Callable[..., Any])


def _folder_options(function: F) -> F:
    for option in (
        click.option(
            "--to", type=click.Path(path_type=Path, file_okay=False), default=Path("leaderboards"),
            show_default=True, metavar="DIR", help="Folder of the boards.",
        ),
        click.option(
            "--records", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
            help="Folder of the records.  [default: records in the folder of the boards]",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group()
def leaderboard() -> None:
    """Make and check the leaderboards."""


@leaderboard.command()
@_folder_options
@common_options
def build(records: Path | None, to: Path, as_json: bool) -> None:
    """Make tables and the web site from the records.

    Every record is validated first; the same records give the same bytes.
    """
    from genbench.leaderboard.build import Folders
    from genbench.leaderboard.build import build as build_boards

    files = build_boards(Folders(to, records or to / "records"))
    site = sum(len(content) for name, content in files.items() if name.startswith("site/"))
    if as_json:
        print_json({"files": sorted(files), "site_bytes": site})
        return
    click.echo(f"{len(files)} files, the site has {site / 1e6:.1f} MB: {to / 'site' / 'index.html'}")


@leaderboard.command()
@_folder_options
@common_options
def check(records: Path | None, to: Path, as_json: bool) -> int:
    """Fail if the boards are not what the records give.

    Exit code 1 and one sentence for every file that is stale, missing or was edited by hand.
    """
    from genbench.leaderboard.build import Folders, stale

    problems = stale(Folders(to, records or to / "records"))
    if as_json:
        print_json({"problems": problems})
    else:
        for problem in problems:
            click.echo(problem, err=True)
        click.echo(
            f"{len(problems)} files differ; run `genbench leaderboard build`"
            if problems
            else "boards are up to date"
        )
    return 1 if problems else 0
