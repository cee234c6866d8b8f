"""What a person sees of a run: their own measure first, in words; nothing broken, nothing sideways."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import start_browser

import genbench
from genbench.display.question_marks import Mark
from genbench.display.tables import fitting_columns, print_table, print_text
from genbench.plugin.registry import load_registry
from genbench.report import run_page
from genbench.report.plain_words import _passes, plain_verdict
from genbench.scoring.claims import Claims
from genbench.scoring.population import SHOWN
from genbench.scoring.verdicts import BoardVerdict, MeasureVerdict
from genbench.suites.result import Headline

LONG_NAME = max(load_registry().measures, key=len)


@genbench.measure(needs={"weights"})
def by_layer(subject):
    """Squares of the weights."""
    named = zip(subject.layer_names(), subject.weights(), strict=True)
    layers = {name: float(w.square().sum()) for name, w in named}
    return genbench.Estimate(sum(layers.values()), layers=layers)


@pytest.fixture(scope="module")
def found(finished_run, tmp_path_factory) -> genbench.api.runs.Run:
    folder = tmp_path_factory.mktemp("looks")
    shutil.copytree(finished_run / "store", folder / "store")
    suite = genbench.load_suite(finished_run / "tiny.toml", store=folder / "store", jobs=1)
    return genbench.run(by_layer, suite, progress=False)


@pytest.fixture(scope="module")
def page(found, tmp_path_factory) -> Path:
    return found.report(tmp_path_factory.mktemp("page") / "page.html")


def test_ones_own_measure_comes_first_in_words(found, page) -> None:
    text = page.read_text()
    verdict, scatter, scores = (
        text.index(part) for part in ('class="verdict"', '<figure class="panels">', 'id="scores"')
    )
    assert verdict < scatter < scores
    said = found.verdict()
    assert f"sign-error {found.scores.loc['by_layer', 'sign_error']:.3f}" in said
    # On the page an interval holds together.
    assert said.replace(" – ", "\N{NO-BREAK SPACE}–\N{WORD JOINER}\N{NO-BREAK SPACE}") in text


def test_layers_are_on_the_page(found, page) -> None:
    text = page.read_text()
    assert "What each layer gave" in text
    first = found.layers.iloc[0]
    assert f'<td class="name">{first["layer"]}</td><td class="n">{first["value"]:.6g}</td>' in text
    outcomes = found.result.asked[0].outcomes.values()
    assert len(found.layers) == sum(len(one.detail["layers"]) for one in outcomes)


def test_baselines_are_marked(page) -> None:
    text = page.read_text()
    row = text[text.index('<tr class="baseline">') :].partition("</tr>")[0]
    assert "baseline_" in row
    assert '<tr class="asked">' in text


# -- the verdict in words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.1, 0.4, "better than a coin"),
        (0.6, 0.9, "it points the wrong way"),
        (0.3, 0.7, "cannot be told from a coin"),
    ],
)
def test_the_interval_decides_what_is_said(found, monkeypatch, low, high, said) -> None:
    measure = found.result.asked[0]
    headline = Headline((low + high) / 2, low, high)
    monkeypatch.setattr(type(found.result.judged), "headline", lambda self, one: headline)
    sentences = plain_verdict(found.result, measure)
    assert said in sentences[1]
    assert "another draw of networks" in sentences[1], "a mark is about these, the interval about others"
    assert f"{100 * headline.value:.0f} % of cases" in sentences[0]


@pytest.mark.parametrize(
    ("passed", "cannot", "said"),
    [
        (
            [],
            [],
            "It is not shown to order these very networks beyond luck (its readings shuffled among them; at "
            "5 % after correction for all 2 measures).",
        ),
        (
            ["chance", "size"],
            [],
            "These very networks it orders beyond luck and among networks of equal architecture and size "
            "(its readings shuffled among them; at 5 % after correction for all 2 measures), but is not "
            "shown to do so beyond what training loss and training error tell.",
        ),
        (
            ["chance"],
            ["size", "fit", "settings"],
            "These very networks it orders beyond luck (its readings shuffled among them; at 5 % after "
            "correction for all 2 measures).",
        ),
    ],
)
def test_what_a_measure_passes_is_a_sentence(passed, cannot, said) -> None:
    verdicts = {"mine": MeasureVerdict(1, {}, passed), "other": MeasureVerdict(2, {}, [])}
    board = BoardVerdict(verdicts, dict.fromkeys(cannot, "why"), np.zeros((2, 2)))
    assert _passes(Claims(board, {}, {}), "mine") == said


# -- widths -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    started = start_browser()
    yield started
    started.quit()


@pytest.fixture(scope="module")
def wide_page(found, page, tmp_path_factory) -> Path:
    """The page as the widest suite has it: ten columns, four questions, long names, several statuses."""
    whole = run_page._content

    def widened(*given: Any) -> Any:
        content = whole(*given)
        scored = next(row for row in content.rows if row.headline is not None)
        marks = [Mark(name, True, "✓ 0.123", "passed") for name in ("chance", "size", "fit", "settings")]
        row = replace(
            scored,
            name=LONG_NAME,
            marks=marks,
            numbers=["0.123"] * len(SHOWN) + ["79 of 176", "6"],
            statuses=[("ok", 264), ("not_applicable", 6)],
        )
        labels = [*(column.label for column in SHOWN), "environ-ments", "drop-ped"]
        questions = [(mark.question, "?") for mark in marks]
        return replace(
            content, rows=[row] * 5, columns=[(name, "") for name in labels], counts=2, questions=questions
        )

    target = tmp_path_factory.mktemp("wide") / "wide.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_page, "_content", widened)
        run_page.write_run_page(found.result, target)
    return target


SIDEWAYS = """
document.querySelectorAll("details").forEach(one => one.open = true);
const boxes = [document.documentElement, ...document.querySelectorAll(".wide, figure, pre")];
return boxes.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.outerHTML.slice(0, 200));
"""


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("which", ["page", "wide_page"])
def test_nothing_scrolls_sideways(browser, request, which, width) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(request.getfixturevalue(which).as_uri())
    assert browser.execute_script(SIDEWAYS) == []
    names = browser.execute_script("return document.querySelectorAll('.scores tbody tr').length")
    assert names >= 5


# -- terminals ----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_intervals_are_never_broken(monkeypatch, columns) -> None:
    rows = [
        {
            "measure": LONG_NAME,
            "rank": number,
            "sign error": "0.123",
            "95 %": "0.017–0.188",
            "95 % interval": "0.017 – 0.188",
            "passes": "chance size fit settings",
            "noise aware": "0.023",
            "why": "a long reason " * 6,
        }
        for number in range(3)
    ]
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    chosen = [name for name in rows[0] if name != "95 % interval" or columns > 80]
    right = ["rank", "sign error", "95 %", "95 % interval", "noise aware"]
    print_table(chosen, rows, right=right)
    print_table(fitting_columns(chosen, rows), rows, right=right)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert shown.count("0.017–0.188") == 6
    assert max(len(line) for line in shown.splitlines()) <= columns


def test_text_columns_do_not_vanish_beside_numbers(monkeypatch) -> None:
    """The table of wrong pairs, which is a little too wide for 80 columns."""
    numbers = dict.fromkeys(("its error", "its reading", "error", "reading", "sds", "more"), "0.099")
    row = {"slice": "mini-efficientnet, zero-shot", "better": "rn12", "worse": "rn4", **numbers}
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    print_table(list(row), [row], right=list(numbers))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert "rn12" in shown
    assert "rn4" in shown
    assert shown.count("0.099") == len(numbers)


def test_sentences_break_at_words_on_a_terminal(monkeypatch, capsys) -> None:
    text = "word " * 60
    print_text(text)
    assert capsys.readouterr().out.rstrip("\n") == text
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    print_text(text)
    assert max(map(len, screen.getvalue().splitlines())) <= 80
    assert screen.getvalue().split() == text.split()


def test_piped_output_of_one_measure_is_short(run, finished_run, tmp_path) -> None:
    shutil.copytree(finished_run / "store", tmp_path / ".genbench")
    shutil.copy(finished_run / "tiny.toml", tmp_path)
    done = run("run", "--measure", "path_norm", "--suite", "tiny.toml")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) < 30
    assert "path_norm orders two networks wrongly in" in done.stdout
