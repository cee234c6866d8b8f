"""Pages of the manual that are made from the program: commands, measures, the schema of records.

mkdocs calls `on_files` before it reads the pages.
"""

from __future__ import annotations

import json
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["cli_page", "measures_page", "on_files", "records_page"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, content in {
        "reference/cli.md": cli_page(),
        "reference/measures.md": measures_page(),
        "reference/records.md": records_page(),
    }.items():
        files.append(File.generated(config, name, content=content))
    return files


def cli_page() -> str:
    """Every command with its words and options, as `--help` has them."""
    from genbench.cli import main_group as main

    root = click.Context(main, info_name="genbench")
    lines = ["# Command line", "", f"{_first(main)} Every command takes `--json` and `--debug`.", ""]
    lines += ["| command | |", "| --- | --- |"]
    found = list(_commands(main, root))
    lines += [f"| [`{c.command_path}`](#{_anchor(c)}) | {_first(command)} |" for command, c in found]
    for command, context in found:
        lines += ["", f"## `{context.command_path}` {{ #{_anchor(context)} }}", "", *_paragraphs(command), ""]
        lines += ["```text", context.get_usage(), "```", ""]
        rows = [_row(parameter, context) for parameter in command.params]
        shown = [row for row in rows if row is not None]
        if shown:
            lines += ["| | |", "| --- | --- |", *shown]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, context: click.Context) -> Any:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, own)
        else:
            yield command, own


def _anchor(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _first(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _paragraphs(command: click.Command) -> list[str]:
    parts = [" ".join(part.split()) for part in (command.help or "").replace("\b", "").split("\n\n")]
    return ["\n\n".join(part for part in parts if part)]


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    if not isinstance(parameter, click.Option):
        return None
    record = parameter.get_help_record(context)
    if record is None:
        return None
    words, about = (text.replace("|", "\\|").replace("<", "&lt;") for text in record)
    return (
        f"| `{record[0].replace('|', '¦')}` | {about} |" if "|" in record[0] else f"| `{words}` | {about} |"
    )


_NOISE = (
    "Expensive ones draw noise and look at a part of the training set; two standard errors hold the value on "
    "all of it in some nine cases of ten, and a reading that its error cannot tell from 0 says so."
)


def measures_page() -> str:
    """Every built-in measure with its formula, by category."""
    from genbench.plugin.registry import BUILT_IN, load_registry

    entries = [e for e in load_registry().measures.values() if e.source.kind == BUILT_IN]
    lines = [
        "# Measures",
        "",
        f"The {len(entries)} measures that come with genbench. C is the reading. {_NOISE}",
        "",
    ]
    for category in dict.fromkeys(entry.item.category for entry in entries):
        lines += [f"## {category}", ""]
        for entry in (e for e in entries if e.item.category == category):
            item = entry.item
            lines += [f"### `{item.name}`", "", *_about(item)]
            facts = [
                f"higher means {item.higher_means}" if getattr(item, "higher_means", "") else "",
                f"needs {', '.join(sorted(item.needs))}" if item.needs else "",
                f"cost {item.cost}" if getattr(item, "cost", "") else "",
                f"paper {item.paper}" if item.paper else "",
                f"version {item.version}",
            ]
            lines += ["", " · ".join(fact for fact in facts if fact), ""]
    return "\n".join(lines)


def _about(item: Any) -> list[str]:
    """Its docstring: sentences as they are, formulas, which are indented, as blocks."""
    import inspect

    text = inspect.getdoc(item.function) or item.summary
    lines, inside = [], False
    for line in text.splitlines():
        formula = line.startswith("    ")
        if formula and not inside:
            lines += ["", "```text"]
        elif inside and not formula and line.strip():
            lines += ["```", ""]
        inside = formula or (inside and not line.strip())
        lines.append(line[4:] if formula else line.replace("<", "&lt;"))
    return [*lines, "```"] if inside else lines


def records_page() -> str:
    """The JSON schema of a record."""
    from genbench.records.schema import record_schema

    schema = json.dumps(record_schema(), indent=2, ensure_ascii=False)
    return (
        "# Records\n\nA record holds one measure on one suite: its readings, scores and provenance. "
        "`genbench run --records DIR` writes it, `genbench leaderboard build` makes boards of them, and "
        "`genbench schema` prints this schema.\n\n```json\n" + schema + "\n```\n"
    )
