"""A run: measures on the subjects of a suite, and what came of it."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from genbench.engine.cells import Cell, NetworkCells, Outcome, Status, make_cell
from genbench.engine.guard import Limits
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.scheduler import Progress, run_cells
from genbench.engine.store import Store, stored_folder
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry, Source, load_registry
from genbench.population.plan import PopulationPlan, plan_population
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites import PopulationSuite, Suite, TestbedSuite
from genbench.testbed.plan import TestbedPlan, plan_testbed

if TYPE_CHECKING:
    import xarray as xr

    from genbench.packs.pack import Pack
    from genbench.scoring.all_scores import TableScores as Board
    from genbench.scoring.population import PopulationScore
    from genbench.scoring.practical import PracticalScore
    from genbench.scoring.sign_error import SignError

__all__ = [
    "FamilyEvidence",
    "MeasureReport",
    "Plan",
    "Reference",
    "RunReport",
    "TableScores",
    "bring_to_end",
    "execute",
    "make_plan",
    "measure_fingerprint",
    "plan_evidence",
    "require_ready",
    "stored_measures",
]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reference:
    """A measure whose readings on the same evidence are recorded."""

    entry: Entry[Measure]
    outcomes: dict[str, Outcome]
    """By subject."""
    score: Mapping[str, Any] | None
    """As recorded."""


@dataclass(frozen=True)
class Plan:
    """All cells of a run."""

    suite: Suite
    evidence: PopulationPlan | TestbedPlan
    """How the suite's networks are made and judged."""
    measures: Sequence[Entry[Measure]]
    asked: frozenset[str]
    """Names of the measures that were asked for; the others stand beside them for comparison."""
    readings: dict[tuple[str, str], Cell]
    """(measure, subject) to cell."""
    references: Mapping[str, Reference] = field(default_factory=dict)
    """Measures with recorded readings that stand beside the others for comparison."""

    def cells(self) -> list[Cell]:
        """Parents before children."""
        return [*self.evidence.cells(), *self.readings.values()]


@dataclass(frozen=True)
class MeasureReport:
    """What a run found out about one measure."""

    measure: Measure
    source: Source
    outcomes: dict[str, Outcome]
    """By subject."""
    score: SignError | PracticalScore | PopulationScore | None
    """Sign-error against the held-out truth; None with fewer than two values."""
    reference: bool = False
    """Whether its readings are recorded ones, which came with genbench."""


@dataclass(frozen=True)
class FamilyEvidence:
    """The cube of one family and its trade-off point."""

    cube: xr.Dataset
    trade_off: dict[str, Any]


@dataclass(frozen=True)
class TableScores:
    """What `genbench score` says of the record table of a population."""

    board: Board | None
    not_scored: str = ""
    """Why there are no scores."""


@dataclass(frozen=True)
class RunReport:
    """What a run found out."""

    plan: Plan
    measures: list[MeasureReport]
    evidence: dict[str, dict[str, Any]]
    """Subject to what is known of it: its training, and what it did on held-out data."""
    store: Path
    families: dict[str, FamilyEvidence] = field(default_factory=dict)
    """Of a testbed: cube and trade-off point of every family."""
    table: TableScores | None = None
    """Of a population."""

    @property
    def sound(self) -> bool:
        """Whether every reading is a value or a reasoned refusal."""
        fine = (Status.OK, Status.NOT_APPLICABLE)
        return all(o.status in fine for report in self.measures for o in report.outcomes.values())


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
    pack : evidence to take networks, cubes and gaps from.
    """
    names = [entry.item.name for entry in measures]
    for name in names:
        if names.count(name) > 1:
            sources = " and ".join(str(e.source) for e in measures if e.item.name == name)
            raise UserError(f"measure {name!r} is given twice, by {sources}; rename one of them")
    evidence = plan_evidence(suite, pack)
    readings = {
        (entry.item.name, subject.label): _reading(suite, evidence, subject, entry)
        for subject in evidence.subjects
        for entry in measures
    }
    return Plan(suite, evidence, measures, frozenset(names if asked is None else asked), readings)


def plan_evidence(suite: Suite, pack: Pack | None = None) -> PopulationPlan | TestbedPlan:
    """How the networks of `suite` are made and judged."""
    if isinstance(suite, TestbedSuite):
        return plan_testbed(suite, pack)
    assert isinstance(suite, PopulationSuite)
    return plan_population(suite, pack)


def stored_measures(
    suite: Suite, entries: Iterable[Entry[Measure]], store: Path, pack: Pack | None = None
) -> list[Entry[Measure]]:
    """Those of which `store` has every reading on `suite`; their bytes are checked when read."""
    evidence = plan_evidence(suite, pack)

    def found(entry: Entry[Measure]) -> bool:
        cells = (_reading(suite, evidence, subject, entry) for subject in evidence.subjects)
        return all(stored_folder(store, cell.key).is_dir() for cell in cells)

    return [entry for entry in entries if found(entry)]


def _reading(
    suite: Suite, evidence: PopulationPlan | TestbedPlan, subject: NetworkCells, entry: Entry[Measure]
) -> Cell:
    measure = entry.item
    return make_cell(
        READING,
        f"{measure.name} on {subject.label}",
        {
            "subject_version": SUBJECT_VERSION,
            "measure": measure.name,
            "measure_version": measure.version,
            "code": measure_fingerprint(entry),
            "seed": derive_seed(*suite.identity, subject.network.key, measure.name, 0),
        },
        {"network": subject.network, "training": evidence.training_data},
        about={
            "suite": suite.name,
            "quick": suite.quick,
            "subject": subject.label,
            "measure": measure.name,
        },
        how={
            "source": asdict(entry.source),
            "loader": evidence.loader,
            "part_seed": derive_seed(*suite.identity, subject.network.key),
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


def require_ready(plan: Plan, executor: str = "local") -> None:
    """Refuse, before anything is timed or computed, what cannot be run here."""
    load_registry().get("executors", executor)
    missing = plan.evidence.missing if isinstance(plan.evidence, TestbedPlan) else ()
    if missing:
        raise UserError(missing[0])


def bring_to_end(
    plan: Plan,
    store_path: Path,
    progress: Progress,
    use: Callable[[Store, dict[str, Outcome]], Result],
    *,
    jobs: int | None = None,
    limits: Limits,
    executor: str = "local",
) -> Result:
    """Compute all cells of `plan` that are not stored, then let `use` look at the store and the outcomes."""
    require_ready(plan, executor)
    create = load_registry().get("executors", executor).item.create
    workers = jobs or os.cpu_count() or 1
    with Store(store_path) as store:
        table = ReadingTable(store)
        try:
            outcomes = run_cells(
                plan.cells(), store, table, lambda: create(workers, limits, store.scratch.resolve()), progress
            )
            return use(store, outcomes)
        finally:
            table.close()


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
    from genbench.run.judging import report_run

    return bring_to_end(
        plan,
        store_path,
        progress,
        lambda store, outcomes: report_run(plan, store, outcomes),
        jobs=jobs,
        limits=limits,
        executor=executor,
    )
