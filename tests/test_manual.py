"""The manual as a site: it builds without a warning, and all its links lead on."""

from __future__ import annotations

import importlib.util
import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"reference/cli.md", "reference/measures.md", "reference/records.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make manual` does, with what the build had to complain about in `complaints.txt`."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("manual") / "site"
    said = folder.with_name("complaints.txt")
    handler = logging.FileHandler(said)
    handler.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        build(config)
    logging.getLogger("mkdocs").removeHandler(handler)
    handler.close()
    return folder


class _Page(HTMLParser):
    """Where a page can be entered, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def test_it_builds_without_a_warning(site: Path) -> None:
    assert site.with_name("complaints.txt").read_text() == ""
    assert "pacbayes_mag_flatness" in (site / "reference" / "measures" / "index.html").read_text()
    assert "genbench leaderboard check" in (site / "reference" / "cli" / "index.html").read_text()


def test_every_link_and_anchor_leads_on(site: Path) -> None:
    """All of them within the site; those that lead out are at least addresses of pages."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 20
    followed = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in ("https", "data"), link
                continue
            target = path if not parts.path else _place(site, path, unquote(parts.path))
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment and target in pages:
                followed += 1
                assert unquote(parts.fragment) in pages[target].anchors | {"__skip"}, f"{path}: {link}"
    assert followed > 100


def _place(site: Path, page: Path, link: str) -> Path:
    base = site if link.startswith("/") else page.parent
    target = Path(base, link.lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<h1 id="top"></h1><a href="./gone/#x"></a><a href="#top"></a>')
    page = _Page((tmp_path / "index.html").read_text())
    assert page.anchors == {"top"}
    places = {link: _place(tmp_path, tmp_path / "index.html", urlsplit(link).path) for link in page.links}
    assert {link: place.exists() for link, place in places.items()} == {"./gone/#x": False, "#top": True}


def imported(name: str) -> Any:
    """A module of the manual, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("sqrt(C / m)", "√(<i>C</i> / <i>m</i>)"),
        ("sum_i ||W_i||_F² / gamma²", "Σ<sub>i</sub> ‖<i>W</i><sub>i</sub>‖<sub>F</sub>² / <i>γ</i>²"),
        ("x^2 <= lambda_max", "<i>x</i><sup>2</sup> ≤ <i>λ</i><sub>max</sub>"),
        (
            "the network's path_norm_unnormalised, e.g. a w",
            "the network's path_norm_unnormalised, e.g. a <i>w</i>",
        ),
    ],
)
def test_formulas_are_typeset(plain: str, shown: str) -> None:
    assert imported("generate").typeset(plain) == shown


def test_blocks_of_formulas_are_typeset_and_other_blocks_are_not() -> None:
    """Where a and I are no words, unlike in sentences."""
    page = "It is\n\n```formula\np = (a + d) / N\na mean\n```\n\n```text\np = a\n```\n"
    assert imported("generate").on_page_markdown(page) == (
        'It is\n\n<div class="formula"><i>p</i> = (<i>a</i> + <i>d</i>) / <i>N</i><br>a mean</div>\n\n'
        "```text\np = a\n```\n"
    )


def test_each_paper_has_a_page_that_measures_lead_to(site: Path) -> None:
    from genbench.display.papers import PAPERS

    measures = (site / "reference" / "measures" / "index.html").read_text()
    overview = (DOCS / "explanation" / "papers.md").read_text()
    for number, paper in PAPERS.items():
        page = " ".join((DOCS / "explanation" / f"paper-{number}.md").read_text().split())
        assert page.startswith(f"# {number}: ")
        assert paper.title.lower() in page.lower()
        assert f"({paper.link})" in page
        assert f"(paper-{number}.md)" in overview
        assert f'href="../../explanation/paper-{number}/"' in measures


def test_parameters_have_the_types_of_their_annotations(site: Path) -> None:
    """Not what stands behind their colon, which is a sentence; and examples are code."""
    rewritten = imported("docstrings").rewritten
    text = "Do.\n\n>>> do(1)\n2\n\nParameters\n----------\none, two : what\n    they are.\n"
    assert rewritten(text).splitlines() == [
        "Do.", "", "", "```pycon", ">>> do(1)", "2", "```", "",
        "Parameters", "----------", "one, two", "    what", "    they are.",
    ]  # fmt: skip
    page = (site / "reference" / "python" / "index.html").read_text()
    assert "evidence to use, in place of the one" in page
    assert "<code>the evidence" not in page
    assert '<span class="gp">&gt;&gt;&gt; ' in page, "a prompt in a block of code, not a quotation"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | GENERATED
