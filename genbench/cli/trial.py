"""`genbench try`: the author's loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.api.suites import DEFAULT_SUITE
from genbench.cli.common import common_options, store_option
from genbench.cli.names import complete_measures
from genbench.display.tables import Shown, print_json, print_table
from genbench.errors import UserError, described

if TYPE_CHECKING:
    from genbench.api.suites import LoadedSuite
    from genbench.api.trial import Trial
    from genbench.plugin.contract import Measure
    from genbench.plugin.registry import Entry
    from genbench.suites.pages import Pages

__all__ = ["try_"]


@click.command("try")
@click.argument("spec", metavar="NAME|FILE.py[:FUNCTION]", shell_complete=complete_measures)
@click.option(
    "--network", "names", multiple=True, metavar="NAME",
    help="Read this one, as `genbench networks` names it, or its end.  [default: the smallest]",
)  # fmt: skip
@click.option(
    "--few", type=click.IntRange(min=1), metavar="N",
    help="Read the N smallest networks and show readings against truth.",
)  # fmt: skip
@click.option("--pdb", is_flag=True, help="Enter the debugger where the measure raises.")
@click.option("--watch", is_flag=True, help="Do it again whenever the file changes, until Ctrl-C.")
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE.png|.pdf|.svg",
    help="Also draw readings against truth.",
)  # fmt: skip
@click.option(
    "--suite", "-s", default=DEFAULT_SUITE, show_default=True, metavar="NAME|FILE.toml",
    help="Whose networks.",
)  # fmt: skip
@store_option
@common_options
def try_(
    spec: str,
    names: tuple[str, ...],
    few: int | None,
    pdb: bool,
    watch: bool,
    picture: Path | None,
    suite: str,
    store: Path,
    as_json: bool,
) -> int:
    """Try a measure on a network, in this process.

    What the measure prints is shown, an error with its traceback, and breakpoint() in its file stops there.
    No guard and no limits, and nothing is kept but the network; `genbench run` is for results.
    """
    from genbench.api.suites import load_suite
    from genbench.api.trial import file_mark, smallest_networks, wait_for_change

    if names and few:
        raise UserError("--network and --few both say which networks to read; give one of them")
    if picture is not None and picture.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--picture {picture}: give a file that ends in .png, .pdf or .svg")
    file = _file(spec)
    if watch and file is None:
        raise UserError(f"--watch looks at a file; {spec!r} is the name of a measure")
    loaded = load_suite(suite, store=store)
    networks = [loaded.find(name) for name in names] or smallest_networks(loaded, few or 1)
    while True:
        read = file_mark(file) if file is not None else (0, 0)
        code = _once(spec, loaded, networks, picture, pdb=pdb, as_json=as_json)
        if not watch or file is None:
            return code
        click.echo(f"waiting for {file} to change; Ctrl-C ends it", err=True)
        sys.stdout.flush()
        wait_for_change(file, read)


def _file(spec: str) -> Path | None:
    path, found, rest = spec.partition(".py")
    return Path(f"{path}.py") if found and (not rest or rest.startswith(":")) else None


def _once(
    spec: str,
    loaded: LoadedSuite,
    networks: list[str],
    picture: Path | None,
    *,
    pdb: bool,
    as_json: bool,
) -> int:
    from genbench.api.trial import try_measures
    from genbench.engine.cells import Status

    entries = _entries(spec)
    if entries is None:
        return 1
    trials: list[Trial] = []
    for trial in try_measures(entries, loaded, networks, _debug if pdb else lambda problem: None):
        trials.append(trial)
        sys.stdout.flush()
        if trial.trace and not as_json:
            click.echo(f"\n{trial.measure} on {trial.network}:\n{trial.trace}", err=True)
    if as_json:
        print_json([_record(trial) for trial in trials])
    else:
        _show(trials, entries, loaded, picture)
    fine = (Status.OK, Status.NOT_APPLICABLE)
    return 0 if all(trial.status in fine for trial in trials) else 1


def _entries(spec: str) -> list[Entry[Measure]] | None:
    """The measures; None if the file cannot be imported, once it was shown why."""
    from genbench.api.trial import authors_traceback
    from genbench.plugin.registry import find_measure_here

    try:
        return find_measure_here(spec)
    except UserError as problem:
        cause, file = problem.__cause__, _file(spec)
        if cause is None or file is None:
            raise
        click.echo(authors_traceback(cause, file.resolve()), err=True)
        click.echo(f"genbench: {file} cannot be imported: {described(cause)}", err=True)
        return None


def _debug(problem: BaseException) -> None:
    import pdb

    pdb.post_mortem(problem.__traceback__)


def _show(
    trials: list[Trial], entries: list[Entry[Measure]], loaded: LoadedSuite, picture: Path | None
) -> None:
    several = len({trial.network for trial in trials}) > 1
    # Truths take a second to read, which one network alone is not worth.
    pages = _pages(loaded) if several or picture is not None else None
    rows = [_row(trial, pages) for trial in trials]
    optional = [name for name in ("±", "truth", "why") if any(row.get(name) for row in rows)]
    columns = ["measure", "network", "reading", "±", "truth", "status", "seconds", "MB", "why"]
    columns = [name for name in columns if name in optional or name not in ("±", "truth", "why")]
    right = ["reading", "±", "truth", "seconds", "MB"]
    print_table(columns, rows, title=f"tried on {loaded.suite.title}", right=right)
    for trial in trials:
        if trial.reading is not None and trial.reading.layers:
            layers = [
                {"layer": name, "value": f"{value:.6g}"} for name, value in trial.reading.layers.items()
            ]
            print_table(
                ["layer", "value"], layers, title=f"{trial.measure} of {trial.network}", right=["value"]
            )
    if pages is not None:
        for entry in entries:
            _show_scatter(entry.item, [t for t in trials if t.measure == entry.item.name], pages, picture)


def _pages(loaded: LoadedSuite) -> Pages:
    from genbench.suites.result import Judged

    return loaded.evidence.pages(Judged([]))


def _row(trial: Trial, pages: Pages | None) -> dict[str, Shown]:
    found = trial.reading
    truth = None if pages is None else pages.truth(trial.network)
    return {
        "measure": trial.measure,
        "network": trial.network,
        "reading": "" if found is None else f"{found:.6g}",
        "±": "" if found is None or found.standard_error is None else f"{found.standard_error:.2g}",
        "truth": "" if truth is None else f"{truth:.3f}",
        "status": str(trial.status),
        "seconds": "" if found is None else f"{found.seconds + found.shared_seconds:.2g}",
        "MB": "" if found is None else f"{found.peak_bytes / 2**20:.0f}",
        "why": trial.reason,
    }


def _show_scatter(measure: Measure, trials: list[Trial], pages: Pages, picture: Path | None) -> None:
    from genbench.api.here import THIS_PROCESS
    from genbench.display.terminal_scatter import terminal_scatter
    from genbench.engine.cells import Outcome, Status
    from genbench.suites.result import MeasureResult

    values = {t.network: float(t.reading) for t in trials if t.reading is not None}
    outcomes = {name: Outcome(Status.OK, result={"value": value}) for name, value in values.items()}
    panels = pages.panels(MeasureResult(measure.info, THIS_PROCESS, outcomes))
    if len(values) < 2 or not any(panel.points for panel in panels):
        return
    axis = f"{measure.name} (higher should mean {measure.higher_means})"
    for panel in panels:
        click.echo("\n".join(terminal_scatter(axis, panel)))
    if picture is not None:
        from genbench.display.scatter import reading_scatter

        place = picture.with_stem(f"{picture.stem}-{measure.name}") if picture.exists() else picture
        reading_scatter(axis, panels).savefig(place, facecolor="white")
        click.echo(f"picture: {place}")


def _record(trial: Trial) -> dict[str, object]:
    found = trial.reading
    return {
        "measure": trial.measure,
        "network": trial.network,
        "status": str(trial.status),
        "value": None if found is None else float(found),
        "detail": {} if found is None else found.detail(),
        "seconds": None if found is None else found.seconds,
        "shared_seconds": None if found is None else found.shared_seconds,
        "peak_bytes": None if found is None else found.peak_bytes,
        "reason": trial.reason,
        "traceback": trial.trace,
    }
