"""`genbench leaderboard`: boards from records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genbench.cli.common import common_options
from genbench.cli.execution import Execution, local_execution_options
from genbench.display.tables import print_json

if TYPE_CHECKING:
    from genbench.leaderboard.build import Folders

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


def _folders(boards: Path, records: Path | None, site: Path | None = None) -> Folders:
    """Of a checkout's own boards, what ships with genbench is made from the same records."""
    from genbench.leaderboard.build import Folders
    from genbench.records.provenance import CHECKOUT
    from genbench.records.references import REFERENCES

    own = records is None and boards.resolve() == (CHECKOUT / "leaderboards").resolve()
    return Folders(boards, records or boards / "records", REFERENCES if own else None, site)


_full_option = click.option(
    "--full",
    is_flag=True,
    help="Compute all scores of all records anew, not only of a few; may take minutes.",
)


@click.group()
def leaderboard() -> None:
    """Make and check the leaderboards."""


@leaderboard.command()
@_folder_options
@click.option(
    "--site",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the web site, which is made where this is given.",
)
@_full_option
@common_options
def build(records: Path | None, to: Path, site: Path | None, full: bool, as_json: bool) -> None:
    """Make tables, and the web site, from the records.

    Every record is validated first, as by `check`; the same records give the same bytes.
    """
    from genbench.leaderboard.build import build as build_boards

    made = build_boards(_folders(to, records, site), full=full)
    size = sum(map(len, made.site.values()))
    if as_json:
        pages = [f"{site}/{name}" for name in made.site]
        print_json({"files": sorted([*(f"{to}/{name}" for name in made.boards), *pages]), "site_bytes": size})
        return
    click.echo(f"{len(made.boards)} files in {to}")
    if site is not None:
        click.echo(f"the site has {size / 1e6:.1f} MB: {site / 'index.html'}")
    else:
        click.echo("--site DIR makes the web site too", err=True)


@leaderboard.command()
@_folder_options
@_full_option
@common_options
def check(records: Path | None, to: Path, full: bool, as_json: bool) -> int:
    """Fail if the boards are not what the records give.

    Exit code 1 and one sentence for every file that is stale, missing or was edited by hand. Sign-errors are
    computed anew from all readings; intervals, p-values and the other scores from those of two records of one
    suite, drawn anew each time, unless --full is given.
    """
    from genbench.leaderboard.build import stale

    problems = stale(_folders(to, records), full=full)
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


@leaderboard.command()
@click.argument("plugin", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_folder_options
@click.option("--suite", "-s", "suites", multiple=True, help="Whose board.  [default: all with records]")
@click.option(
    "--submission",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Records that .github/submission.py made, to spare two thirds of expensive readings.",
)
@click.option(
    "--seed", type=int, help="Of the networks on which expensive measures are read again.  [default: drawn]"
)
@click.option(
    "--challenge",
    "challenged",
    multiple=True,
    metavar="SUITE",
    help="Also challenge its measures on fresh networks of this suite, and keep what comes of it.",
)
@click.option("--audit", "audited", is_flag=True, help="Also audit its measures, and keep what comes of it.")
@local_execution_options
@common_options
def accept(
    plugin: Path,
    records: Path | None,
    to: Path,
    suites: tuple[str, ...],
    submission: Path | None,
    seed: int | None,
    challenged: tuple[str, ...],
    audited: bool,
    execution: Execution,
    as_json: bool,
) -> None:
    """Read the measures of a plugin, then build the boards with their rows.

    PLUGIN is its folder, as plugins/genbench-mymeasure: names, versions and the hash of the source come from
    there. Nothing of it is built or installed; its code runs in sealed processes alone. Records in
    --submission are compared with what the source gives, and refused if they differ.
    """
    from genbench.leaderboard.build import build as build_boards
    from genbench.leaderboard.submission import accept as accept_plugin

    folders = _folders(to, records)
    accepted = accept_plugin(
        plugin,
        folders,
        suites=suites,
        submission=submission,
        seed=seed,
        challenged=challenged,
        audited=audited,
        quiet=as_json,
        **execution.settle(),
    )
    build_boards(folders)
    if as_json:
        print_json({"accepted": accepted})
        return
    for name in accepted:
        click.echo(f"accepted {name}")


@leaderboard.command()
@click.argument("plugins", type=click.Path(path_type=Path, exists=True, file_okay=False), default="plugins")
@_folder_options
@common_options
def pending(plugins: Path, records: Path | None, to: Path, as_json: bool) -> None:
    """Plugins of a folder whose rows are missing, or are of other source.

    None of their code runs. `accept` makes the rows.
    """
    from genbench.leaderboard.submission import pending as pending_plugins

    found = pending_plugins(plugins, _folders(to, records))
    if as_json:
        print_json({"pending": list(map(str, found))})
        return
    for folder in found:
        click.echo(folder)


@leaderboard.command()
@click.option("--measure", "-m", required=True, metavar="NAME|FILE.py[:FUNCTION]", help="What to challenge.")
@click.option("--suite", "-s", default="nin-fashion", show_default=True, help="Of whose networks.")
@click.option("--networks", type=click.IntRange(min=2), metavar="N", help="About as many fresh ones.")
@click.option("--seed", type=click.IntRange(min=0), help="Of all that is drawn.  [default: drawn]")
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the fresh networks here, for other measures with the same seed.",
)
@_folder_options
@local_execution_options
@common_options
def challenge(
    measure: str,
    suite: str,
    networks: int | None,
    seed: int | None,
    store: Path | None,
    records: Path | None,
    to: Path,
    execution: Execution,
    as_json: bool,
) -> int:
    """Read a measure on networks that nobody has published.

    Some of the suite's networks are trained anew, on seeds drawn just now. A measure that does worse on them
    than chance explains, or whose reading changes when only evidence within its reach does, is suspect: exit
    code 1. What came of a measure on the board is kept in the boards' folder `trust`.
    """
    import random
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from msgspec import to_builtins

    from genbench.challenge.execute import challenge as challenge_measure
    from genbench.leaderboard.verify import remember_challenge
    from genbench.plugin.registry import find_measure
    from genbench.records.provenance import plugin_record
    from genbench.records.validate import read_record
    from genbench.report.progress import cell_progress

    folders, how = _folders(to, records), execution.settle()
    drawn = random.SystemRandom().randrange(2**31) if seed is None else seed
    found = {}
    with ExitStack() as stack:
        folder = store or Path(stack.enter_context(TemporaryDirectory(prefix="genbench-challenge-")))
        progress = stack.enter_context(cell_progress(quiet=as_json))
        for entry in find_measure(measure):
            name = entry.item.name
            found[name] = challenge_measure(
                entry, suite, folder, progress, seed=drawn, networks=networks, **how
            )
            path = folders.records / suite / f"{name}.json"
            if path.exists() and (record := read_record(path)).plugin == plugin_record(entry):
                remember_challenge(folders.trust, record, found[name])
    if as_json:
        print_json({"suite": suite, "measures": to_builtins(found)})
    else:
        for name, one in found.items():
            click.echo(f"{name}: {'passed' if one.passed else 'SUSPECT'} (seed {drawn})")
            for sentence in one.sentences():
                click.echo(f"  {sentence}")
    return 0 if all(one.passed for one in found.values()) else 1


