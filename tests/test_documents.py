"""README and manual: every block and command runs as it stands, every notebook too, every link leads on."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from conftest import in_process
from reader import ROOT, RUN, Reader, blocks, cells, commands

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TYPED = [page for page in PAGES if {language for language, _ in blocks(page)} & {*RUN}]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")

read = pytest.mark.xdist_group("documents")
"""All readers share one store, so one worker has them all."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


OWN = DOCS / "howto" / "own-networks.md"


@read
@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in TYPED if page != OWN], ids=name)
def test_what_a_page_tells_readers_to_type_works(page: Path, tmp_path: Path, readers_store: Path) -> None:
    assert Reader(tmp_path, readers_store).follow(page) > 0


@read
@pytest.mark.slow
def test_the_example_of_a_collection_runs_at_once(tmp_path: Path, readers_store: Path) -> None:
    """As its page has it: `new --collection`, and a run, which found four environments."""
    reader = Reader(tmp_path, readers_store)
    assert reader.follow(OWN) == 1
    reader.type("genbench run --suite mynets/mynets.toml -m path_norm --json > run.json")
    answer = json.loads((tmp_path / "run.json").read_text())
    score = next(one for one in answer["measures"] if one["name"] == "path_norm")
    assert score["sign_error"]["available"] == 4
    assert all(reading["stored"] for reading in score["readings"])
    again = in_process("new", "--collection", "mynets", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_there_is_something_to_type() -> None:
    """Or the expressions that look for it have gone blind."""
    everything = [block for page in PAGES for block in blocks(page)]
    assert len(TYPED) > 10
    assert sum(language == "python" for language, _ in everything) > 10
    assert sum(len(commands(text)) for language, text in everything if language in ("sh", "console")) > 15
    fences = sum(page.read_text().count("\n```") for page in PAGES)
    assert fences == 2 * len(everything), "a block without a language, or one that does not end"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nobody_leaves_a_block_untested(page: Path) -> None:
    for language, content in blocks(page):
        if language == "toml":
            tomllib.loads(content)
        else:
            assert language in (*RUN, "text", "formula"), f"nobody tests a block of {language!r}"
    assert not re.search(r"^ {4}(genbench|python|make) ", page.read_text(), re.MULTILINE), "use a fence"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_one(page: Path) -> None:
    """Its name and its options exist and its values are of their kind: also of those that need a GPU, a hub
    or days, which stand in blocks of text."""
    from genbench.cli import main_group

    shown = [line for language, text in blocks(page) if language != "python" for line in commands(text)]
    inline = re.findall(r"`(genbench [^`]+)`", page.read_text())
    for line in shown + inline:
        words = shlex.split(line)
        if words[0] != "genbench" or "…" in line:
            continue
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        command: click.Command = main_group
        context = click.Context(main_group, info_name="genbench")
        while isinstance(command, click.Group) and words:
            found = command.get_command(context, words[0])
            assert found is not None, line
            command, words = found, words[1:]
        if line in inline and not words:
            continue  # the name of a command
        try:
            command.make_context("genbench", list(words), parent=context)
        except click.exceptions.Exit:
            pass  # --help
        except click.MissingParameter:
            assert line in inline, line  # a sentence may say `genbench score --worst 5` and no more
        except click.ClickException as problem:
            raise AssertionError(f"{line}: {problem.format_message()}") from problem


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_reference_names_what_there_is() -> None:
    from importlib import import_module

    names = re.findall(r"^::: (genbench\S+)$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE)
    assert len(names) > 10
    for one in names:
        module, _, attribute = one.rpartition(".")
        assert getattr(import_module(module), attribute).__doc__, one


@read
@pytest.mark.parametrize(
    "module", ["genbench.api.suites", "genbench.api.readings", "genbench.plugin.contract"]
)
def test_examples_in_docstrings_are_true(module, monkeypatch, tmp_path, readers_store) -> None:
    import doctest
    from importlib import import_module

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENBENCH_STORE", str(readers_store))
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


# -- notebooks ----------------------------------------------------------------------------------------------


def test_there_are_three_notebooks_without_results() -> None:
    """What cells gave is made by whoever runs them, not kept: it would be old one day."""
    assert len(NOTEBOOKS) == 3
    for notebook in NOTEBOOKS:
        document = json.loads(notebook.read_text())
        assert document["nbformat"] == 4
        for cell in document["cells"]:
            assert not cell.get("outputs"), notebook.name
            assert cell.get("execution_count") is None, notebook.name


@read
@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook", [one for one in NOTEBOOKS if one.stem != "first_measure"], ids=lambda path: path.stem
)
def test_a_notebook_runs_and_every_result_has_a_view(notebook: Path, tmp_path, readers_store) -> None:
    """Cell by cell; the first one is run by `test_wheel`, out of the installed package."""
    reader = Reader(tmp_path, readers_store)
    shown = [value for code in cells(notebook) if (value := reader.run_cell(code)) is not None]
    assert len(shown) >= 3
    for value in shown:
        view = getattr(value, "_repr_html_", None)
        assert type(value).__name__ == "Figure" or (view is not None and len(view()) > 50), value
    if notebook.stem == "four_questions":
        passes = dict(reader.names["found"].verdicts["passes"])
        said = ("insight", "settings", "narrowness", "nothing")
        assert [passes[one] for one in said] == ["chance size fit settings", "chance size fit", "chance", ""]


# -- how to cite it -----------------------------------------------------------------------------------------


def test_the_citation_fits_the_package_and_the_papers() -> None:
    import yaml

    from genbench.display.papers import PAPERS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    cited = {(one["title"], one["url"]) for one in citation["references"]}
    assert cited == {(paper.title, paper.link) for paper in PAPERS.values()}
    assert {*project["urls"].values()} == {paper.link for paper in PAPERS.values()}
