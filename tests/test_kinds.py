"""No code outside a kind's own room decides by the kind of a suite: it asks the kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kind_branches import (
    COMMANDS,
    COMPOSITION,
    DEFAULT,
    branches,
    classes_of_kinds,
    kinds,
    parts_of_kinds,
    rooms_of_kinds,
    template_branches,
)
from rooms import ROOT, modules, room

from genbench.records.validate import _agrees
from genbench.suites.kind import kind_of
from genbench.suites.suite import load_suite

pytestmark = pytest.mark.xdist_group("code")  # whose trees are parsed once

WITHOUT_SUITES = {"audit"}
"""Rooms that know no suite, and so cannot decide by its kind: the audit trains networks of its own with the
engine of populations."""
OUTSIDE = [(name, file) for name, file in modules() if room(name) not in rooms_of_kinds() | WITHOUT_SUITES]
TEMPLATES = sorted(
    file for room_ in ("report", "leaderboard") for file in (ROOT / "genbench" / room_).rglob("*.j2")
)


def test_no_code_outside_a_kinds_own_room_branches_on_a_suites_kind() -> None:
    found = [problem for name, file in OUTSIDE for problem in branches(file.read_text(), name)]
    assert found == []


@pytest.mark.parametrize("name", [name for name, _ in modules() if room(name) in WITHOUT_SUITES])
def test_rooms_without_suites_know_none(name: str) -> None:
    assert "genbench.suites" not in dict(modules())[name].read_text()


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_no_template_outside_a_kinds_own_room_branches_on_a_suites_kind(file: Path) -> None:
    assert template_branches(file.read_text()) == []


def test_what_is_looked_for_is_taken_from_the_kinds_themselves() -> None:
    assert {"testbed", "population"} <= kinds().keys() == rooms_of_kinds()
    assert {"TestbedSuite", "TestbedEvidence", "PopulationSuite", "PopulationPlan"} <= classes_of_kinds()
    assert {"testbed", "grid", "blocks", "cubes"} <= parts_of_kinds()
    assert "data" not in parts_of_kinds() or any("data" not in kind.tables for kind in kinds().values())


def test_every_exception_is_there_for_something() -> None:
    files = dict(modules())
    for name in (COMPOSITION, *COMMANDS):
        assert branches(files[name].read_text(), "genbench.somewhere")
    assert [line for line in branches(files[DEFAULT[0]].read_text()) if "names the kind" in line]


@pytest.mark.parametrize(
    "source",
    [
        # imports, also for types alone, also by name
        "from genbench.testbed.suite import TestbedSuite",
        "import genbench.population.plan",
        "from genbench import testbed",
        "if TYPE_CHECKING:\n    from genbench.testbed.evidence import TestbedEvidence",
        "import_module('genbench.population.kind')",
        "load_named('genbench.testbed.steps:images')",
        # classes
        "isinstance(suite, TestbedSuite)",
        "isinstance(x, (int, PopulationEvidence))",
        "isinstance(x, TestbedSuite | PopulationSuite)",
        "issubclass(type(suite), testbed.TestbedSuite)",
        "isinstance(evidence, HasCubes)",
        "type(suite) is TestbedSuite",
        "type(plan) in handlers",
        "suite.__class__ == other.__class__",
        "type(suite).__name__ == 'TestbedSuite'",
        "match suite:\n    case TestbedSuite():\n        pass",
        # the name of the kind
        "suite.kind == 'testbed'",
        "if kind != 'population': pass",
        "'testbed' if x else 'population'",
        "result.plan.suite.kind in ('testbed', 'collection')",
        "plan.suite.kind == OTHER",
        "own_suite.kind is not None",
        "match suite.kind:\n    case x:\n        pass",
        "match name:\n    case 'testbed':\n        pass",
        "{'testbed': draw_cubes}",
        "pages['population']",
        "HANDLERS[suite.kind]",
        "HANDLERS.get(suite.kind, plain)",
        "kind_of(suite) is kind_of(other)",
        "name.startswith('testbed.')",
        "_DEFAULT_KIND == name",
        # proxies
        "if suite.families: pass",
        "if suite.grid: pass",
        "evidence.several_seeds",
        "result.plan.evidence.blocks",
        "if result.evidence.families(): pass",
        "pages.evidence.trade_offs",
        "if 'networks' in manifest: pass",
        "'blocks' not in pack.manifest",
        "pack.manifest.get('cubes')",
        "'grid' in content",
        "pack.manifest['cubes']",
        "pack.manifest.cubes",
        "hasattr(suite, 'families')",
        "getattr(board.evidence, 'cubes', None)",
        "vars(suite)",
        "try:\n    evidence.truth\nexcept AttributeError:\n    pass",
    ],
)
def test_every_way_to_branch_is_found(source: str) -> None:
    assert branches(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A testbed is a suite of kind "testbed"."""',
        "source.kind == 'package'",
        "record.plugin.kind != BUILT_IN",
        "p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)",
        "if kind == 'text': pass",
        "assert isinstance(kind, Kind)",
        "from torch import nn\nisinstance(layer, nn.modules.batchnorm._BatchNorm)",
        "kind_of(suite).plan(suite, pack)",
        "kind.tolerances if kind.slow_scores else 0",
        "{suite.kind: pages.templates}",
        "if suite.quick and suite.changes: pass",
        "if evidence.table(results) is None: pass",
        "raise UserError(f'{suite.name} is no testbed')",
        "if 'quick' in content: pass",
        "from genbench.suites.kind import Kind, kind_of",
    ],
)
def test_what_asks_the_kind_is_let_through(source: str) -> None:
    assert branches(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "{% if suite.kind == 'testbed' %}{% endif %}",
        "{% if testbed %}{% endif %}",
        "{% if x %}{% elif pages.population %}{% endif %}",
        "{{ 'cubes' if kind == 'testbed' else 'gaps' }}",
        "{% for row in rows if row.kind %}{% endfor %}",
        "{% if board.evidence.families %}{% endif %}",
        "{% if cubes is defined %}{% endif %}",
        "{% set cubes = board.kind == other %}",
        "{% include 'testbed/run_evidence.html.j2' %}",
        "{% extends 'population/measure.html.j2' %}",
    ],
)
def test_every_way_to_branch_in_a_template_is_found(source: str) -> None:
    assert template_branches(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% if kind == 'text' %}{% endif %}",
        "{% if pages.run_measure_template %}{% include pages.run_measure_template %}{% endif %}",
        "<p>The practical testbed</p>",
    ],
)
def test_what_asks_the_pages_is_let_through(source: str) -> None:
    assert template_branches(source) == []


