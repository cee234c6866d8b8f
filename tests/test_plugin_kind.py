"""A kind of suite that a plugin package brings goes through everything, and genbench knows nothing of it.

The package is `tests/genbench-linear`: linear classifiers of digits, judged by their held-out errors.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from genbench.cli import main
from genbench.plugin.registry import load_registry

PACKAGE = Path(__file__).parent / "genbench-linear"
SUITE = "linear-digits"

pytestmark = pytest.mark.xdist_group("plugin kind")

NETWORKS = [f"seed={seed} steps={steps}" for seed in (0, 1) for steps in (1, 8, 64)]


class Said(NamedTuple):
    code: int
    out: str
    err: str


Genbench = Callable[..., Said]


def install(site: Path) -> Path:
    """What `pip install` leaves behind of the package; returns the folder of its module."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["genbench"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {module}" for name, module in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[genbench]", *lines]) + "\n")
    module = site / "genbench_linear"
    shutil.copytree(PACKAGE / "src" / "genbench_linear", module, ignore=shutil.ignore_patterns("__pycache__"))
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder to work in, with the package installed for this process and for workers."""
    folder = tmp_path_factory.mktemp("linear")
    site = folder / "site"
    install(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.chdir(folder)
        load_registry.cache_clear()
        yield folder
    load_registry.cache_clear()


@pytest.fixture(scope="module")
def genbench(folder: Path) -> Genbench:
    """The command line, in this process."""

    def call(*words: str | Path, code: int = 0) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main([str(word) for word in words])
        said = Said(int(end.value.code or 0), out.getvalue(), err.getvalue())
        assert said.code == code, said
        return said

    return call


@pytest.fixture(scope="module")
def shipped(folder: Path, genbench: Genbench) -> Path:
    """The package with an evidence pack beside its suite, as its author builds it."""
    target = folder / "site" / "genbench_linear" / "packs" / SUITE
    genbench("pack", "build", "--suite", SUITE, "--to", target, "--store", "scratch", "--jobs", "1")
    return target


@pytest.fixture(scope="module")
def document(genbench: Genbench, shipped: Path) -> dict[str, Any]:
    """A run on the shipped pack, with records."""
    words = ("run", "--suite", SUITE, "--measure", "frobenius_distance", "--records", "boards/records")
    said = genbench(*words, "--store", "store", "--jobs", "1", "--json")
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.fixture(scope="module")
def boards(folder: Path, genbench: Genbench, document: dict[str, Any]) -> Path:
    genbench("leaderboard", "build", "--to", "boards", "--site", "boards/site")
    return folder / "boards"


def test_the_kind_and_its_suite_are_listed(genbench: Genbench, folder: Path) -> None:
    reports = {one["plugin"]: one for one in json.loads(genbench("plugins", "--json").out)}
    assert reports["linear"]["problems"] == []
    assert reports["linear"]["offers"] == {"suites": [SUITE], "suite_kinds": ["linear"]}
    suites = {one["name"]: one for one in json.loads(genbench("suites", "--json").out)}
    assert (suites[SUITE]["networks"], suites[SUITE]["status"]) == ("6", "ready")


def test_a_file_of_that_kind_is_checked_by_the_kind(genbench: Genbench, folder: Path) -> None:
    text = (PACKAGE / "src" / "genbench_linear" / f"{SUITE}.toml").read_text()
    (folder / "wrong.toml").write_text(text.replace("train_size = 200", "train_size = 1"))
    said = genbench("plan", "--suite", "wrong.toml", "--measure", "params", code=2)
    assert "linear.train_size = 1, expected an integer of at least 10" in said.err
    (folder / "wrong.toml").write_text(text.replace('"linear"', '"linar"'))
    said = genbench("plan", "--suite", "wrong.toml", "--measure", "params", code=2)
    assert "expected one of 'population', 'linear', 'testbed'" in said.err.replace("'collection', ", "")


def test_plan_names_its_steps_and_asks_its_forecast(genbench: Genbench, folder: Path) -> None:
    words = ("plan", "--suite", SUITE, "--measure", "params", "--from-scratch", "--store", "none")
    plan = json.loads(genbench(*words, "--json").out)
    steps = {one["step"]: one for one in plan["steps"]}
    assert steps["train a classifier"]["cells"] == 6
    assert float(steps["train a classifier"]["seconds"]) == pytest.approx(2 * 0.073)
    # The measure and three baselines, on every network.
    assert steps["take reading"]["cells"] == 4 * 6
    assert plan["seconds"] < 10


def test_a_run_takes_the_pack_that_lies_beside_the_suite(document: dict[str, Any]) -> None:
    assert document["pack"].startswith(f"{SUITE} v1 ")
    assert list(document["evidence"]) == NETWORKS
    assert 0 < document["evidence"]["seed=0 steps=64"]["error"] < document["evidence"][NETWORKS[0]]["error"]


def test_a_run_judges_and_records_every_measure(document: dict[str, Any]) -> None:
    measures = {one["name"]: one for one in document["measures"]}
    asked = measures["frobenius_distance"]
    # More steps lead further away and to a lower error: it orders all but pairs of seeds wrongly.
    assert asked["sign_error"]["value"] > 0.7
    assert asked["sign_error"]["pairs"] == 15
    assert measures["baseline_constant"]["sign_error"]["value"] == 0.5


def test_the_terminal_shows_readings_beside_the_truths(genbench: Genbench, document: dict[str, Any]) -> None:
    said = genbench("run", "--suite", SUITE, "--measure", "frobenius_distance", "--store", "store")
    lines = [line.split("\t") for line in said.out.splitlines()]
    assert ["network", "reading", "status", "error", "seconds"] in lines
    assert "# sign-error against held-out errors, linear-digits (0 perfect, 0.5 a coin)" in said.out
    assert "without one" in said.out


def test_the_page_of_a_run_shows_what_the_kind_says(folder: Path, document: dict[str, Any]) -> None:
    page = (folder / document["report"]).read_text()
    assert "judged by\nthe held-out errors of linear classifiers" in page
    assert "The bar is the range when any one network is left out." in page
    assert "<svg" in page
    assert f"<td>{SUITE} v1" in page


def test_from_scratch_and_from_a_pack_the_truths_are_the_same(
    genbench: Genbench, shipped: Path, folder: Path, document: dict[str, Any]
) -> None:
    verified = json.loads(
        genbench("pack", "verify", "--suite", SUITE, "--store", "scratch", "--jobs", "1", "--json").out
    )
    assert verified["agrees"]
    assert [one["name"] for one in verified["evidence"] if one["same_bits"]] == NETWORKS
    # A pack elsewhere is named.
    shutil.copytree(shipped, folder / "copy")
    words = ("run", "--suite", SUITE, "--measure", "frobenius_distance", "--store", "store", "--json")
    named = json.loads(genbench(*words, "--pack", "copy").out)
    assert named["evidence"] == document["evidence"]


def test_quick_is_another_suite_and_has_no_pack(genbench: Genbench, shipped: Path) -> None:
    words = ("plan", "--suite", SUITE, "--quick", "--measure", "params", "--store", "none", "--json")
    plan = json.loads(genbench(*words).out)
    assert [one["cells"] for one in plan["steps"] if one["step"] == "train a classifier"] == [3]


def test_a_damaged_pack_is_refused_with_what_is_missing(
    genbench: Genbench, shipped: Path, folder: Path
) -> None:
    shutil.copytree(shipped, folder / "damaged")
    manifest = json.loads((shipped / "pack.json").read_text())
    del manifest["classifiers"]
    (folder / "damaged" / "pack.json").write_text(json.dumps(manifest))
    said = genbench("run", "--suite", SUITE, "--measure", "params", "--pack", "damaged", code=2)
    assert "cannot be read as an evidence pack (Object missing required field `classifiers`)" in said.err


def test_a_board_is_built_and_checked(genbench: Genbench, boards: Path, document: dict[str, Any]) -> None:
    board = json.loads((boards / f"{SUITE}.json").read_text())
    rows = {row["measure"]: row for row in board["rows"]}
    assert rows.keys() == {one["name"] for one in document["measures"]}
    score = next(one for one in document["measures"] if one["name"] == "frobenius_distance")["sign_error"]
    assert rows["frobenius_distance"]["sign_error"] == pytest.approx(
        {"value": score["value"], "low": score["low"], "high": score["high"], "dropped": 0}
        | {"without one": score["high"], "image_low": score["low"], "image_high": score["high"]},
        abs=1e-6,
    )
    assert "| without one |" in (boards / f"{SUITE}.md").read_text()
    assert "up to date" in genbench("leaderboard", "check", "--to", "boards").out
    table = boards / f"{SUITE}.tsv"
    text = table.read_text()
    assert [line.partition("\t")[0] for line in text.splitlines()] == NETWORKS
    table.write_text("edited\n")
    said = genbench("leaderboard", "check", "--to", "boards", code=1)
    assert said.err == "boards/linear-digits.tsv is stale or was edited by hand\n"
    table.write_text(text)


def test_the_site_has_plain_but_complete_pages(boards: Path) -> None:
    site = boards / "site" / SUITE
    measure = (site / "measures" / "frobenius_distance.html").read_text()
    evidence = (site / "evidence.html").read_text()
    for network in NETWORKS:
        assert f'<th scope="row">{network}</th>' in measure
        assert f'<th scope="row">{network}</th>' in evidence
    assert "genbench pack verify --suite linear-digits" in evidence
    assert "the share of pairs of classifiers" in (site / "index.html").read_text()


def test_a_record_is_checked_against_the_kinds_evidence_and_score_type(
    genbench: Genbench, boards: Path, folder: Path
) -> None:
    from genbench.records.write import body_hash, record_text

    for change, sentence in (
        ({"value": 0.25}, "its scores are not what its readings give"),
        ({"value": 2.0}, "sign_error.value: 2.0 is not <= 1"),
        ({"cubes": []}, "sign_error.the record: 'cubes' was unexpected"),
    ):
        records = folder / "wrong" / "records"
        shutil.rmtree(folder / "wrong", ignore_errors=True)
        shutil.copytree(boards / "records", records)
        path = records / SUITE / "frobenius_distance.json"
        record = json.loads(path.read_text())
        record["sign_error"] |= change
        record["sha256"] = body_hash(record)
        path.write_text(record_text(record))
        said = genbench("leaderboard", "build", "--to", "wrong", code=2)
        assert sentence in said.err


def test_the_schema_knows_its_score(genbench: Genbench, boards: Path) -> None:
    schema = json.loads(genbench("schema").out)
    assert {"$ref": "#/$defs/LinearRecord"} in schema["properties"]["sign_error"]["anyOf"]
    record = json.loads((boards / "records" / SUITE / "frobenius_distance.json").read_text())
    jsonschema.validate(record, schema)


def test_the_paper_kit_has_its_table_and_a_figure(genbench: Genbench, boards: Path, folder: Path) -> None:
    words = ("export", "--suite", SUITE, "--measure", "frobenius_distance")
    genbench(*words, "--records", "boards/records", "--to", "kit")
    assert "without one" in (folder / "kit" / "table.tex").read_text()
    assert (folder / "kit" / "frobenius_distance.pdf").stat().st_size > 1000


@pytest.mark.parametrize("command", ["cube", "tradeoff"])
def test_commands_of_another_kind_refuse_in_its_words(genbench: Genbench, command: str) -> None:
    said = genbench(command, "--suite", SUITE, code=2)
    assert said.err == (
        "genbench: linear-digits is a set of linear classifiers, which has no cube; choose a testbed such as "
        "mini\n"
    )
