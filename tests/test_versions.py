"""Code that determines results does not change without a version; `versions` says how it is found out."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from import_closure import CUT, Sources, read_sources, shape, stripped
from version_samples import SampleDocument
from version_units import Unit, VersionDocument, closures, find_units, version_document
from versions import CODE, ROOT, SAMPLES, code_problems, settle

from genbench.plugin.contract import Measure
from genbench.plugin.registry import load_registry


@cache
def the_sources() -> Sources:
    return read_sources(ROOT)


@cache
def the_units() -> dict[str, Unit]:
    return find_units(the_sources())


@cache
def the_document() -> VersionDocument:
    return version_document(the_sources(), the_units())


def guarded_modules() -> list[str]:
    """Every module that determines a result of any unit.

    As pinned, which the first test compares with the closures: these take seconds, in every worker of pytest.
    """
    pinned: VersionDocument = json.loads(CODE.read_text(encoding="utf-8"))
    return [name for name in pinned["modules"] if "/" not in name]


def problems_with(module: str, tree: ast.Module) -> str:
    """What the guard says of the code as it is but for one module."""
    changed = the_sources().with_module(module, tree)
    units = find_units(changed)
    return code_problems(the_document(), version_document(changed, units), closures(changed, units))


# -- the guard --------------------------------------------------------------------------------------------


def test_the_code_is_the_one_that_versions_were_given_for() -> None:
    pinned = json.loads(CODE.read_text(encoding="utf-8"))
    problems = code_problems(pinned, the_document(), closures(the_sources(), the_units()))
    assert not problems, problems
    assert pinned["modules"].keys() == the_document()["modules"].keys(), "so all are tried below"


def test_everything_with_a_version_is_sampled() -> None:
    """But for backbones whose weights are not here, where one of a family stands for the others."""
    sampled = json.loads(SAMPLES.read_text(encoding="utf-8"))["samples"].keys()
    backbones = load_registry().backbones
    for unit in the_units().keys() - sampled:
        sort, _, name = unit.partition(" ")
        assert sort == "backbone", f"{unit} has no sample; add one to version_samples and run `make pin`"
        family = [
            f"backbone {n}" for n, e in backbones.items() if e.item.family == backbones[name].item.family
        ]
        assert sampled & set(family), f"{unit}: no backbone of its family has a sample"
        assert backbones[name].item.source != "embedded"


# -- cannot be fooled -------------------------------------------------------------------------------------


def with_one_change(tree: ast.Module) -> ast.Module:
    """A copy with another number or, where there is none, another text, or a statement more."""
    changed = copy.deepcopy(tree)
    constants = [node for node in ast.walk(changed) if isinstance(node, ast.Constant)]
    numbers = [node for node in constants if type(node.value) in (int, float)]
    texts = [node for node in constants if type(node.value) is str]
    if numbers:
        numbers[-1].value += 1
    elif texts:
        texts[-1].value += "x"
    else:
        changed.body.append(ast.parse("changed = True").body[0])
    return changed


@pytest.mark.parametrize("module", guarded_modules())
def test_one_changed_constant_is_noticed(module: str) -> None:
    """In every module that the closures of steps, measures, readings and offers reach."""
    problems = problems_with(module, with_one_change(the_sources().modules[module].tree))
    assert f"{module} has changed" in problems
    assert "make confirm" in problems


def module_that_defines(function: str) -> str:
    (found,) = [
        name
        for name, module in the_sources().modules.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == function for node in module.tree.body)
    ]
    return found


def problems_after(function: str, old: str, new: str) -> str:
    """What the guard says when the text `old` becomes `new` in the module that defines `function`."""
    module = module_that_defines(function)
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1
    return problems_with(module, stripped(ast.parse(source.replace(old, new))))


def test_halving_kappa_is_noticed() -> None:
    problems = problems_after("table_kappa", "return np.divide(", "return 0.5 * np.divide(")
    assert "step testbed_evidence" in problems


def test_another_image_side_of_the_domains_is_noticed() -> None:
    problems = problems_after("load_domains", "_SIDE = 32", "_SIDE = 48")
    assert "step population_training" in problems


def test_other_seeds_of_the_worker_are_noticed() -> None:
    problems = problems_after(
        "seed_globals", "default_generator.manual_seed(seed)", "default_generator.manual_seed(seed + 1)"
    )
    assert "reading" in problems


def test_code_as_it_is_is_not_reported() -> None:
    for module in guarded_modules()[::10]:
        assert problems_with(module, copy.deepcopy(the_sources().modules[module].tree)) == ""


def test_a_helper_of_some_measures_concerns_these_alone() -> None:
    helper = module_that_defines("squared_norms")
    found = closures(the_sources(), the_units())
    concerned = {unit for unit, members in found.items() if helper in members}
    assert {"measure log_sum_of_fro", "measure log_prod_of_spec"} <= concerned
    assert all(unit.startswith("measure ") for unit in concerned)
    assert "measure ece" not in concerned


def test_comments_and_docstrings_are_free() -> None:
    first = "def f(x):\n    return x + 1\n"
    second = '"""Module."""\n\ndef f(x):\n    """Says it."""\n    # why\n    return x + 1\n'
    third = "def f(x):\n    return x + 2\n"
    assert shape(first) == shape(second) != shape(third)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = None", "x = ..."),
        ("x = a[:1]", "x = a[1:]"),
        ("f(*a)", "f(a)"),
        ("1 + a", "a"),
    ],
)
def test_what_differs_has_another_shape(one: str, other: str) -> None:
    assert shape(f"y = 0\n{one} if y else y") != shape(f"y = 0\n{other} if y else y")


# -- the closure ------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A small genbench of its own."""
    files = {
        "__init__.py": "HOMES = 'genbench.lazy'",
        "start.py": "",
        "lazy.py": "",
        "other.py": "",
        "room/__init__.py": "from genbench import other",
        "room/one.py": "",
        "room/two.py": "",
        "plugin/__init__.py": "",
        "plugin/builtin.py": "import genbench.other",
    }
    for name, text in files.items():
        path = tmp_path / "genbench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ("import genbench.room.one", {"room", "room.one"}),
        ("from genbench.room import one", {"room", "room.one"}),
        ("from genbench.room import NAME", {"room", "other"}),
        ("from .room.one import x", {"room", "room.one"}),
        ("from . import other", {"other"}),
        ("from genbench import NAME", {"lazy"}),
        ("def f():\n    from genbench.room.one import x", {"room", "room.one"}),
        ("STEP = 'genbench.room.one:function'", {"room", "room.one"}),
        ("import_module('genbench.room.one')", {"room", "room.one"}),
        ("import_module(f'genbench.room.{name}')", {"room", "room.one", "room.two"}),
        ("import_module('genbench.room.' + name)", {"room", "room.one", "room.two"}),
        ("if TYPE_CHECKING:\n    import genbench.other\nelse:\n    import genbench.lazy", {"lazy"}),
        ("if typing.TYPE_CHECKING:\n    import genbench.other", set()),
        ("import genbench.plugin.builtin", set()),
        ("import numpy", set()),
    ],
)
def test_the_closure_follows(line: str, reached: set[str], package: Path) -> None:
    (package / "genbench" / "start.py").write_text(line)
    found = read_sources(package).closure(["genbench.start"])
    assert found == {"genbench", "genbench.start", *(f"genbench.{name}" for name in reached)}


