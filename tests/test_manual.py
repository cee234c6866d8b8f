"""The manual: it builds without a warning, and what its pages tell readers to type works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import environment

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (?P<name>[\w-]+\.py)\n")

READER = """
import contextlib, shlex, subprocess, sys
from pathlib import Path

def typed(line):
    words = shlex.split(line.split("  #")[0])
    target = sys.stdout
    if ">" in words:
        place = words.index(">")
        target, words = open(words[place + 1], "w"), words[:place]
    if words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], check=True)
        return
    assert words[0] == "genbench", line
    from genbench.cli import main
    try:
        with contextlib.redirect_stdout(target):
            main(words[1:])
    except SystemExit as end:
        assert end.code in (0, None), f"{line}: {end.code}"
    target.flush()
"""
"""A reader who types whatever a page says, in one session."""


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of every block of a page, in its order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(found["language"], found["content"]) for found in BLOCK.finditer(text)]


def session(page: str) -> str:
    parts = [READER]
    for language, content in blocks(page):
        if language in ("sh", "console"):
            parts += [f"typed({line!r})" for line in content.splitlines() if line]
        elif language == "python" and (named := FILE.match(content)):
            parts.append(f"Path({named['name']!r}).write_text({content!r})")
        elif language == "python":
            parts.append(content)
        elif language == "toml":
            tomllib.loads(content)
        else:
            assert language == "text", f"{page}: nobody tests a block of {language!r}"
    return "\n".join(parts)


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


@pytest.mark.parametrize("page", [page for page in PAGES if set(dict(blocks(page))) - {"text", "toml"}])
def test_what_a_page_tells_readers_to_type_works(page: str, tmp_path: Path) -> None:
    (tmp_path / "leaderboards").symlink_to(ROOT / "leaderboards")
    (tmp_path / "session.py").write_text(session(page))
    settings = {**environment(), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "session.py"],
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_cannot_be_run_here_is_at_least_a_command() -> None:
    """In blocks of text: they need a GPU, a hub or days."""
    from genbench.cli import _COMMANDS

    for page in PAGES:
        for language, content in blocks(page):
            if language == "toml":
                tomllib.loads(content)
            elif language == "text":
                for line in re.findall(r"^genbench (\S+)", content, re.MULTILINE):
                    assert line in _COMMANDS, f"{page}: {line}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    generated = {"reference/cli.md", "reference/measures.md", "reference/records.md"}
    assert listed == set(PAGES) | generated
