"""Pages of the manual that are made from the program: commands, measures, the schema of records.

mkdocs calls `on_files` before it reads the pages, and `on_page_markdown` with each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = [
    "cli_page",
    "formula",
    "measures_page",
    "on_files",
    "on_page_markdown",
    "records_page",
    "typeset",
]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, content in {
        "reference/cli.md": cli_page(),
        "reference/measures.md": measures_page(),
        "reference/records.md": records_page(),
    }.items():
        files.append(File.generated(config, name, content=content))
    return files


_FORMULA = re.compile(r"^```formula\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Blocks of formulas, which are plain text wherever else a page is read, as those of docstrings."""
    return _FORMULA.sub(lambda found: formula(found[1].splitlines()), markdown)


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
                _paper(item.paper) if item.paper else "",
                f"version {item.version}",
            ]
            shown = " · ".join(fact for fact in facts if fact)
            lines += ["", f'<p class="facts">{shown}</p>', ""]
    return "\n".join(lines)


def _about(item: Any) -> list[str]:
    """Its docstring, typeset: sentences as paragraphs, indented formulas as blocks."""
    import inspect

    text = inspect.getdoc(item.function) or item.summary
    lines: list[str] = []
    indented: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("    "):
            indented.append(line[4:])
            continue
        if indented:
            lines += ["", formula(indented), ""]
            indented = []
        lines.append(typeset(line))
    return lines


def _paper(reference: str) -> str:
    """What a measure says of its origin, with a link to the page of the paper if it is one of the five."""
    from genbench.display.papers import paper_of

    number, _, place = reference.partition(" ")
    if paper_of(reference)[0] is None:
        return f"paper {reference}"
    return f'<a href="../../explanation/paper-{number}/">paper {number}</a> {place}'.rstrip()


_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "kappa": "κ", "lambda": "λ", "mu": "μ",
    "omega": "ω", "rho": "ρ", "sigma": "σ", "tau": "τ", "theta": "θ", "chi": "χ", "psi": "ψ",
}  # fmt: skip
_SYMBOLS = [
    (re.compile(r"\|\|"), "‖"),
    (re.compile(r"\bsqrt\b"), "√"),
    (re.compile(r"\bsum(?=_[a-z])"), "Σ"),
    (re.compile(r"\bprod(?=_[a-z])"), "Π"),
    (re.compile(r"(?<=\S) \* (?=\S)"), " · "),
    (re.compile(r"&lt;= "), "≤ "),
    (re.compile(r">= "), "≥ "),
]
_NAMES = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(_GREEK)})(?![A-Za-z0-9])")
# Single letters that are no words: neither a nor I, nor of an abbreviation or a genitive.
_LETTER = re.compile(r"(?<![A-Za-z0-9_'’.`&-])([B-HJ-Zb-hj-zα-ωi](?![A-Za-z0-9'’`-]|\.[a-z]))")
_WORDS = "mean|max|min|noise|dl|dx|Var|I"
_BELOW = re.compile(rf"(</i>[⁰²]?|[‖ΣΠ]|\b(?:{_WORDS}))_([A-Za-z0-9]{{1,5}})(?![A-Za-z0-9_])")
_ABOVE = re.compile(r"\^(\w+|\([^()]*\)|\{[^}]*\})")


def typeset(text: str) -> str:
    """Formulas in a docstring as HTML: Greek letters, norms, roots, indices, and variables in italics."""
    text = text.replace("<", "&lt;")
    for pattern, symbol in _SYMBOLS:
        text = pattern.sub(symbol, text)
    text = _NAMES.sub(lambda found: _GREEK[found[0]], text)
    text = _LETTER.sub(r"<i>\1</i>", text)
    text = _BELOW.sub(lambda found: f"{found[1]}<sub>{_GREEK.get(found[2], found[2])}</sub>", text)
    return _ABOVE.sub(lambda found: f"<sup>{found[1].strip('(){}')}</sup>", text)


# In a formula a and I are no words, unless a word follows.
_NO_WORD = re.compile(r"(?<![\w<>/.])([aI])(?=[(+)·,²]| [+·=−])")


def formula(lines: Sequence[str]) -> str:
    """A block of formulas, a line each."""
    shown = (_NO_WORD.sub(r"<i>\1</i>", typeset(line)) for line in lines)
    return f'<div class="formula">{"<br>".join(shown)}</div>'


def records_page() -> str:
    """The JSON schema of a record."""
    from genbench.records.schema import record_schema

    schema = json.dumps(record_schema(), indent=2, ensure_ascii=False)
    return (
        "# Records\n\nA record holds one measure on one suite: its readings, scores and provenance. "
        "`genbench run --records DIR` writes it, `genbench leaderboard build` makes boards of them, and "
        "`genbench schema` prints this schema.\n\n```{ .json .wrapped }\n" + schema + "\n```\n"
    )
