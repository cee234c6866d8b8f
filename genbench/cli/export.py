"""`genbench export`: results for a paper."""

from __future__ import annotations

from pathlib import Path

import click

from genbench.cli.common import common_options
from genbench.display.tables import print_json


@click.command()
@click.option("--measure", "-m", required=True, metavar="NAME", help="Whose results.")
@click.option("--suite", "-s", default="mini", show_default=True, metavar="NAME", help="On which suite.")
@click.option("--to", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder to write.")
@click.option(
    "--records", type=click.Path(path_type=Path), default=Path("leaderboards/records"), show_default=True,
    metavar="DIR", help="Result records to take, as `genbench run --records DIR` writes them.",
)  # fmt: skip
@common_options
def export(measure: str, suite: str, to: Path, records: Path, as_json: bool) -> None:
    """Write a LaTeX table, figures and BibTeX for a paper.

    The table has the measure and the baselines, ranked among all records; beside it lie figures as PDF, the
    records themselves and the entries of the papers involved, and of a measure that was audited the table and
    the figures of its audit.
    """
    from genbench.errors import UserError
    from genbench.leaderboard.board import audits_beside, read_boards
    from genbench.leaderboard.export import export as export_kit

    # Before all records are validated, which takes a while.
    if not (records / suite).is_dir():
        raise UserError(f"{records} holds no records of suite {suite!r}")
    if not (records / suite / f"{measure}.json").is_file():
        raise UserError(f"{records / suite} holds no record of {measure!r}; run it with --records first")
    boards = read_boards(records, records.parent / "trust", only=suite, audits=audits_beside(records))
    files = export_kit(boards[0], measure, records, to)
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(f"wrote {file}")