@leaderboard.command()
@_folder_options
@click.option("--suite", "-s", default="mini", show_default=True, help="Whose records to verify.")
@click.option(
    "--sample", type=click.IntRange(min=0), default=5, show_default=True, help="Readings to recompute."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draw.")
@click.option(
    "--slowest", type=float, metavar="SECONDS", help="Leave out readings that took longer than this."
)
@click.option(
    "--check", "checked", multiple=True, metavar="MEASURE", help="Also run the conformance kit on it."
)
@local_execution_options
@common_options
def verify(
    records: Path | None,
    to: Path,
    suite: str,
    sample: int,
    seed: int,
    slowest: float | None,
    checked: tuple[str, ...],
    execution: Execution,
    as_json: bool,
) -> int:
    """Recompute random readings and compare.

    What agrees is remembered in the boards' folder `trust`; build the boards again to show it. Exit code 1 if
    a reading differs by more than the tolerance or a measure fails its conformance checks.
    """
    from msgspec import to_builtins

    from genbench.engine.guard import Limits
    from genbench.leaderboard.verify import check_conformance, remember, suite_records, verify_sample

    folders = _folders(to, records)
    how = execution.settle()
    found = suite_records(folders.records, suite)
    agreements = (
        verify_sample(found, sample, seed=seed, slowest=slowest or float("inf"), quiet=as_json, **how)
        if sample
        else []
    )
    kit = {name: check_conformance(name, Limits(60.0, how["limits"].memory)) for name in checked}
    remember(folders.trust, found, agreements, kit)
    good = all(one.agrees for one in agreements) and all(entry.passed for entry in kit.values())
    if as_json:
        rows = [
            {
                "measure": one.measure, "subject": one.subject, "recorded": one.recorded, "found": one.found,
                "same_bits": one.same_bits, "agrees": one.agrees, "tolerance": one.tolerance,
            }
            for one in agreements
        ]  # fmt: skip
        print_json({"agrees": good, "readings": rows, "checked": to_builtins(kit)})
        return 0 if good else 1
    for one in agreements:
        verdict = "to the bit" if one.same_bits else f"differs by {one.difference:.1e}"
        click.echo(f"{one.measure} on {one.subject}: {verdict}")
    for name, entry in kit.items():
        click.echo(f"{name}: {'passed' if entry.passed else 'FAILED'} {entry.checks} conformance checks")
    click.echo("verified" if good else "NOT verified")
    return 0 if good else 1
