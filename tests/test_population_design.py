"""Populations that are a part of a grid: the table [design], and what settings do to the gap."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from genbench.errors import UserError
from genbench.population.blocks import _kept
from genbench.population.effects import Effect, setting_effects
from genbench.population.networks import NetworkInNetwork
from genbench.population.plan import plan_population
from genbench.population.suite import _AXES, NetworkSettings, PopulationSuite
from genbench.suites.suite import load_suite

SUITE = """
name = "tiny-design"
summary = "a few networks"
kind = "population"

[data]
dataset = "digits"
seed = 0
train_size = 40

[train]
architecture = "fcn"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
stop_cross_entropy = 0.01
max_epochs = 60
depth = 1

[grid]
seed = [0, 1]

[design]
subgrids = [
    { width = 8, learning_rate = [0.1, 0.2], batch_size = 10 },
    { batch_size = [10, 20], width = [8, 16], learning_rate = 0.2 },
]

[quick.design]
subgrids = [{ width = [4, 8], learning_rate = 0.1, batch_size = 10 }]
"""


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    path = tmp_path / "design.toml"
    path.write_text(SUITE)
    return path


def test_a_design_is_its_subgrids_crossed_with_the_grid_each_combination_once(suite_file) -> None:
    suite = load_suite(str(suite_file))
    assert isinstance(suite, PopulationSuite)
    assert suite.varied == ["width", "learning_rate", "batch_size", "seed"]
    found = [tuple(point.values()) for point in suite.points()]
    # The second subgrid has (8, 0.2, 10) again.
    combos = [(8, 0.1, 10), (8, 0.2, 10), (8, 0.2, 20), (16, 0.2, 10), (16, 0.2, 20)]
    assert sorted(found) == sorted((*combo, seed) for combo in combos for seed in (0, 1))
    assert all(list(point) == suite.varied for point in suite.points())
    assert suite.networks == 10
    assert suite.content()["design"]["subgrids"][0]["learning_rate"] == [0.1, 0.2]


def test_a_network_has_every_setting_that_a_suite_may_give() -> None:
    assert NetworkSettings.__struct_fields__ == tuple(_AXES)


def test_quick_has_a_design_of_its_own(suite_file) -> None:
    quick = load_suite(str(suite_file), quick=True)
    assert isinstance(quick, PopulationSuite)
    assert [point["width"] for point in quick.points()] == [4, 4, 8, 8]


def test_networks_of_a_design_that_differ_in_rates_and_seeds_share_a_stack(suite_file) -> None:
    plan = plan_population(load_suite(str(suite_file)))
    sizes = {
        (block.inputs["shape"]["width"], block.inputs["recipe"]["batch_size"]): len(block.inputs["networks"])
        for block in plan.blocks
    }
    assert sizes == {(8, 10): 4, (8, 20): 2, (16, 10): 2, (16, 20): 2}
    assert len({network.label for network in plan.networks}) == 10


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("subgrids = [\n", "others = [\n", "unknown key 'design.others'"),
        ("{ width = 8,", "{ widht = 8,", "did you mean 'design.subgrids[1].width'"),
        ("{ width = 8,", "{", "design.subgrids[2] must have the same settings as the first"),
        ("width = [8, 16]", "width = [8, 8]", "design.subgrids[2].width = [8, 8], expected a list"),
        ("width = [8, 16]", "width = []", "design.subgrids[2].width = [], expected a list of distinct"),
        ("width = [8, 16]", "width = [8, 0]", "design.subgrids[2].width = 0, expected an integer"),
        ("seed = [0, 1]", "seed = [0, 1]\nwidth = [8]", "'width' must be in exactly one of [train]"),
        ("depth = 1", "depth = 1\nwidth = 8", "found in [train] and [design]"),
        ("depth = 1\n", "", "'depth' must be in exactly one of [train] (one value), [grid]"),
        ("train_size = 40\n", "training_pool = 100\ntrain_size = 400\n", "enough for a train_size of 400"),
        ('architecture = "fcn"', 'architecture = "resnetv2"', "depth = 1, but a resnetv2"),
    ],
)  # fmt: skip
def test_a_wrong_design_gets_a_sentence(suite_file, old, new, words) -> None:
    assert old in SUITE
    suite_file.write_text(SUITE.replace(old, new))
    with pytest.raises(UserError) as problem:
        load_suite(str(suite_file))
    assert words in str(problem.value)


@pytest.mark.parametrize("subgrids", ["[]", "[{}]", "3", "[3]"])
def test_a_design_without_settings_is_refused(suite_file, subgrids) -> None:
    start = SUITE.index("subgrids = [\n")
    suite_file.write_text(SUITE[:start] + f"subgrids = {subgrids}\n")
    with pytest.raises(UserError, match=r"design\.subgrids"):
        load_suite(str(suite_file))


def test_nin_fashion_is_balanced_and_every_combination_has_neighbours() -> None:
    suite = load_suite("nin-fashion")
    assert isinstance(suite, PopulationSuite)
    settings = [name for name in suite.varied if name != "seed"]
    assert len(settings) == 8
    assert list(suite.grid) == ["seed"]
    combos = {tuple(point[name] for name in settings) for point in suite.points()}
    assert len(combos) * len(suite.grid["seed"]) == suite.networks
    near = [
        sum(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for other in combos) for one in combos
    ]
    assert min(near) >= 4
    together = Counter(
        pair
        for subgrid in suite.subgrids
        for pair in product([name for name in settings if len(subgrid[name]) > 1], repeat=2)
    )
    assert {together[name, name] for name in settings} == {4}
    assert max(count for (one, other), count in together.items() if one != other) == 2
    shapes = Counter((point["depth"], point["width"]) for point in suite.points())
    weights = {
        (depth, width): sum(p.numel() for p in NetworkInNetwork(depth, width, 1, 10).parameters())
        for depth, width in shapes
    }
    assert sum(weights[shape] * count for shape, count in shapes.items()) / suite.networks <= 3400


def test_evidence_of_a_design_is_a_bit_per_image(suite_file) -> None:
    assert all(cell.inputs["bits"] for cell in plan_population(load_suite(str(suite_file))).truths)
    assert not any("bits" in cell.inputs for cell in plan_population(load_suite("nin-digits")).truths)
    right = torch.rand(3, 21, generator=torch.Generator().manual_seed(0)) < 0.7
    bits = _kept(right, torch.zeros(21), bits=True)["right_bits"]
    assert bits.shape == (3, 3)
    assert np.array_equal(np.unpackbits(bits.numpy(), axis=1, count=21), right.numpy())


# -- effects ---------------------------------------------------------------------------------------------


def test_a_setting_has_one_sign_if_it_surely_moves_the_gap_in_one_direction_only() -> None:
    near = [0.0, 0.01]  # standard error of the mean .005: two such means differ surely beyond .0141
    shifted = {0.0: near, 0.1: [g + 0.1 for g in near], 0.005: [g + 0.005 for g in near]}
    gaps = {
        (10, "a", 1): shifted[0.0], (2, "a", 1): shifted[0.1],
        (10, "b", 1): shifted[0.1], (2, "b", 1): shifted[0.1],
        (10, "a", 2): shifted[0.005], (10, "b", 2): shifted[0.0],
        (7, "b", 3): [0.9],  # one seed says nothing
    }  # fmt: skip
    size, kind, rate = setting_effects(gaps, ["size", "kind", "rate"])
    # Larger sizes: .1 → 0 under a, .1 → .1 under b. Numbers in their own order, not 10 before 2.
    assert size == Effect("size", pairs=2, rises=0, falls=1)
    assert size.one_sign
    # a → b: up at (10, 1), level at (2, 1), unsure at (10, 2).
    assert kind == Effect("kind", pairs=3, rises=1, falls=0)
    # 1 → 2: level under a, down under b.
    assert rate == Effect("rate", pairs=2, rises=0, falls=1)
    gaps[5, "a", 1], gaps[5, "b", 1] = shifted[0.1], shifted[0.0]
    assert setting_effects(gaps, ["size", "kind", "rate"])[1] == Effect("kind", pairs=4, rises=1, falls=1)
    assert not setting_effects(gaps, ["size", "kind", "rate"])[1].one_sign


def test_a_setting_that_never_differs_has_no_effect() -> None:
    assert setting_effects({(1, 2): [0.1, 0.2], (1, 3): [0.1, 0.2]}, ["same", "other"]) == [
        Effect("other", 1, 0, 0)
    ]
