"""Turns a population suite into cells. Imports no torch, so that `genbench plan` and resuming stay instant.

    training images ─> block ─┬─> readings
    held-out images ──────────┴─> evidence
       └─> corrupted images ──┘

A block is a stack of networks that are trained at once. With an evidence pack, blocks and their evidence come
out of the pack, and nothing held out is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from msgspec.structs import asdict

from genbench.data.content_mark import content_mark
from genbench.engine.cells import Cell, NetworkCells, Step, make_cell
from genbench.errors import UserError
from genbench.keys import canonical_json, cell_key, derive_seed
from genbench.packs.pack import Pack, unpacked_cell
from genbench.plugin.offers import DataRequest, Dataset
from genbench.plugin.registry import load_registry
from genbench.population.manifest import PopulationManifest
from genbench.population.step_types import (
    BlockInputs,
    BlockNetwork,
    BlockRecipe,
    Choice,
    HeldoutInputs,
    JudgeInputs,
    NetworkShape,
    PoolInputs,
    ShiftInputs,
)
from genbench.population.suite import NetworkSettings, PopulationSuite
from genbench.suites.plan import EvidencePlan

__all__ = ["PopulationPlan", "missing_data", "network_labels", "plan_population"]

_VERSION = 1
"""Code version of the steps in `genbench.population`; raise it when one would give other bits."""

TRAINING = Step(
    "population_training", "genbench.population.pools:training_pool", "training images", at_home=True
)
HELDOUT = Step(
    "population_heldout", "genbench.population.pools:heldout_pool", "held-out images", at_home=True
)
SHIFTS = Step("population_shifts", "genbench.population.pools:shifts", "corrupt images")
BLOCK = Step("population_block", "genbench.population.blocks:train_block", "train a stack", seconds=25.0)
JUDGED = Step(
    "population_evidence", "genbench.population.blocks:judge_block", "evaluate a stack", seconds=5.0
)

_NETWORK = "population_network"
"""Stands for one network of a block in keys."""

_SHAPE = NetworkShape.__struct_fields__
_CHOICE = tuple(name for name in Choice.__struct_fields__ if name != "seed")
_RECIPE = BlockRecipe.__struct_fields__

_MOST_NETWORKS = 32
_MOST_VALUES = 2**27
"""Of the activations and patches of one stack, as the bytes of a worker allow: 512 MB in fp32."""
_USUAL_SIDE = 32


@dataclass(frozen=True, kw_only=True)
class PopulationPlan(EvidencePlan):
    """Networks have the truth cell of their block."""

    heldout_data: Cell
    shifts: Cell | None
    """Corrupted copies of the held-out images."""
    blocks: list[Cell]
    truths: list[Cell]
    """What the networks of each block do on held-out images."""
    places: Mapping[str, int]
    """Network to its place in its block."""
    loader: str = "genbench.population.blocks:load_member"

    def cells(self) -> list[Cell]:
        """Parents before children."""
        data = [self.training_data, self.heldout_data, *([self.shifts] if self.shifts else [])]
        return [*data, *self.blocks, *self.truths]


def plan_population(suite: PopulationSuite, pack: Pack | None = None) -> PopulationPlan:
    """The cells of `suite`; everything that determines a result is in its key.

    With a pack, stacks and their evidence come out of it, and nothing held out is opened.
    """
    points = suite.points()
    settings = [suite.settings(point) for point in points]
    labels = network_labels(suite)
    training, heldout, shifts = _data_cells(suite, settings)
    if pack is None:
        stacks = _trained(suite, settings, training, heldout, shifts)
    else:
        stacks = _unpacked(pack, labels)
        heldout, shifts = replace(heldout, on_demand=True), None
    subjects: dict[int, NetworkCells] = {}
    places = {}
    for block, judged, members in stacks:
        for place, i in enumerate(members):
            identity = cell_key(_NETWORK, {"step": _VERSION, "place": place, "parents": {"block": block.key}})
            subjects[i] = NetworkCells(labels[i], points[i], block, judged, identity, {"place": place})
            places[labels[i]] = place
    return PopulationPlan(
        training_data=training,
        heldout_data=heldout,
        shifts=shifts,
        blocks=[block for block, _, _ in stacks],
        truths=[judged for _, judged, _ in stacks],
        networks=[subjects[i] for i in range(len(points))],
        places=places,
        pack=pack,
        missing=() if pack is not None else tuple(missing_data(suite)),
    )


def network_labels(suite: PopulationSuite) -> list[str]:
    """Of all networks, in the suite's order."""
    return [" ".join(f"{_short(name)}={value}" for name, value in point.items()) for point in suite.points()]


_Stack = tuple[Cell, Cell, list[int]]
"""A block, its evidence, and which networks are in it."""


def _trained(
    suite: PopulationSuite,
    settings: list[NetworkSettings],
    training: Cell,
    heldout: Cell,
    shifts: Cell | None,
) -> list[_Stack]:
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(settings):
        shared = {name: getattr(one, name) for name in (*_SHAPE, *_CHOICE, *_RECIPE)}
        groups.setdefault(canonical_json(shared), []).append(place)
    # A design has many networks, and a byte for every held-out image would be most of its pack; evidence of
    # a grid stays as the packs have it.
    asked = JudgeInputs(step=_VERSION, calibration=suite.data.truth == "ece", bits=bool(suite.subgrids))
    stacks = []
    # The costly ones first: the last to end is then a cheap one.
    for members in sorted(_cut(groups.values(), settings), key=lambda m: -_cost(settings[m[0]], len(m))):
        block = _block(suite, [settings[i] for i in members], training)
        parents = {"block": block, "heldout": heldout, **({"shifts": shifts} if shifts else {})}
        judged = make_cell(JUDGED, f"evaluate {block.label.removeprefix('train ')}", asked, parents)
        stacks.append((block, judged, members))
    return stacks


