"""`genbench gc`, `genbench open` and `genbench completion`."""

from __future__ import annotations

from pathlib import Path

import click

from genbench.cli.common import common_options, store_option
from genbench.display.tables import Shown, print_json, print_table
from genbench.errors import UserError

__all__ = ["completion", "gc", "open_"]


@click.command()
@click.option("--delete", is_flag=True, help="Remove what can go.")
@click.option(
    "--what", multiple=True, metavar="SORT", help="Remove this sort, as the table names it; may be repeated."
)
@store_option
@common_options
def gc(delete: bool, what: tuple[str, ...], store: Path, as_json: bool) -> None:
    """Say what the store holds and what of it can go.

    Nothing is removed without --delete. What is gone is made again when a run asks for it.
    """
    from genbench.api.housekeeping import empty, look_through
    from genbench.engine.store import Store

    if what and not delete:
        raise UserError("--what says what to remove; give --delete too")
    if not (store / "genbench-store.json").is_file():
        raise UserError(f"there is no store {store}; name one with --store")
    with Store(store) as opened:
        shelves = look_through(opened)
        freed = empty(opened, shelves, what) if delete else 0
    records = [
        {"sort": one.name, "count": one.count, "bytes": one.bytes, "can go": one.can_go, "about": one.about}
        for one in shelves.values()
        if one.count
    ]
    if as_json:
        print_json({"store": str(store), "held": records, "freed": freed})
        return
    rows: list[dict[str, Shown]] = [
        {
            "sort": one.name,
            "count": one.count,
            "MB": f"{one.bytes / 2**20:.1f}",
            "can go": one.can_go,
            "about": one.about,
        }
        for one in shelves.values()
        if one.count
    ]
    print_table(["sort", "count", "MB", "can go", "about"], rows, title=str(store), right=["count", "MB"])
    if delete:
        click.echo(f"removed: {freed / 2**20:.1f} MB")
    elif any(one.count and one.can_go == "yes" for one in shelves.values()):
        click.echo("genbench gc --delete removes what can go")


@click.command("open")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--suite", "-s", metavar="NAME", help="The report of the last run of this suite.")
@click.option(
    "--site", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="The leaderboard site that `genbench leaderboard build --site DIR` made.",
)  # fmt: skip
@store_option
@common_options
def open_(file: Path | None, suite: str | None, site: Path | None, store: Path, as_json: bool) -> None:
    """Show a report or the site in the browser.

    Without anything said: the report of the last run. FILE is a page of your own, as --report wrote it.
    """
    import webbrowser

    if sum(one is not None for one in (file, suite, site)) > 1:
        raise UserError("FILE, --suite and --site each name a page; give one of them")
    page = file or _site(site) or _report(store, suite)
    if not page.is_file():
        raise UserError(f"there is no page {page}")
    shown = webbrowser.open(page.resolve().as_uri())
    if as_json:
        print_json({"page": str(page), "shown": shown})
    else:
        click.echo(f"{'opened' if shown else 'no browser here; the page is'} {page}")


def _site(folder: Path | None) -> Path | None:
    if folder is not None and not (folder / "index.html").is_file():
        raise UserError(
            f"there is no site in {folder}; `genbench leaderboard build --site {folder}` makes it"
        )
    return None if folder is None else folder / "index.html"


def _report(store: Path, suite: str | None) -> Path:
    """Of a suite's last run, its --quick one included; of all, the one that was written last."""
    pages = sorted(store.glob("reports/*.html"), key=lambda page: page.stat().st_mtime_ns)
    if suite is not None:
        names = (suite, f"{suite}--quick")
        pages = [page for page in pages if page.stem in names]
    if not pages:
        about = "" if suite is None else f" of {suite}"
        raise UserError(f"there is no report{about} in {store}; `genbench run` writes one")
    return pages[-1]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete genbench's commands, options and names.

    \b
    eval "$(genbench completion bash)"        in ~/.bashrc
    eval "$(genbench completion zsh)"         in ~/.zshrc
    genbench completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from genbench.cli import main_group

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main_group, {}, "genbench", "_GENBENCH_COMPLETE").source())