def test_a_package_may_name_its_modules_by_its_own_name(package: Path) -> None:
    (package / "genbench" / "room" / "__init__.py").write_text("import_module(f'{__name__}.{name}')")
    found = read_sources(package).closure(["genbench.room"])
    assert {"genbench.room.one", "genbench.room.two"} <= found


def test_files_beside_a_package_count_with_it(package: Path) -> None:
    assets = package / "genbench" / "room" / "assets"
    assets.mkdir()
    (assets / "weights").write_bytes(b"1")
    sources = read_sources(package)
    assert "genbench.room/assets" in sources.closure(["genbench.room.one"])
    assert sources.hash("genbench.room/assets")


def test_readings_depend_on_the_worker_the_loaders_and_the_subject() -> None:
    found = closures(the_sources(), the_units())["reading"]
    assert {module_that_defines("seed_globals"), module_that_defines("fold_batch_norm")} <= found
    assert {name for name in the_sources().modules if name.startswith("genbench.subject.")} <= found
    assert CUT not in found


def test_every_built_in_measure_is_a_unit_with_its_version() -> None:
    for name, entry in load_registry().measures.items():
        if entry.source.kind == "built-in":
            assert isinstance(entry.item, Measure)
            assert the_units()[f"measure {name}"].version == entry.item.version


# -- what `confirm` and `pin` decide ----------------------------------------------------------------------


def document(version: str = "1", shape_: str = "a") -> VersionDocument:
    """Two units, of which the second depends on a module of its own."""
    units = {"step a": {"version": version, "closure": shape_}, "step b": {"version": "1", "closure": "c"}}
    return {"modules": {"genbench.a": shape_, "genbench.b": "b"}, "units": units}


MEMBERS = {"step a": frozenset({"genbench.a"}), "step b": frozenset({"genbench.b"})}


def samples(first: str = "1", second: str = "1") -> SampleDocument:
    return {
        "step a": {"here": {"value": first, "made by": []}},
        "step b": {"here": {"value": second, "made by": ["step a"]}},
    }


class TestSettling:
    def test_changed_code_with_equal_samples_is_confirmed(self) -> None:
        found = settle(document(), document(shape_="other"), MEMBERS, samples(), samples())
        assert (found.refusals, found.news) == ([], [])

    def test_a_changed_sample_needs_a_version_and_the_right_one_is_named(self) -> None:
        found = settle(document(), document(shape_="other"), MEMBERS, samples(), samples("2", "2"))
        assert found.refusals == [
            "step a (here) has changed; raise the version of step a",
            "step b (here) has changed; raise the version of step a",
        ]

    def test_with_a_version_it_may_change_and_what_is_made_of_it_too(self) -> None:
        raised = document(version="2", shape_="other")
        found = settle(document(), raised, MEMBERS, samples(), samples("2", "2"))
        assert found.refusals == []
        assert len(found.news) == 2

    def test_a_sample_that_changes_by_itself_is_refused(self) -> None:
        found = settle(document(), document(), MEMBERS, samples(), samples("1", "2"))
        assert found.refusals == ["step b (here) has changed; raise the version of step b"]

    def test_code_that_no_sample_runs_is_not_confirmed(self) -> None:
        only = {"step b": samples()["step b"]}
        found = settle(document(), document(shape_="other"), MEMBERS, only, only)
        assert found.refusals == ["step a: no sample runs genbench.a; raise its version"]

    def test_new_and_lost_samples_are_named(self) -> None:
        only = {"step b": samples()["step b"]}
        assert settle(document(), document(), MEMBERS, only, samples()).new == ["step a (here): is new"]
        assert settle(document(), document(), MEMBERS, samples(), only).news == ["step a (here): is gone"]
