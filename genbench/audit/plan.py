"""The audit as cells: images, stacks of networks, what they do on held-out images, and readings.

    training images ─> stack ─┬─> (stack that goes on from it) ─> readings
    held-out images ──────────┴─> truths

With the audit's pack, stacks and truths come out of it, and nothing held out is opened. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import structs

from genbench.audit.manifest import AuditManifest
from genbench.audit.setups import SCHEDULES, STRESSORS, ExponentialSetup, StackSetup, stacks_of
from genbench.audit.step_types import (
    INTERPOLATION,
    AuditImages,
    AuditShape,
    ContinuedInputs,
    ExponentialInputs,
    ImagePoolInputs,
    StackInputs,
    TruthInputs,
)
from genbench.engine.cells import Cell, NetworkCells, Setting, Step, make_cell
from genbench.engine.messages import ReadingPlace
from genbench.engine.readings import READING
from genbench.errors import UserError
from genbench.keys import canonical_json, cell_key, derive_seed, text_hash
from genbench.packs.pack import MANIFEST, Pack, read_pack, unpacked_cell
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Entry, load_registry
from genbench.population.step_types import BlockNetwork, NetworkRecipe
from genbench.runs.plan import measure_fingerprint
from genbench.subject.version import SUBJECT_VERSION

__all__ = [
    "PACK",
    "AuditNetwork",
    "AuditPlan",
    "PlannedStack",
    "audit_content",
    "plan_audit",
    "readings_of",
    "shipped_pack",
]

_VERSION = 1
"""Code version of the steps in `genbench.audit`; raise it when one would give other bits."""

IMAGES = Step("audit_images", "genbench.audit.images:store_images", "images of the audit", at_home=True)
STACK = Step("audit_stack", "genbench.audit.stacks:train_stack", "train a stack", seconds=12.0)
CONTINUED = Step("audit_continued", "genbench.audit.stacks:continue_stack", "train further", seconds=5.0)
EXPONENTIAL = Step("audit_exponential", "genbench.audit.exponential:train_exponential", "Exp++", seconds=5.0)
TRUTHS = Step("audit_truths", "genbench.audit.stacks:judge_stack", "evaluate a stack", seconds=0.5)

_NETWORK = "audit_network"
"""Stands for one network of a stack in keys."""
_UNTRAINED = "audit_untrained"
"""Stands for all networks of one architecture and training set."""
_LOADER = "genbench.audit.stacks:load_kept"
PACK = Path(__file__).parent / "pack"
_BLIND_TO_TRAINING = frozenset({"ml_pacbayes"})
"""Of genbench's own, those that cost much and see architecture and training set alone, to the bit: some 40
readings instead of 558."""
_PART_SEEDS = 3
"""Draws of shared parts behind the noise floor of a measure that states no error."""


@dataclass(frozen=True)
class AuditNetwork:
    """One network, and for which stressor."""

    stressor: str
    cells: NetworkCells
    untrained: str
    """Key of its architecture and its training set, which networks trained in other ways have too."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.cells.label

    @property
    def settings(self) -> Mapping[str, Setting]:
        """What tells it from the stressor's others."""
        return self.cells.hyperparameters


@dataclass(frozen=True)
class PlannedStack:
    """A stack, its truths and its networks in the order of its rows."""

    name: str
    stack: Cell
    truths: Cell
    networks: Sequence[AuditNetwork]


@dataclass(frozen=True)
class AuditPlan:
    """All cells of an audit but the readings."""

    stressors: Sequence[str]
    training: Cell
    heldout: Cell
    stacks: Sequence[PlannedStack]
    pack: Pack | None

    def cells(self) -> list[Cell]:
        """Parents before children."""
        stacks = [one.stack for one in self.stacks]
        return [self.training, self.heldout, *stacks, *(one.truths for one in self.stacks)]

    @property
    def networks(self) -> list[AuditNetwork]:
        """Of all stressors; hysteresis starts at networks of drift, which then are here too."""
        return [network for one in self.stacks for network in one.networks]


def audit_content(
    stressors: Iterable[str] = STRESSORS, setups: Sequence[StackSetup] | None = None
) -> dict[str, str]:
    """What determines the networks: name of a stack to a hash of its set-up and of the code's version."""
    stacks = _setups(stressors) if setups is None else setups
    content = {one.name: text_hash(canonical_json([_VERSION, msgspec.to_builtins(one)])) for one in stacks}
    if "exp" in stressors:
        content["exp"] = text_hash(canonical_json([_VERSION, msgspec.to_builtins(SCHEDULES)]))
    return content


