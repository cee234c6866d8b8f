"""Content keys: pinned, so that a change of the recipe never silently recomputes everything."""

from __future__ import annotations

import hashlib

import pytest

from genbench.engine.cells import Step, make_cell
from genbench.keys import KEY_RECIPE, canonical_json, cell_key, derive_seed
from genbench.plugin.registry import find_measure
from genbench.population.plan import plan_population
from genbench.runs.plan import make_plan
from genbench.suites import load_suite
from genbench.suites.evidence_packs import find_pack
from genbench.suites.kind import kind_of

KEYS = {
    "mini": (360, "e9e920687028f4f4031517445f82ee0f69f43ee13be051c1666eab723ab06629"),
    "nin-digits": (309, "617a3cc8bdcb304bcf469db5ead0f0262bd079262ac76996652ebd78f802322e"),
    "domains": (74, "b9b2dbb5451143dc8c39f6a5d4b883259fbf117f85383ec493aaae83e73d7a3d"),
    "nin-glyphs": (99, "59316cfb0215e8b23d02fb50cafd96f510b453e4af0f7c0eb42b0a2af8f84578"),
}
"""Suite to the number of its cells and the hash of their keys."""
PACKED = {
    "mini": (183, "b67355c30a53c22c2610e3470311aa8f64b250b3c5928617f7ec825619cc8bf9"),
    "nin-fashion": (1406, "3371807b57a4bcce1f53d2265d15621b5149a6983c3ca869b6780e579a0e3dae"),
}
"""The same with the evidence packs that ship."""


def test_a_key_is_the_sha256_of_this_text() -> None:
    text = '{"inputs":{"name":"größe","seed":3,"sizes":[1,2.5]},"kind":"network","recipe":1}'
    assert (
        cell_key("network", {"seed": 3, "sizes": [1, 2.5], "name": "größe"})
        == hashlib.sha256(text.encode()).hexdigest()
    )
    assert KEY_RECIPE == 1


def test_keys_of_the_digits_suite_are_pinned() -> None:
    """If this fails, every stored result in the world is orphaned: raise a version and say so."""
    plan = make_plan(load_suite("digits"), find_measure("path_norm"))
    first = plan.evidence.networks[0]
    assert plan.evidence.training_data.key == PINNED["training_data"]
    assert first.key == PINNED["network"]
    assert first.truth.key == PINNED["evidence"]
    assert plan.readings["path_norm", first.label].key == PINNED["reading"]


@pytest.mark.parametrize(
    ("name", "from_pack"), [*((name, False) for name in KEYS), *((name, True) for name in PACKED)]
)
def test_keys_of_shipped_suites_are_pinned(name, from_pack) -> None:
    """All cells of a suite, in their order: stored results stay valid however suites are read and planned."""
    suite = load_suite(name)
    pack = find_pack(suite) if from_pack else None
    assert from_pack == (pack is not None)
    plan = kind_of(suite).plan(suite, pack)
    # Networks that lie in a cell with others have keys too, in which no cell of their own is left to see.
    keys = [*(cell.key for cell in plan.cells()), *(one.key for one in plan.networks if one.identity)]
    expected = (PACKED if from_pack else KEYS)[name]
    assert (len(keys), hashlib.sha256("\n".join(keys).encode()).hexdigest()) == expected


def test_everything_that_determines_a_result_is_in_its_key() -> None:
    full, quick = plan_population(load_suite("digits")), plan_population(load_suite("digits", quick=True))
    keys = [cell.key for cell in [*full.cells(), *quick.cells()]]
    assert len(set(keys)) == len(keys)


def test_quick_readings_never_share_a_key_with_full_ones(tiny_suite) -> None:
    entries = find_measure("path_norm")
    # Even where the networks' settings agree.
    full = make_plan(load_suite(str(tiny_suite)), entries).cells()
    quick = make_plan(load_suite(str(tiny_suite), quick=True), entries).cells()
    assert not {c.key for c in full} & {c.key for c in quick}


def test_editing_a_plugin_changes_its_key(tmp_path, tiny_suite) -> None:
    file = tmp_path / "mine.py"
    keys = set()
    for value in ("1.0", "2.0"):
        file.write_text(
            f"import genbench\n@genbench.measure\ndef f(subject):\n    'S.'\n    return {value}\n"
        )
        plan = make_plan(load_suite(str(tiny_suite)), find_measure(str(file)))
        keys |= {cell.key for cell in plan.readings.values()}
    assert len(keys) == 6


STEP = Step("k", "", "")


def test_labels_and_places_are_not_in_the_key() -> None:
    assert make_cell(STEP, "a", {"x": 1}).key == make_cell(STEP, "b", {"x": 1}, about={"suite": "s"}).key


def test_seeds_depend_on_their_parts_alone() -> None:
    digest = hashlib.sha256(b'["digits",false,"abc","path_norm",0]').digest()
    assert derive_seed("digits", False, "abc", "path_norm", 0) == int.from_bytes(digest[:8], "big") // 2
    assert 0 <= derive_seed("x") < 2**63


def test_canonical_json_refuses_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


PINNED = {
    "training_data": "420323bffddea3e05a8ed4ed01797c387e2f489078f176ac357d0b1d9996e12e",
    "network": "63025426fe51fa17d5e526f6e189f30430bd1317272086ce1ae48e6bdc20596e",
    "evidence": "23bd38c97bc38d20f5fc073f9ff53477e7e6863de45e370a82f78d4d4abfd338",
    "reading": "0fc86eab03d322282e0be173aee13925abf52df6158a5fee4b8296dd4dc36aeb",
}