def _unpacked(pack: Pack, labels: list[str]) -> list[_Stack]:
    """Which networks are in which stack is said by the pack, whatever this genbench would put together."""
    number = {label: i for i, label in enumerate(labels)}
    stacks = []
    for place, entry in enumerate(pack.read_as(PopulationManifest).blocks):
        block = unpacked_cell(pack, f"stack {place}", entry.trained)
        judged = unpacked_cell(pack, f"evidence of stack {place}", entry.judged)
        stacks.append((block, judged, [number[label] for label in entry.subjects]))
    return stacks


def _data_cells(suite: PopulationSuite, settings: list[NetworkSettings]) -> tuple[Cell, Cell, Cell | None]:
    names = list(dict.fromkeys(one.dataset for one in settings))
    domains = any(one.heldout_domain for one in settings)
    corruptions = suite.data.corruptions
    if domains and corruptions:
        raise UserError(f"{suite.path}: data.corruptions and heldout_domain exclude each other; drop one")
    common = PoolInputs(
        step=_VERSION,
        datasets=names,
        versions=[_dataset(name).version for name in names],
        content=[content_mark(name) for name in names],
        domains=domains,
        classes=suite.data.classes,
        seed=suite.data.seed,
        quick=suite.quick,
        training_pool=suite.data.training_pool,
    )
    title = " and ".join(names)
    training = make_cell(TRAINING, f"training images of {title}", common)
    heldout = make_cell(
        HELDOUT,
        f"held-out images of {title}",
        HeldoutInputs(**asdict(common), heldout_size=suite.data.heldout_size),
    )
    if not corruptions:
        return training, heldout, None
    shifts = make_cell(
        SHIFTS,
        f"corrupt held-out images of {title}",
        ShiftInputs(
            step=_VERSION,
            corruptions=list(corruptions),
            severities=suite.data.severities,
            shifted_images=suite.data.shifted_images,
            seed=suite.data.seed,
        ),
        {"heldout": heldout},
    )
    return training, heldout, shifts


def _block(suite: PopulationSuite, members: list[NetworkSettings], training: Cell) -> Cell:
    first = members[0]
    named = [n for n in (*_SHAPE, *_CHOICE, *_RECIPE) if n in suite.varied]
    label = " ".join(f"{_short(name)}={getattr(first, name)}" for name in named)
    return make_cell(
        BLOCK,
        f"train {len(members)} networks {label}".rstrip(),
        BlockInputs(
            step=_VERSION,
            shape=NetworkShape(**{name: getattr(first, name) for name in _SHAPE}),
            choice=Choice(**{name: getattr(first, name) for name in _CHOICE}, seed=suite.data.seed),
            recipe=BlockRecipe(**{name: getattr(first, name) for name in _RECIPE}),
            networks=[_network(one) for one in members],
            half=suite.train.rounding == "float16",
        ),
        {"training": training},
    )


def _network(settings: NetworkSettings) -> BlockNetwork:
    adaptive = settings.optimizer != "sgd"
    return BlockNetwork(
        learning_rate=settings.learning_rate * (settings.adaptive_rate if adaptive else 1.0),
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        init_seed=derive_seed("init", settings.seed),
        order_seed=derive_seed("order", settings.seed),
    )


def _cut(stacks: Iterable[list[int]], settings: list[NetworkSettings]) -> list[list[int]]:
    """Stacks in parts that a worker has memory for."""
    parts = []
    for stack in stacks:
        one = settings[stack[0]]
        most = max(1, min(_MOST_NETWORKS, _MOST_VALUES // _values(one)))
        count = -(-len(stack) // most)
        size = -(-len(stack) // count)
        parts += [stack[i : i + size] for i in range(0, len(stack), size)]
    return parts


def _values(settings: NetworkSettings) -> int:
    """Numbers that a training step of one network keeps, roughly: activations and patches of all layers."""
    found = _dataset(settings.dataset).image_size
    side = found[1] if found else _USUAL_SIDE
    if settings.architecture == "fcn":
        places = 1
    elif settings.architecture == "resnet":
        places = 4 * side**2
    elif settings.architecture == "resnetv2":
        # Two convolutions a block, and the second and third stage are a half and a quarter of the first.
        places = 3 * int(settings.depth) * side**2 // 8
    elif settings.architecture == "simplecnn":
        places = side**2 // 2
    else:
        places = side**2 // 4
    return max(1, int(settings.batch_size) * int(settings.width) * places * 20)


def _cost(settings: NetworkSettings, networks: int) -> float:
    """Of training a block, in no particular unit; good enough for an order."""
    return float(networks * settings.train_size * settings.width**1.5 * settings.depth)


def missing_data(suite: PopulationSuite) -> list[str]:
    """Data sets that are not on this machine, one sentence each."""
    settings = [suite.settings(point) for point in suite.points()]
    domains = {one.dataset for one in settings if one.heldout_domain}
    found = []
    for name in dict.fromkeys(one.dataset for one in settings):
        entry, argument = load_registry().resolve("datasets", name)
        if argument and name in domains:  # a folder of domains lies otherwise; its loader says what is wrong
            continue
        there = entry.item.available(DataRequest(argument=argument, seed=suite.data.seed))
        if not there.ready:
            found.append(f"data set {name}: {there.detail}")
    return found


def _dataset(name: str) -> Dataset:
    dataset: Dataset = load_registry().resolve("datasets", name)[0].item
    return dataset


def _short(name: str) -> str:
    return {"learning_rate": "lr", "train_size": "m"}.get(name, name)
