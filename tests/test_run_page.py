"""The HTML page of a run: its numbers, its safety, that it needs nothing from outside."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import Run, command, in_process

from genbench.display.templates import write_page
from genbench.errors import UserError
from genbench.scoring.practical import PracticalScore
from genbench.scoring.ranking import tied_ranks

pytestmark = pytest.mark.xdist_group("quick_store")  # one worker builds that store for all

VOID = {"meta", "br", "link", "img", "input", "hr"}
HOSTILE = '''
import genbench


@genbench.measure(category="<b>bold</b>", needs={"weights"}, higher_means="better", paper="<i>5</i>")
def hostile(subject):
    """Sum of squares <script>alert("summary")</script> & "more"."""
    if sum(w.numel() for w in subject.weights()) == 14568:  # mini-efficientnet:b1
        raise genbench.NotApplicable("<script>alert('reason')</script>")
    return -sum(w.square().sum().item() for w in subject.weights())
'''


class Page(HTMLParser):
    """What a browser would make of a page: elements, visible text, tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def rows(self, *columns: str) -> list[dict[str, str]]:
        """The rows of the first table with these columns."""
        for table in self.tables:
            header = [cell.strip() for cell in table[0]]
            if set(columns) <= set(header):
                return [{k: v.strip() for k, v in zip(header, row, strict=False)} for row in table[1:]]
        raise AssertionError(f"no table has the columns {columns}")


