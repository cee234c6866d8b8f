"""README and docs: every block of Python runs, every command is one, every link leads on."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from conftest import environment

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> list[str]:
    """Lines that begin with `genbench`, in fences and in indented blocks, without their comments."""
    text = page.read_text(encoding="utf-8")
    shown = [
        line.strip() for part in (*blocks(page, "console"), *blocks(page, "sh")) for line in part.splitlines()
    ]
    plain = FENCE.sub("", text).replace("\\\n", " ")
    shown += [line.strip() for line in plain.splitlines() if line.startswith("    genbench ")]
    return [line for line in shown if line.startswith("genbench ")]


def test_there_is_something_to_look_at() -> None:
    assert len(PAGES) > 5
    assert sum(len(commands(page)) for page in PAGES) > 20
    assert sum(len(blocks(page, "python")) for page in PAGES) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one(page) -> None:
    """Its name and its options exist and its values are of their kind; names in capitals stand for others."""
    from genbench.cli import main_group

    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        words = words[: words.index(">")] if ">" in words else words
        command: click.Command = main_group
        context = click.Context(main_group, info_name="genbench")
        while isinstance(command, click.Group) and words:
            found = command.get_command(context, words[0])
            assert found is not None, line
            command, words = found, words[1:]
        try:
            command.make_context("genbench", list(words), parent=context)
        except click.exceptions.Exit:
            pass  # --help
        except click.ClickException as problem:
            raise AssertionError(f"{page.name}: {line}: {problem.format_message()}") from problem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_reference_names_what_there_is() -> None:
    from importlib import import_module

    names = re.findall(r"^::: (genbench\S+)$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute).__doc__, name


@pytest.mark.parametrize(
    "module", ["genbench.api.suites", "genbench.api.readings", "genbench.plugin.contract"]
)
def test_examples_in_docstrings_are_true(module, monkeypatch, tmp_path) -> None:
    import doctest
    from importlib import import_module

    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


def script(page: Path) -> str:
    """All Python of a page and, between, the commands of its consoles, in the order of the page."""
    parts = ["import os, subprocess, sys\n"]
    for kind, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            parts.append(text)
        elif kind == "console":
            for line in text.splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    call = [*words[1:]]
                    parts.append(
                        f"subprocess.run([sys.executable, '-m', 'genbench', *{call!r}], check=True)\n"
                    )
    return "\n".join(parts)


RUN = [ROOT / "README.md"]  # pages of the manual are run by test_manual


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> dict[str, str]:
    """One store for all pages, or each would wait for the same evidence."""
    store = tmp_path_factory.mktemp("documents") / "store"
    return {**environment(), "GENBENCH_STORE": str(store), "MPLBACKEND": "agg"}


@pytest.mark.slow
@pytest.mark.xdist_group("documents")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_block_runs(page, tmp_path, settings) -> None:
    """In one process a page, in an empty folder, as a reader would who types it all."""
    file = tmp_path / "page.py"
    file.write_text(script(page))
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]


NOTEBOOK = DOCS / "notebooks" / "first_measure.ipynb"


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_short() -> None:
    lines = [line for cell in code_of(NOTEBOOK) for line in cell.splitlines() if line.strip()]
    assert len(lines) <= 25


@pytest.mark.slow
@pytest.mark.xdist_group("documents")
def test_the_notebook_runs_and_every_result_has_a_view(tmp_path, settings) -> None:
    """Cell by cell; what a notebook shows of the last expression of each is made too."""
    text = "\n".join(
        [
            "import ast, json, sys",
            "names = {}",
            "for text in json.loads(sys.stdin.read()):",
            "    tree = ast.parse(text)",
            "    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None",
            "    exec(compile(tree, 'cell', 'exec'), names)",
            "    if last is not None:",
            "        value = eval(compile(ast.Expression(last.value), 'cell', 'eval'), names)",
            "        view = getattr(value, '_repr_html_', lambda: None)()",
            "        print(type(value).__name__, len(view or ''))",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", text], input=json.dumps(code_of(NOTEBOOK)), cwd=tmp_path, env=settings,
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    shown = dict(line.split() for line in done.stdout.splitlines())
    assert {"LoadedSuite", "Reading", "Run", "DataFrame", "Comparison", "Figure"} <= shown.keys()
    assert all(int(size) > 50 for name, size in shown.items() if name != "Figure")