def shipped_pack() -> Pack | None:
    """The pack that comes with genbench, if it is one of these set-ups."""
    if not (PACK / MANIFEST).is_file():
        return None
    pack = read_pack(PACK, AuditManifest)
    return pack if pack.manifest.evidence == audit_content() else None


def plan_audit(
    stressors: Sequence[str],
    pack: Pack | None = None,
    setups: Sequence[StackSetup] | None = None,
    schedules: ExponentialSetup = SCHEDULES,
) -> AuditPlan:
    """The cells of an audit by `stressors`.

    Parameters
    ----------
    pack : where networks and truths come from, instead of training.
    setups : other stacks than the audit's, for tests.
    """
    for name in stressors:
        if name not in STRESSORS:
            raise UserError(f"there is no stressor {name!r}; there are {', '.join(STRESSORS)}")
    chosen = _setups(stressors) if setups is None else list(setups)
    content = [load_registry().get("datasets", name).item.version for name in ("digits", "glyphs")]
    training, heldout = (
        make_cell(IMAGES, title, ImagePoolInputs(step=_VERSION, content=content, heldout=out))
        for title, out in (("training images of the audit", False), ("held-out images of the audit", True))
    )
    if pack is not None:
        heldout = replace(heldout, on_demand=True)
    made: dict[str, Cell] = {}
    planned = []
    for setup in chosen:
        stack = _trained(setup, training, made, chosen) if pack is None else _unpacked(pack, setup.name, 0)
        made[setup.name] = stack
        truths = _truths(setup.name, stack, heldout) if pack is None else _unpacked(pack, setup.name, 1)
        planned.append(PlannedStack(setup.name, stack, truths, _networks(setup, stack, truths)))
    if "exp" in stressors:
        stack = _exponential(schedules, training) if pack is None else _unpacked(pack, "exp", 0)
        truths = _truths("exp", stack, heldout) if pack is None else _unpacked(pack, "exp", 1)
        untrained = _untrained(schedules.shape, schedules.images)
        networks = [
            _network("exp", stack, truths, place, {"alpha": alpha, "decay": decay}, untrained)
            for place, (alpha, decay) in enumerate(schedules.schedules)
        ]
        planned.append(PlannedStack("exp", stack, truths, networks))
    return AuditPlan(list(stressors), training, heldout, planned, pack)


def _setups(stressors: Iterable[str]) -> list[StackSetup]:
    found = {setup.name: setup for name in stressors for setup in stacks_of(name)}
    return list(found.values())


def _trained(
    setup: StackSetup, training: Cell, made: Mapping[str, Cell], chosen: Sequence[StackSetup]
) -> Cell:
    label = f"train {len(setup.networks)} networks: {setup.name}"
    networks = [
        BlockNetwork(rate, 0.9, 0, derive_seed("audit order", seed), derive_seed("audit init", seed))
        for rate, seed in setup.networks
    ]
    if not setup.continues:
        inputs = StackInputs(
            step=_VERSION,
            shape=setup.shape,
            images=setup.images,
            recipe=setup.recipe,
            networks=networks,
            keep=list(setup.keep),
        )
        return make_cell(STACK, label, inputs, {"training": training})
    before = next(one for one in chosen if one.name == setup.continues)
    further = ContinuedInputs(
        step=_VERSION,
        chosen=[before.networks.index((setup.continues_rate, seed)) for seed in setup.seeds],
        recipe=setup.recipe,
        networks=[
            NetworkRecipe(rate, 0.9, 0, derive_seed("audit further", seed)) for rate, seed in setup.networks
        ],
        keep=list(setup.keep),
    )
    return make_cell(CONTINUED, label, further, {"training": training, "start": made[setup.continues]})


def _exponential(setup: ExponentialSetup, training: Cell) -> Cell:
    inputs = ExponentialInputs(
        step=_VERSION,
        shape=setup.shape,
        images=setup.images,
        rate=setup.rate,
        momentum=setup.momentum,
        batch_size=setup.batch_size,
        steps=setup.steps,
        init_seed=derive_seed("audit init", 0),
        order_seed=derive_seed("audit order", 0),
        schedules=list(setup.schedules),
    )
    return make_cell(EXPONENTIAL, "train under Exp++", inputs, {"training": training})