# -- what a kind says of its own scores --------------------------------------------------------------


def recorded(suite: str) -> dict[str, Any]:
    """The score of path_norm in its record."""
    text = (ROOT / "leaderboards" / "records" / suite / "path_norm.json").read_text()
    found: dict[str, Any] = json.loads(text)["sign_error"]
    return found


def moved(suite: str, by: float, *place: str) -> dict[str, Any]:
    """The same with one number moved; a row of scores is named by its first word."""
    score = recorded(suite)
    part: Any = score
    for step in place[:-1]:
        part = part[step] if isinstance(part, dict) else part[0]
    last = place[-1]
    if isinstance(part, list):
        row = next(row for row in part if row[0] == last and row[4] is not None)
        row[4] += by
    else:
        part[last] += by
    return score


@pytest.mark.parametrize(
    ("suite", "place", "by", "agrees"),
    [
        ("mini", ["value"], 1e-8, False),
        ("mini", ["low"], 4e-3, True),
        ("mini", ["low"], 6e-3, False),
        ("mini", ["worst", "first", "certainty"], 4e-3, True),
        ("mini", ["worst", "first", "error_better"], 4e-3, False),
        ("nin-fashion", ["high"], -4e-3, True),
        ("nin-fashion", ["value"], 1e-8, False),
        ("nin-fashion", ["scores", "affine_oracle"], 5e-7, True),
        ("nin-fashion", ["scores", "affine_oracle"], 5e-6, False),
        ("nin-fashion", ["scores", "kendall"], 5e-7, False),
    ],
)
def test_a_kind_says_how_far_its_numbers_may_move(
    suite: str, place: list[str], by: float, agrees: bool
) -> None:
    kind = kind_of(load_suite(suite))
    claimed, found = (
        kind.comparable(msgspec.convert(score, kind.score_type))
        for score in (moved(suite, by, *place), recorded(suite))
    )
    assert _agrees(claimed, found, kind.tolerances) is agrees
