"""The Python API says what the command line says, and keeps what it promises to people in notebooks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import MEASURES, environment

import genbench
from genbench.errors import UserError


@pytest.fixture(scope="module")
def finished(finished_run, tmp_path_factory) -> Path:
    """A copy of the finished run of the tiny suite, whose store may grow."""
    folder = tmp_path_factory.mktemp("api") / "finished"
    shutil.copytree(finished_run, folder)
    return folder


@pytest.fixture(scope="module")
def tiny(finished):
    return genbench.load_suite(finished / "tiny.toml", store=finished / "store", jobs=1)


@pytest.fixture(scope="module")
def document(finished):
    return json.loads((finished / "run.json").read_text())


@genbench.measure(needs={"weights"})
def entries(subject):
    """Number of entries of all parameters."""
    return float(sum(p.numel() for p in subject.parameters()))


@pytest.fixture(scope="module")
def live(tiny):
    return genbench.run(entries, tiny, progress=False)


# -- suites ------------------------------------------------------------------------------------------------


def test_a_suite_has_tables_of_its_networks(tiny, document) -> None:
    assert list(tiny.settings.index) == tiny.names == list(document["evidence"])
    assert list(tiny.settings["width"]) == [4, 6, 8]
    truths = tiny.truths
    for network, known in document["evidence"].items():
        assert truths.loc[network, "truth"] == truths.loc[network, "gap"] == known["gap"]
    for network in tiny.names:
        size = sum(p.numel() for p in tiny.subject(network).model.parameters())
        assert tiny.networks.loc[network, "weights"] == size
    assert "tiny" in repr(tiny)
    assert "<table>" in tiny._repr_html_()


def test_the_shipped_suite_needs_no_training_to_be_looked_at(tmp_path) -> None:
    suite = genbench.load_suite("mini", store=tmp_path / "store")
    assert len(suite) == 174
    assert suite.smallest == "mini-efficientnet:b0/a1"
    assert not (tmp_path / "store").exists()


def test_a_network_may_be_named_by_its_end(tiny, tmp_path) -> None:
    suite = genbench.load_suite("mini", store=tmp_path)
    assert suite.find("short4/a2") == "mini-clip:short4/a2"
    with pytest.raises(UserError, match="unknown network 'short1/a2'"):
        suite.find("short1/a2")


# -- one reading --------------------------------------------------------------------------------------------


def test_a_reading_here_is_that_of_a_run_to_the_bit(tiny, document) -> None:
    compared = 0
    for measure in document["measures"]:
        for reading in measure["readings"]:
            if measure["name"] in MEASURES and reading["value"] is not None:
                found = genbench.read(measure["name"], tiny.subject(reading["subject"]))
                assert float(found) == reading["value"], (measure["name"], reading["subject"])
                assert found.detail() == reading["detail"]
                compared += 1
    assert compared >= 2 * len(tiny)


def test_a_reading_leaves_the_process_as_it_was(tiny) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.get_deterministic_debug_mode()
    reading = genbench.read("pacbayes_flatness", tiny.subject())
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.get_deterministic_debug_mode())
    assert reading.seconds >= 0
    assert reading.peak_bytes > 2**20


def test_what_a_measure_raises_comes_through(tiny) -> None:
    @genbench.measure
    def broken(subject):
        """Raises."""
        raise ZeroDivisionError("here")

    @genbench.measure(needs={"trace"})
    def needy(subject):
        """Needs what a plain module does not have."""
        return 1.0

    @genbench.measure
    def wordy(subject):
        """Returns a text."""
        return "five"

    with pytest.raises(ZeroDivisionError, match="here"):
        genbench.read(broken, tiny.subject())
    plain = genbench.Subject.from_module(torch.nn.Linear(2, 2), data=(torch.zeros(4, 2), torch.zeros(4)))
    with pytest.raises(genbench.NotApplicable, match="needs trace"):
        genbench.read(needy, plain)
    with pytest.raises(UserError, match="'wordy' returned str 'five'"):
        genbench.read(wordy, plain)


def test_layers_are_shown(tiny) -> None:
    @genbench.measure
    def by_layer(subject):
        """Squares, layer by layer."""
        layers = {"<first>": 1.0, "second": 2.0}
        return genbench.Estimate(3.0, layers=layers, standard_error=0.5)

    reading = genbench.read(by_layer, tiny.subject())
    assert reading.layers == {"<first>": 1.0, "second": 2.0}
    shown = reading._repr_html_()
    assert "&lt;first&gt;" in shown
    assert "± 0.5" in shown
    assert "± 0.5" in repr(reading)


# -- a run --------------------------------------------------------------------------------------------------


def test_a_measure_of_this_process_is_scored_beside_the_others(live, tiny, document) -> None:
    """`entries` is the built-in `params` by another name, so everything said of it must be the same."""
    readings = live.readings.set_index(["measure", "network"])
    expected = {network: tiny.networks.loc[network, "weights"] for network in tiny.names}
    assert {network: readings.loc[("entries", network), "value"] for network in tiny.names} == expected
    assert live.measures == ["entries"]
    assert set(MEASURES) <= set(live.scores.index), "what is stored stands beside it"
    assert live.scores.loc["entries", "asked"]
    assert live.scores.loc["baseline_random", "baseline"]
    truth = live.readings.groupby("network")["truth"].first()
    assert truth.to_dict() == {name: known["gap"] for name, known in document["evidence"].items()}


def test_scores_are_those_of_the_command_line(finished, tiny, document) -> None:
    found = genbench.run(MEASURES, tiny, progress=False)
    for measure in document["measures"]:
        score = measure["sign_error"]
        chance = (measure["questions"] or {}).get("chance", {})
        expected = chance.get("value") if chance.get("value") is not None else (score or {}).get("value")
        value = found.scores.loc[measure["name"], "sign_error"]
        assert value == expected or (expected is None and np.isnan(value))
        assert found.scores.loc[measure["name"], "rank"] == measure["rank"]
    assert sorted(found.measures) == sorted(MEASURES)


def test_a_run_has_figures_and_a_page(live, tiny, tmp_path) -> None:
    from matplotlib.figure import Figure

    figure = live.scatter()
    assert isinstance(figure, Figure)
    marks = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", None, "")]
    assert sum(len(line.get_xdata()) for line in marks) == len(tiny)
    page = live.report(str(tmp_path / "page.html"))
    assert "entries" in page.read_text()
    shown = live._repr_html_()
    assert "<svg" in shown
    assert live.verdict() in shown
    assert "sign-error" in live.verdict()


def test_what_fails_here_has_a_status_and_the_authors_line(tiny) -> None:
    @genbench.measure
    def sometimes(subject):
        """Fails on one network, refuses another."""
        if "width=4" in subject.name:
            raise RuntimeError("four is too few")
        if "width=6" in subject.name:
            raise genbench.NotApplicable("not for six")
        return 1.0

    found = genbench.run(sometimes, tiny, progress=False)
    rows = found.readings[found.readings["measure"] == "sometimes"]
    assert list(rows["status"]) == ["failed", "not_applicable", "ok"]
    assert "four is too few (test_api.py, line" in rows["reason"].iloc[0]
    outcome = next(iter(found.result.asked[0].outcomes.values()))
    assert 'raise RuntimeError("four is too few")' in outcome.output
    assert found.verdict().startswith("sometimes has no score: 1 failed")


def test_what_cannot_be_run_is_said_in_one_sentence(tiny, tmp_path) -> None:
    with pytest.raises(UserError, match="say what to run"):
        genbench.run([], tiny)
    with pytest.raises(UserError, match=r"decorate it with @genbench\.measure"):
        genbench.run(lambda subject: 1.0, tiny)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a record needs code in a file"):
        genbench.run(entries, tiny, records=tmp_path / "records", progress=False)
    with pytest.raises(UserError, match="when a suite is loaded"):
        genbench.run("params", tiny, quick=True)


# -- tables -------------------------------------------------------------------------------------------------


@pytest.fixture
def frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = [
        {"hp.depth": depth, "hp.width": width, "seed": seed}
        for depth in (1, 2)
        for width in (4, 8)
        for seed in range(4)
    ]
    table = pd.DataFrame(rows)
    table["gap"] = 0.1 * table["hp.depth"] + generator.uniform(0, 0.05, len(table))
    table["test_error"], table["test_size"] = table["gap"], 10_000
    table["complexity.right"] = table["gap"]
    table["complexity.wrong"] = -table["gap"]
    return table


def test_a_table_is_scored_from_pandas_a_string_or_a_path(frame, tmp_path) -> None:
    path = tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    given = [genbench.score(table) for table in (frame, path, str(path))]
    for found in given[1:]:
        pd.testing.assert_frame_equal(found.scores, given[0].scores, check_exact=False, rtol=1e-12)
    summary = given[0].summary
    assert summary.loc["right", "max"] == pytest.approx(0, abs=1e-12)
    assert summary.loc["wrong", "max"] == pytest.approx(1, abs=1e-12)
    assert list(summary.index) == ["right", "wrong"], "best first"
    assert "right" in given[0]._repr_html_()
    assert "sign-errors" in given[0].figures()
    assert given[0].report(str(tmp_path / "page.html")).is_file()


def test_strings_and_paths_both_name_files(frame, tmp_path, finished) -> None:
    from genbench.scoring import read_table
    from genbench.scoring.readings_file import read_readings
    from genbench.suites import load_suite, read_suite

    path = tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    assert len(read_table(str(path))) == len(read_table(path)) == len(frame)
    readings = tmp_path / "readings.csv"
    readings.write_text("network,mine\na,1\n")
    assert len(read_readings(str(readings))) == 1
    suite = finished / "tiny.toml"
    assert load_suite(str(suite)).name == load_suite(suite).name == read_suite(str(suite)).name == "tiny"


# -- two measures -------------------------------------------------------------------------------------------


def test_two_versions_of_a_file_are_compared(tiny, tmp_path) -> None:
    text = "import genbench\n@genbench.measure\ndef mine(s):\n    'M.'\n    return {}\n"
    size = "float(sum(p.numel() for p in s.parameters()))"
    for name, value in (("old.py", size), ("new.py", f"-{size}")):
        (tmp_path / name).write_text(text.format(value))
    found = genbench.compare(str(tmp_path / "old.py"), tmp_path / "new.py", tiny, progress=False)
    assert found.measures == ["mine (old.py)", "mine (new.py)"]
    assert (found.readings["mine (old.py)"] == -found.readings["mine (new.py)"]).all()
    # Opposite orders: of the three pairs, each is right in one of the two.
    assert len(found.pairs) == 3
    assert (found.pairs["apart"].diff().dropna() <= 0).all()
    right = (found.pairs["right"] == "mine (old.py)").mean()
    assert found.scores.loc["mine (old.py)", "sign_error"] == pytest.approx(1 - right)
    assert "They differ in 3 orderings" in found.sentence
    assert "<svg" in found._repr_html_()


def test_a_run_is_compared_without_reading_again(finished, tiny) -> None:
    read = []

    @genbench.measure
    def counting(subject):
        """Sum of all weights; counts how often it is read."""
        read.append(subject.name)
        return float(sum(w.sum() for w in subject.weights()))

    found = genbench.run(counting, tiny, progress=False)
    assert len(read) == len(tiny)
    both = genbench.compare(found, "params", tiny, progress=False)
    assert len(read) == len(tiny)
    assert (both.readings["counting"] == found.table["counting"]).all()
    quick = genbench.load_suite(finished / "tiny.toml", quick=True, store=tiny.store)
    with pytest.raises(UserError, match="cannot be compared on suite tiny"):
        genbench.compare(found, "params", quick, progress=False)
    several = genbench.run(["params", "path_norm"], tiny, progress=False)
    with pytest.raises(UserError, match="one by one; it has params, path_norm"):
        genbench.compare(several, "params", tiny, progress=False)


# -- notebooks ----------------------------------------------------------------------------------------------


class FakeDisplay:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, thing, display_id=None):
        self.update(thing)
        return self

    def update(self, thing) -> None:
        self.shown.append(thing._repr_html_())


@pytest.fixture
def notebook(monkeypatch) -> FakeDisplay:
    """IPython as far as genbench uses it; its kernel is not installed here."""
    display = FakeDisplay()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    shown = types.ModuleType("IPython.display")
    shown.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return display


def test_a_notebook_has_a_bar_that_ends_full(notebook, tiny, capsys) -> None:
    genbench.run(entries, tiny)
    assert any("read in this process" in text and "3/3" in text for text in notebook.shown)
    assert any("suite tiny" in text for text in notebook.shown)
    assert "<progress value=" in notebook.shown[0]
    assert capsys.readouterr().err == ""


# -- the public face -----------------------------------------------------------------------------------------


def test_importing_genbench_is_quick_and_free_of_torch() -> None:
    code = (
        "import time; began = time.process_time(); import genbench; dir(genbench);"
        "took = time.process_time() - began; import sys;"
        "print(took, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    seconds, *heavy = told.stdout.split()
    assert heavy == ["False", "False"], told.stderr
    assert float(seconds) < 0.1


def test_run_stays_a_function_whatever_was_imported() -> None:
    """A room called `run` would take the place of the function when it is imported."""
    for name in genbench.__all__:
        assert not isinstance(getattr(genbench, name), types.ModuleType), name