@pytest.fixture(scope="module")
def reported(quick_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A page about `params` and about a measure that tries to break it, and the run as JSON."""
    folder = tmp_path_factory.mktemp("reported")
    shutil.copytree(quick_store, folder / "store")
    (folder / "hostile.py").write_text(HOSTILE)
    arguments = [
        "run",
        "-s",
        "mini-quick",
        "-m",
        "params",
        "-m",
        "./hostile.py",
        "--store",
        "store",
        "--json",
    ]
    done = in_process(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["report"] == "store/reports/mini-quick.html"
    return folder / document["report"], document


@pytest.fixture(scope="module")
def page(reported: tuple[Path, dict[str, Any]]) -> Page:
    return Page(reported[0].read_text(encoding="utf-8"))


def test_the_page_asks_nobody_for_anything(reported: tuple[Path, dict[str, Any]], page: Page) -> None:
    text = reported[0].read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base"}
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"<{tag} {name}>"
            if name in ("src", "href", "xlink:href"):
                assert str(value).startswith(("#", "data:image/png;base64,")), value
    assert all(found.startswith("url(#") for found in re.findall(r"url\([^)]*", text))


def test_what_a_plugin_says_is_text(reported: tuple[Path, dict[str, Any]], page: Page) -> None:
    text = reported[0].read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(" in text
    assert "<b>bold" not in text
    assert "<i>5" not in text
    reasons = {row["network"]: row["why"] for row in page.rows("network", "why")}
    assert reasons["mini-efficientnet:b1"] == "<script>alert('reason')</script>"


def test_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(a["href"]) for tag, a in page.elements if tag == "a"]
    assert {link[1:] for link in links} <= set(ids)


def test_the_headline_table_has_the_numbers_of_the_run(
    reported: tuple[Path, dict[str, Any]], page: Page
) -> None:
    rows = {row["measure"]: row for row in page.rows("rank", "sign-error")}
    assert set(rows) == {m["name"] for m in reported[1]["measures"]}
    for measure in reported[1]["measures"]:
        row, score = rows[measure["name"]], measure["sign_error"]
        assert row["sign-error"] == f"{score['value']:.3f}"
        chance = measure["questions"]["chance"]
        assert row["95 %"] == f"{chance['low']:.3f} – {chance['high']:.3f}"
        assert int(row["pairs"]) == score["pairs"]
        assert int(row["drop-ped"]) == score["dropped"]
        means = [p for p in score["parts"] if p["statistic"] == "mean"]
        robust = [p["value"] for p in means if p["slice"] == "robustness"]
        assert row["robust-ness"] == f"{np.mean(robust):.3f}"
    assert rows["baseline_constant"]["ties"] == "6"
    assert rows["hostile"]["drop-ped"] == "1"
    assert rows["hostile"]["readings"] == "5 ok 1 n/a"
    values = [float(row["sign-error"]) for row in page.rows("rank", "sign-error")]
    assert values == sorted(values)


def test_readings_and_their_truth_are_listed(reported: tuple[Path, dict[str, Any]], page: Page) -> None:
    (params,) = [m for m in reported[1]["measures"] if m["name"] == "params"]
    rows = {row["network"]: row for row in page.rows("network", "reading")}
    for reading in params["readings"]:
        row = rows[reading["subject"]]
        assert float(row["reading"]) == pytest.approx(reading["value"], rel=1e-5)
        truth = reported[1]["evidence"][reading["subject"]]
        assert row["error,robustness"] == f"{truth['robustness']['mean']:.3f}"
        assert row["error,zero-shot"] == f"{truth['zero_shot']['mean']:.3f}"


def test_every_sentence_about_a_failure_is_true(reported: tuple[Path, dict[str, Any]]) -> None:
    """Also for a measure of which higher means better, whose readings enter with the other sign."""
    evidence = reported[1]["evidence"]
    page = Page(reported[0].read_text(encoding="utf-8"))
    tables = [t for t in page.tables if t[0][:3] == ["slice", "family", "what happened"]]
    told = 0
    for table in tables:
        for slice_, family, sentence, _ in table[1:]:
            found = re.match(
                r"(\S+) errs less than (\S+) \((.*) against (.*)\), but "
                r"(\S+) reads (\S+) for \S+ and (\S+) for",
                sentence,
            )
            assert found, sentence
            better, worse, low, high, name, one, other = found.groups()
            (measure,) = [m for m in reported[1]["measures"] if m["name"] == name]
            value = {r["subject"]: r["value"] for r in measure["readings"]}
            key = slice_.replace("-", "_")
            errors = [evidence[f"{family}:{model}"][key]["mean"] for model in (better, worse)]
            assert errors[0] < errors[1]
            assert [low, high] == [f"{error:.3f}" for error in errors]
            readings = [value[f"{family}:{model}"] for model in (better, worse)]
            assert [float(one), float(other)] == pytest.approx(readings, rel=1e-3)
            assert (readings[0] > readings[1]) == (measure["higher_means"] == "worse")
            told += 1
    assert told >= 5


def test_each_family_has_its_figures_and_its_trade_off(
    reported: tuple[Path, dict[str, Any]], page: Page
) -> None:
    drawn = {a.get("aria-label") for tag, a in page.elements if tag == "svg"}
    for family, point in reported[1]["trade_off"].items():
        for what in ("marginals", "mean error", "mean kappa"):
            assert f"{what} of {family}" in drawn
        rows = [
            ["SSIM, lower bound", f"{point['ssim']:.3f}"],
            ["diversity bound", f"{point['diversity_bound']:.3f}"],
        ]
        assert any(all(row in table for row in rows) for table in page.tables)
    for kind in ("robustness", "zero-shot"):
        assert f"readings of params against the truth, {kind}" in drawn


def test_the_page_says_how_to_repeat_the_run(reported: tuple[Path, dict[str, Any]]) -> None:
    text = reported[0].read_text(encoding="utf-8")
    (shown,) = re.findall(r"<pre>(.*)</pre>", text)
    words = shlex.split(shown)
    hostile = reported[0].parents[2] / "hostile.py"
    assert words[:4] == ["genbench", "run", "--suite", "mini-quick"]
    assert words[4:8] == ["--measure", "params", "--measure", f"{hostile}:hostile"]
    again = subprocess.run(
        command(*words[1:]), cwd=reported[0].parents[2], capture_output=True, text=True, timeout=300
    )
    assert again.returncode == 0, again.stderr
    assert "nothing to compute" in again.stderr
    assert again.stdout.splitlines()[-1] == "report: store/reports/mini-quick.html"
    assert reported[0].read_text(encoding="utf-8") == text, "the same run gives the same page"


def test_a_population_has_a_page_too(run: Run, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)
    done = run(
        "run", "-m", "path_norm", "-s", "tiny.toml", "--store", "store", "--report", "mine.html", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["report"] == "mine.html"
    page = Page((tmp_path / "mine.html").read_text(encoding="utf-8"))
    rows = {row["measure"]: row for row in page.rows("measure", "sign-error")}
    scores = {m["name"]: m["sign_error"] for m in document["measures"]}
    assert set(rows) == set(scores)
    for name, score in scores.items():
        expected = "–" if score is None else f"{score['value']:.3f}"
        assert rows[name]["sign-error"] == expected
    gaps = {row["network"].partition(" (")[0]: row["gap"] for row in page.rows("network", "gap")}
    assert gaps == {name: f"{found['gap']:.3f}" for name, found in document["evidence"].items()}
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".mine")] == [], "no draft is left"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("report.txt", "give a file that ends in .html"),
        ("no/report.html", "there is no folder no"),
        ("folder.html", "cannot be written"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_run(
    run: Run, tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    done = run("run", "-s", "mini-quick", "-m", "params", "--report", place)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert says in line
    assert not (tmp_path / ".genbench").exists()


def test_help_needs_no_figures() -> None:
    code = (
        "import sys, genbench.cli.run, genbench.cli.cube, genbench.cli.tradeoff; "
        "print(sorted({'matplotlib', 'pandas', 'torch', 'jinja2', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- ranks -------------------------------------------------------------------------------------------


def score(value: float, draw: Callable[[], np.ndarray]) -> PracticalScore:
    return PracticalScore(value, value, value, None, 1, 0, [], [], draw())


def test_a_rank_counts_the_measures_that_are_surely_better() -> None:
    noise = np.linspace(-0.05, 0.05, 1000)
    best = score(0.10, lambda: 0.10 + noise)
    close = score(0.12, lambda: 0.12 - noise)  # the difference runs from −0.12 to 0.08
    paired = score(0.13, lambda: 0.13 + noise)  # always 0.03 above the best
    worst = score(0.60, lambda: 0.60 + noise)
    assert tied_ranks([worst, None, best, close, paired]) == [4, None, 1, 1, 2]
    assert tied_ranks([]) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "its disk is full; free some space and run"), (errno.EROFS, "Read-only file system")],
)
def test_a_page_that_cannot_be_written_says_what_to_do(tmp_path: Path, number: int, words: str) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with (
        mock.patch("genbench.display.templates.write_atomically", refused),
        pytest.raises(UserError, match=f"page.html cannot be written: {words}"),
    ):
        write_page(tmp_path / "page.html", "text")
