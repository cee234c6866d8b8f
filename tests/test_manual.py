"""The manual: it builds without a warning, and what it tells readers to type works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import Run, environment

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (?P<name>[\w-]+\.py)\n")


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of every block of a page, in its order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(found["language"], found["content"]) for found in BLOCK.finditer(text)]


def shell(line: str, folder: Path, run: Run) -> None:
    """One command as a reader types it."""
    words = shlex.split(line)
    target = None
    if ">" in words:
        place = words.index(">")
        target, words = folder / words[place + 1], words[:place]
    if words[0] == "python":
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    else:
        assert words[0] == "genbench", line
        done = run(*words[1:], cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    if target is not None:
        target.write_text(done.stdout)


def test_the_manual_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    settings = {**environment(), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    made = (tmp_path / "site" / "reference" / "measures" / "index.html").read_text()
    assert "pacbayes_mag_flatness" in made
    assert (
        "genbench leaderboard check" in (tmp_path / "site" / "reference" / "cli" / "index.html").read_text()
    )


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_what_a_page_tells_readers_to_type_works(page: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "leaderboards").symlink_to(ROOT / "leaderboards")
    for language, content in blocks(page):
        if language == "sh":
            for line in content.splitlines():
                shell(line, tmp_path, run)
        elif language == "python" and (named := FILE.match(content)):
            (tmp_path / named["name"]).write_text(content)
        elif language == "python":
            (tmp_path / "block.py").write_text(content)
            shell("python block.py", tmp_path, run)
        elif language == "toml":
            tomllib.loads(content)
        else:
            assert language == "text", f"{page}: nobody tests a block of {language!r}"


def test_commands_that_cannot_be_run_here_exist() -> None:
    """In blocks of text: they need a GPU, a hub or days. Their words are at least commands."""
    from genbench.cli import _COMMANDS

    for page in PAGES:
        for language, content in blocks(page):
            if language == "text":
                for line in re.findall(r"^genbench (\S+)", content, re.MULTILINE):
                    assert line in _COMMANDS, f"{page}: {line}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    generated = {"reference/cli.md", "reference/measures.md", "reference/records.md"}
    assert listed == set(PAGES) | generated
