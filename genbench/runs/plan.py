"""The cells of a run: measures on the networks of a suite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from genbench.engine.cells import Cell, NetworkCells, make_cell
from genbench.engine.messages import ReadingPlace
from genbench.engine.readings import READING
from genbench.engine.store import stored_folder
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.packs.pack import Pack
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Entry
from genbench.plugin.source import module_file, package_hash
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.kind import kind_of
from genbench.suites.plan import EvidencePlan
from genbench.suites.result import MeasureResult
from genbench.suites.suite import Suite

__all__ = ["Plan", "make_plan", "measure_fingerprint", "reading_cell", "stored_measures"]


@dataclass(frozen=True)
class Plan:
    """All cells of a run."""

    suite: Suite
    evidence: EvidencePlan
    """How the suite's networks are made and their truths found."""
    measures: Sequence[Entry[Measure]]
    asked: frozenset[str]
    """Names of the measures that were asked for; the others stand beside them for comparison."""
    readings: Mapping[tuple[str, str], Cell]
    """(measure, network) to cell."""
    references: Mapping[str, MeasureResult] = field(default_factory=dict)
    """Measures with recorded readings that stand beside the others for comparison."""

    def cells(self) -> list[Cell]:
        """Parents before children."""
        return [*self.evidence.cells(), *self.readings.values()]


def make_plan(
    suite: Suite,
    measures: Sequence[Entry[Measure]],
    *,
    asked: Iterable[str] | None = None,
    pack: Pack | None = None,
) -> Plan:
    """Lay out the cells of a run without doing anything.

    Parameters
    ----------
    asked : the measures that a person asked for; all unless said otherwise.
    pack : evidence to take networks and truths from.
    """
    names = [entry.item.name for entry in measures]
    for name in names:
        if names.count(name) > 1:
            sources = " and ".join(str(e.source) for e in measures if e.item.name == name)
            raise UserError(f"measure {name!r} is given twice, by {sources}; rename one of them")
    evidence = kind_of(suite).plan(suite, pack)
    readings = {
        (entry.item.name, network.label): reading_cell(suite, evidence, network, entry)
        for network in evidence.networks
        for entry in measures
    }
    return Plan(suite, evidence, measures, frozenset(names if asked is None else asked), readings)


def stored_measures(
    suite: Suite, entries: Iterable[Entry[Measure]], store: Path, pack: Pack | None = None
) -> list[Entry[Measure]]:
    """Those of which `store` has every reading on `suite`; their bytes are checked when read."""
    evidence = kind_of(suite).plan(suite, pack)

    def found(entry: Entry[Measure]) -> bool:
        cells = (reading_cell(suite, evidence, network, entry) for network in evidence.networks)
        return all(stored_folder(store, cell.key).is_dir() for cell in cells)

    return [entry for entry in entries if found(entry)]


def reading_cell(suite: Suite, evidence: EvidencePlan, network: NetworkCells, entry: Entry[Measure]) -> Cell:
    """One measure on one network of a suite."""
    measure = entry.item
    return make_cell(
        READING,
        f"{measure.name} on {network.label}",
        {
            "subject_version": SUBJECT_VERSION,
            "measure": measure.name,
            "measure_version": measure.version,
            "code": measure_fingerprint(entry),
            "seed": derive_seed(*suite.identity, network.key, measure.name, 0),
        },
        {"network": network.key, "training": evidence.training_data},
        about={
            "suite": suite.name,
            "quick": suite.quick,
            "subject": network.label,
            "measure": measure.name,
        },
        how=msgspec.to_builtins(
            ReadingPlace(
                entry.source,
                derive_seed(*suite.identity, network.key),
                evidence.loader,
                dict(network.place),
            )
        ),
        group=network.key,
        together=str(entry.source),
        reads={"network": network.network.key, "training": evidence.training_data.key}
        if network.identity
        else {},
    )


def measure_fingerprint(entry: Entry[Measure]) -> str:
    """What stands for a measure's code in a key.

    Built-in measures are versioned by hand (a test notices a change without a new version). Of third-party
    code the files themselves are hashed, because its authors edit and rerun.
    """
    if entry.source.kind == BUILT_IN:
        return BUILT_IN
    if entry.source.kind == "file":
        return hashlib.sha256(Path(entry.source.module).read_bytes()).hexdigest()
    module = entry.item.function.__module__
    home = module_file(module)
    if home is None:
        raise UserError(
            f"measure {entry.item.name!r} says that it is defined in {module!r}, which has no file; "
            f"ask the author of {entry.source}"
        )
    # A package's helpers count too: everything below its outermost folder.
    for _ in range(module.count(".")):
        home = home.parent
    return package_hash(home)
