"""JSON documents and tables on standard output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

__all__ = [
    "Shown",
    "Table",
    "fitting_columns",
    "print_json",
    "print_table",
    "print_text",
    "readable_columns",
    "show",
]

_LINE = 100
"""Characters of a line that is comfortable to read."""

_TOGETHER = re.compile(r"\d [–%](?: \d)?")
"""Intervals and percentages."""
_HELD = "\N{NO-BREAK SPACE}"

Shown = str | int | float | None
"""What stands in a row below the name of a column."""


@dataclass(frozen=True)
class Table:
    """Rows by column name, for whoever shows them."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Shown]]
    title: str = ""
    right: Sequence[str] = ()
    """Columns of numbers."""


def show(parts: Iterable[Table | str]) -> None:
    """Print tables and sentences one after the other."""
    for part in parts:
        if isinstance(part, str):
            print_text(part)
        else:
            print_table(part.columns, part.rows, title=part.title, right=part.right)


def print_text(text: str, *, err: bool = False) -> None:
    """Sentences: broken at words on a terminal, never within an interval, and in one line elsewhere."""
    from shutil import get_terminal_size
    from textwrap import fill

    if not (sys.stderr if err else sys.stdout).isatty():
        click.echo(text, err=err)
        return
    room = min(get_terminal_size().columns, _LINE)
    held = _TOGETHER.sub(lambda found: found[0].replace(" ", _HELD), text)
    filled = fill(held, room, break_on_hyphens=False, break_long_words=False)
    click.echo(filled.replace(_HELD, " "), err=err)


def print_json(document: object) -> None:
    """Print a JSON document: a struct, or what holds some; values that JSON does not know become text."""
    import msgspec
    from msgspec import Struct, to_builtins

    def number(value: object) -> object:
        return float(value) if isinstance(value, float) else str(value)

    def plain(value: object) -> object:
        return to_builtins(value, enc_hook=number) if isinstance(value, Struct) else str(value)

    # With an indent json encodes in Python, ten times as slowly.
    compact = json.dumps(document, ensure_ascii=False, default=plain)
    try:
        click.echo(msgspec.json.format(compact, indent=2))
    except msgspec.DecodeError:  # NaN, which Python alone writes and reads
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=plain))


def print_table(
    columns: Sequence[str], rows: Iterable[Mapping[str, Shown]], *, title: str = "", right: Sequence[str] = ()
) -> None:
    """A rich table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        if title:
            click.echo(f"# {title}")
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(" ".join(str(row.get(column, "")).split()) for column in columns))
        return
    rows = list(rows)
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD
    )
    for column in columns:
        # Numbers are narrow: their headings break in two lines rather than make them wide.
        number = column in right
        heading = column.replace(" ", "\n") if number and column[0].isalpha() else column
        cells = [str(row.get(column, "")) for row in rows]
        # The first column names the row: a name is never broken over lines. Nor are numbers and intervals.
        whole = number or (column == columns[0] and not any(" " in cell for cell in cells))
        table.add_column(
            heading,
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=whole,
            min_width=None if whole else _least(column, cells),
        )
    for row in rows:
        table.add_row(*(Text(str(row.get(column, "")), style=_style(row, column)) for column in columns))
    Console().print(table)


_NARROWEST = 6
"""Characters that a column of text keeps, however little room there is."""
_LONGEST_WORD = 10
"""Characters of a heading's word that is not broken either."""
_READABLE = 40
"""Characters of a column of sentences that can be read."""
_STYLES = {
    "ok": "green", "ready": "green", "passed": "green", "finding": "cyan", "note": "yellow",
    "not_applicable": "yellow", "missing": "yellow",
}  # fmt: skip


def _least(column: str, cells: Sequence[str]) -> int:
    word = min(max(map(len, column.split())) if column.strip() else 0, _LONGEST_WORD)
    return max(word, min(_NARROWEST, max(map(len, cells), default=0)))


def _style(row: Mapping[str, Shown], column: str) -> str:
    return _STYLES.get(str(row.get(column)), "red") if column == "status" else ""


def readable_columns(
    columns: Sequence[str], rows: Sequence[Mapping[str, Shown]], sentences: str, spared: Sequence[str]
) -> list[str]:
    """Columns beside which sentences can be read on this terminal; all of them elsewhere.

    Parameters
    ----------
    sentences : the column that holds them.
    spared : the columns that can be done without, first the one to go first.
    """
    from shutil import get_terminal_size

    chosen = list(columns)
    if not sys.stdout.isatty():
        return chosen
    for column in spared:
        widths = (max(len(name), *(len(str(row.get(name, ""))) for row in rows)) for name in chosen)
        others = sum(width + 3 for name, width in zip(chosen, widths, strict=True) if name != sentences)
        if get_terminal_size().columns - others - 3 >= _READABLE:
            break
        chosen.remove(column)
    return chosen


def fitting_columns(columns: Sequence[str], rows: Sequence[Mapping[str, Shown]]) -> list[str]:
    """The first columns that a terminal has room for without breaking lines; all of them elsewhere."""
    from shutil import get_terminal_size

    if not sys.stdout.isatty():
        return list(columns)
    room = get_terminal_size().columns
    chosen: list[str] = []
    for column in columns:
        heading = max(map(len, column.split(" ")))
        room -= 3 + max(heading, *(len(str(row.get(column, ""))) for row in rows))
        if room < 0 and len(chosen) > 1:
            break
        chosen.append(column)
    return chosen
