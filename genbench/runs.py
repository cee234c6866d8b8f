"""A run: measures on the subjects of a suite, and what came of it."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genbench.contract import Measure
from genbench.engine.cells import Cell, Outcome, Status, make_cell
from genbench.engine.guard import Limits
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.scheduler import Progress, run_cells
from genbench.engine.store import Store, stored_folder
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.population.plan import PopulationPlan, SubjectCells, plan_population
from genbench.registry import Entry, Source, load_registry
from genbench.scoring.sign_error import SignError
from genbench.suites import Suite

__all__ = ["MeasureReport", "Plan", "RunReport", "execute", "make_plan", "measure_fingerprint"]

SUBJECT_VERSION = 1
"""Code version of `genbench.subject`: part of the key of every reading, because measures build on it."""


@dataclass(frozen=True)
class Plan:
    """All cells of a run."""

    suite: Suite
    population: PopulationPlan
    measures: Sequence[Entry[Measure]]
    asked: frozenset[str]
    """Names of the measures that were asked for; the others stand beside them for comparison."""
    readings: dict[tuple[str, str], Cell]
    """(measure, subject) to cell."""

    def cells(self) -> list[Cell]:
        """Parents before children."""
        return [*self.population.cells(), *self.readings.values()]


@dataclass(frozen=True)
class MeasureReport:
    """What a run found out about one measure."""

    measure: Measure
    source: Source
    outcomes: dict[str, Outcome]
    """By subject."""
    score: SignError | None
    """Sign-error against the held-out gap; None with fewer than two values."""


@dataclass(frozen=True)
class RunReport:
    """What a run found out."""

    plan: Plan
    measures: list[MeasureReport]
    evidence: dict[str, dict[str, Any]]
    """Subject to training accuracy, test accuracy and gap."""
    store: Path

    @property
    def sound(self) -> bool:
        """Whether every reading is a value or a reasoned refusal."""
        fine = (Status.OK, Status.NOT_APPLICABLE)
        return all(o.status in fine for report in self.measures for o in report.outcomes.values())


def make_plan(
    suite: Suite, measures: Sequence[Entry[Measure]], *, asked: Iterable[str] | None = None
) -> Plan:
    """Lay out the cells of a run without doing anything; `asked` are all measures unless said otherwise."""
    names = [entry.item.name for entry in measures]
    for name in names:
        if names.count(name) > 1:
            sources = " and ".join(str(e.source) for e in measures if e.item.name == name)
            raise UserError(f"measure {name!r} is given twice, by {sources}; rename one of them")
    population = plan_population(suite)
    readings = {
        (entry.item.name, subject.label): _reading(suite, population, subject, entry)
        for subject in population.subjects
        for entry in measures
    }
    return Plan(suite, population, measures, frozenset(names if asked is None else asked), readings)


def is_stored(suite: Suite, entry: Entry[Measure], store: Path) -> bool:
    """Whether `store` has every reading of one measure on `suite`; their bytes are checked when read."""
    return all(
        stored_folder(store, cell.key).is_dir() for cell in make_plan(suite, [entry]).readings.values()
    )


def _reading(suite: Suite, population: PopulationPlan, subject: SubjectCells, entry: Entry[Measure]) -> Cell:
    measure = entry.item
    return make_cell(
        READING,
        f"{measure.name} on {subject.label}",
        {
            "subject_version": SUBJECT_VERSION,
            "measure": measure.name,
            "measure_version": measure.version,
            "code": measure_fingerprint(entry),
            "seed": derive_seed(suite.name, suite.quick, subject.network.key, measure.name, 0),
        },
        {"network": subject.network, "training": population.training_data},
        about={
            "suite": suite.name,
            "quick": suite.quick,
            "subject": subject.label,
            "measure": measure.name,
        },
        how={
            "source": asdict(entry.source),
            "loader": "genbench.population.steps:load_network",
            "part_seed": derive_seed(suite.name, suite.quick, subject.network.key),
        },
        group=subject.network.key,
    )


def measure_fingerprint(entry: Entry[Measure]) -> str:
    """What stands for a measure's code in a key.

    Built-in measures are versioned by hand (a test notices a change without a new version). Of third-party
    code the files themselves are hashed, because its authors edit and rerun.
    """
    if entry.source.kind == "built-in":
        return "built-in"
    if entry.source.kind == "file":
        return hashlib.sha256(Path(entry.source.module).read_bytes()).hexdigest()
    module = inspect.getmodule(entry.item.function)
    home = Path(inspect.getfile(entry.item.function)).resolve()
    # A package's helpers count too: everything below its outermost folder.
    for _ in range(module.__name__.count(".") if module else 0):
        home = home.parent
    files = sorted(home.rglob("*.py")) if home.is_dir() else [home]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(home)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def execute(
    plan: Plan,
    store_path: Path,
    progress: Progress,
    *,
    jobs: int | None = None,
    limits: Limits,
    executor: str = "local",
) -> RunReport:
    """Bring all cells of `plan` to their end and score the measures."""
    create = load_registry().get("executors", executor).item.create
    workers = jobs or os.cpu_count() or 1
    with Store(store_path) as store:
        table = ReadingTable(store)
        try:
            outcomes = run_cells(
                plan.cells(), store, table, lambda: create(workers, limits, store.scratch.resolve()), progress
            )
            return _report(plan, store, outcomes)
        finally:
            table.close()


def _report(plan: Plan, store: Store, outcomes: dict[str, Outcome]) -> RunReport:
    evidence = {
        subject.label: {
            **outcomes[subject.network.key].result,
            **outcomes[subject.evidence.key].result,
        }
        for subject in plan.population.subjects
    }
    reports = []
    for entry in plan.measures:
        name = entry.item.name
        by_subject = {
            subject.label: outcomes[plan.readings[name, subject.label].key]
            for subject in plan.population.subjects
        }
        score = _score(plan, store, entry.item, by_subject, evidence, outcomes)
        reports.append(MeasureReport(entry.item, entry.source, by_subject, score))
    return RunReport(plan, reports, evidence, store.root)


def _score(
    plan: Plan,
    store: Store,
    measure: Measure,
    readings: dict[str, Outcome],
    evidence: dict[str, dict[str, Any]],
    outcomes: dict[str, Outcome],
) -> SignError | None:
    import numpy as np
    from safetensors.numpy import load_file

    from genbench.scoring import bootstrap_sign_error

    judged = [
        subject
        for subject in plan.population.subjects
        if outcomes[subject.evidence.key].status is Status.OK and evidence[subject.label]["converged"]
    ]
    if len(judged) < 2:
        return None
    files = [load_file(store.folder(s.evidence.key) / "evidence.safetensors") for s in judged]
    values = [readings[s.label].value for s in judged]
    direction = 1.0 if measure.higher_means == "worse" else -1.0
    return bootstrap_sign_error(
        [np.nan if value is None else direction * value for value in values],
        [evidence[s.label]["train_accuracy"] for s in judged],
        np.stack([file["right"] for file in files]),
        files[0]["labels"],
        seed=derive_seed(plan.suite.name, "bootstrap") % 2**32,
    )