def _truths(name: str, stack: Cell, heldout: Cell) -> Cell:
    return make_cell(
        TRUTHS, f"evaluate {name}", TruthInputs(step=_VERSION), {"stack": stack, "heldout": heldout}
    )


def _unpacked(pack: Pack, name: str, part: int) -> Cell:
    entry = pack.read_as(AuditManifest).stacks[name]
    return unpacked_cell(pack, name, entry.trained if part == 0 else entry.judged)


def _networks(setup: StackSetup, stack: Cell, truths: Cell) -> list[AuditNetwork]:
    found: list[AuditNetwork] = []
    untrained = _untrained(setup.shape, setup.images)
    for rate, seed in setup.networks:
        for mark in setup.keep:
            settings: dict[str, Setting] = {**setup.settings, "rate": rate, "seed": seed}
            if len(setup.keep) > 1:
                settings["kept"] = "T_int" if mark == INTERPOLATION else mark
            found.append(_network(setup.stressor, stack, truths, len(found), settings, untrained))
    return found


def _untrained(shape: AuditShape, images: AuditImages) -> str:
    return text_hash(canonical_json(msgspec.to_builtins([shape, structs.replace(images, validation=0)])))


def _network(
    stressor: str, stack: Cell, truths: Cell, place: int, settings: Mapping[str, Setting], untrained: str
) -> AuditNetwork:
    label = f"{stressor}: " + ", ".join(f"{name} {value}" for name, value in settings.items())
    identity = cell_key(_NETWORK, {"step": _VERSION, "place": place, "parents": {"stack": stack.key}})
    cells = NetworkCells(label, settings, stack, truths, identity, {"place": place})
    return AuditNetwork(stressor, cells, untrained)


# -- readings ----------------------------------------------------------------------------------------------


def readings_of(plan: AuditPlan, entry: Entry[Measure]) -> dict[str, list[Cell]]:
    """Network to its readings of a measure: the one that counts, and those behind the noise floor.

    All networks have one seed of shared parts (draws of sigma, subsets of examples, random networks), so that
    a change is the network's and not the draws'. A measure whose value depends on draws is read again, of
    the first network of every stressor, with other seeds of these parts. A measure that sees nothing of
    training is read of one network of each architecture and training set.
    """
    first = {network.stressor: network.label for network in reversed(plan.networks)}
    found = {}
    if entry.source.kind == BUILT_IN and entry.item.name in _BLIND_TO_TRAINING:
        shared: dict[str, Cell] = {}
        for network in plan.networks:
            if network.untrained not in shared:
                identity = cell_key(_UNTRAINED, {"step": _VERSION, "of": network.untrained})
                alike = replace(network.cells, identity=identity)
                shared[network.untrained] = _reading(plan, alike, entry, 0)
            found[network.label] = [shared[network.untrained]]
        return found
    for network in plan.networks:
        again = entry.item.randomness == "seeded" and first[network.stressor] == network.label
        repeats = range(_PART_SEEDS if again else 1)
        found[network.label] = [_reading(plan, network.cells, entry, repeat) for repeat in repeats]
    return found


def _reading(plan: AuditPlan, network: NetworkCells, entry: Entry[Measure], repeat: int) -> Cell:
    measure = entry.item
    part_seed = derive_seed("audit parts", repeat)
    again = f" (parts {repeat})" if repeat else ""
    return make_cell(
        READING,
        f"{measure.name} on {network.label}{again}",
        {
            "subject_version": SUBJECT_VERSION,
            "measure": measure.name,
            "measure_version": measure.version,
            "code": measure_fingerprint(entry),
            "seed": derive_seed("audit", network.key, measure.name),
            "part_seed": part_seed,
        },
        {"network": network.key, "training": plan.training},
        about={
            "suite": "audit",
            "quick": False,
            "subject": f"{network.label}{again}",
            "measure": measure.name,
        },
        how=msgspec.to_builtins(ReadingPlace(entry.source, part_seed, _LOADER, dict(network.place))),
        # Shared parts are kept by group, and other seeds give other parts.
        group=f"{network.key} {repeat}" if repeat else network.key,
        together=str(entry.source),
        reads={"network": network.network.key, "training": plan.training.key},
    )
