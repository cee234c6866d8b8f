"""Code that determines results does not change without a version.

Built-in measures and steps stand in a key with their version, not with their source. This test holds the
shape of that source (without comments and docstrings), so that a change is noticed. If it fails: does any
value change, even in the last bit? Then raise the version. In both cases run

    python tests/test_versions.py

which writes what it finds to tests/golden/code_versions.json.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

import pytest

from genbench.plugin.registry import load_registry
from genbench.population import plan as population_plan
from genbench.subject.version import SUBJECT_VERSION
from genbench.testbed import plan as testbed_plan

PACKAGE = Path(__file__).parent.parent / "genbench"
PINNED = Path(__file__).parent / "golden" / "code_versions.json"


def shape(*files: Path) -> str:
    """Hash of the syntax trees of `files`, without docstrings, annotations' positions or comments."""
    digest = hashlib.sha256()
    for file in files:
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [
                    item
                    for item in body
                    if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
                ] or [ast.Pass()]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:16]


def found() -> dict[str, dict[str, object]]:
    units: dict[str, dict[str, object]] = {
        "subject": {
            "version": SUBJECT_VERSION,
            "shape": shape(*sorted((PACKAGE / "subject").glob("*.py"))),
        },
    }
    helpers = sorted((PACKAGE / "measures").glob("_[a-z]*.py"))
    units["what measures share"] = {"version": SUBJECT_VERSION, "shape": shape(*helpers)}
    stacks = ("blocks", "layers", "networks", "optimizers", "pools", "stacked", "stacked_training")
    units["population"] = {
        "version": population_plan._VERSION,
        "shape": shape(
            PACKAGE / "data" / "corruptions.py", *(PACKAGE / "population" / f"{name}.py" for name in stacks)
        ),
    }
    testbed = ("adaptation", "cubes", "evidence", "heads", "images", "ssim", "steps")
    units["testbed"] = {
        "version": testbed_plan._VERSION,
        "shape": shape(*(PACKAGE / "testbed" / f"{name}.py" for name in testbed)),
    }
    units["degradations"] = {
        "version": {name: entry.item.version for name, entry in load_registry().degradations.items()},
        "shape": shape(*sorted((PACKAGE / "testbed" / "degradations").glob("*.py"))),
    }
    for file in sorted((PACKAGE / "measures").glob("[a-z]*.py")):
        module = f"genbench.measures.{file.stem}"
        versions = {
            name: entry.item.version
            for name, entry in load_registry().measures.items()
            if entry.item.function.__module__ == module
        }
        units[module] = {"version": versions, "shape": shape(file)}
    return units


@pytest.mark.parametrize("unit", found())
def test_code_has_the_shape_its_version_was_given_for(unit) -> None:
    assert json.loads(PINNED.read_text()).get(unit) == found()[unit], __doc__


def test_comments_and_docstrings_are_free(tmp_path) -> None:
    first, second, third = (tmp_path / f"{n}.py" for n in "abc")
    first.write_text("def f(x):\n    return x + 1\n")
    second.write_text('"""Module."""\n\ndef f(x):\n    """Says it."""\n    # why\n    return x + 1\n')
    third.write_text("def f(x):\n    return x + 2\n")
    assert shape(first) == shape(second) != shape(third)


if __name__ == "__main__":
    PINNED.write_text(json.dumps(found(), indent=1, sort_keys=True) + "\n")
