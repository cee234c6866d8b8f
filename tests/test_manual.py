"""The manual as a site: it builds without a warning, and all its links lead on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"reference/cli.md", "reference/measures.md", "reference/records.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
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


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | GENERATED
