"""Compares readings with evidence: what a run found out about each measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genbench.engine.cells import Outcome, Status
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.contract import Measure
from genbench.population.plan import PopulationPlan
from genbench.run.runs import FamilyEvidence, MeasureReport, Plan, RunReport, TableScores
from genbench.scoring.sign_error import SignError
from genbench.suites import TestbedSuite
from genbench.testbed.plan import TestbedPlan

__all__ = ["read_families", "report_run"]


def report_run(plan: Plan, store: Store, outcomes: Mapping[str, Outcome]) -> RunReport:
    """Score every measure of a run whose cells have all ended."""
    readings = {
        entry.item.name: {
            subject.label: outcomes[plan.readings[entry.item.name, subject.label].key]
            for subject in plan.evidence.subjects
        }
        for entry in plan.measures
    }
    if isinstance(plan.evidence, TestbedPlan):
        return _testbed_report(plan, plan.evidence, store, outcomes, readings)
    return _population_report(plan, plan.evidence, store, outcomes, readings)


def _values(measure: Measure, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Readings with the sign that makes higher mean worse; NaN where there is none."""
    direction = 1.0 if measure.higher_means == "worse" else -1.0
    return {
        subject: float("nan") if outcome.value is None else direction * outcome.value
        for subject, outcome in outcomes.items()
    }


# -- testbeds ----------------------------------------------------------------------------------------


def read_families(
    plan: TestbedPlan, suite: TestbedSuite, store: Store, outcomes: Mapping[str, Outcome]
) -> dict[str, FamilyEvidence]:
    """Cubes and trade-off points out of the store, with the suite's kappa and backbones."""
    from genbench.testbed.cube import read_cube
    from genbench.testbed.cube_steps import CUBE_FILE, only, with_kappa

    families = {}
    for name, family in plan.families.items():
        for cell in (family.cube, family.tradeoff):
            if outcomes[cell.key].status is not Status.OK:
                raise UserError(f"{cell.label} could not be made: {outcomes[cell.key].reason}")
        cube = with_kappa(read_cube(store.folder(family.cube.key) / CUBE_FILE), suite.testbed.kappa)
        families[name] = FamilyEvidence(
            only(cube, family.backbones), dict(outcomes[family.tradeoff.key].result)
        )
    return families


def _testbed_report(
    plan: Plan,
    evidence: TestbedPlan,
    store: Store,
    outcomes: Mapping[str, Outcome],
    readings: dict[str, dict[str, Outcome]],
) -> RunReport:
    from genbench.scoring.practical import PracticalTruth

    assert isinstance(plan.suite, TestbedSuite)
    families = read_families(evidence, plan.suite, store, outcomes)
    truth = PracticalTruth.of(
        {name: family.cube for name, family in families.items()},
        seed=derive_seed(plan.suite.name, "bootstrap") % 2**32,
    )
    reports = [
        MeasureReport(
            entry.item,
            entry.source,
            readings[entry.item.name],
            truth.score(_values(entry.item, readings[entry.item.name])),
        )
        for entry in plan.measures
    ]
    reports += [
        MeasureReport(
            one.entry.item,
            one.entry.source,
            one.outcomes,
            truth.score(_values(one.entry.item, one.outcomes)),
            reference=True,
        )
        for one in plan.references.values()
    ]
    return RunReport(plan, reports, truth.record(), store.root, families)


# -- populations -------------------------------------------------------------------------------------


def _population_report(
    plan: Plan,
    evidence: PopulationPlan,
    store: Store,
    outcomes: Mapping[str, Outcome],
    readings: dict[str, dict[str, Outcome]],
) -> RunReport:
    found: dict[str, dict[str, Any]] = {}
    for subject in evidence.subjects:
        assert subject.truth is not None
        judged = outcomes[subject.truth.key].result
        if "networks" in judged:
            judged = judged["networks"][evidence.places[subject.label]]
        found[subject.label] = {**outcomes[subject.network.key].result, **judged}
    reports = [
        MeasureReport(entry.item, entry.source, readings[entry.item.name], None) for entry in plan.measures
    ]
    reports += [
        MeasureReport(one.entry.item, one.entry.source, one.outcomes, None, reference=True)
        for one in plan.references.values()
    ]
    report = RunReport(plan, reports, found, store.root)
    table = _table_scores(report)
    if table.board is not None:
        from genbench.scoring.population import population_scores

        scores = population_scores(table.board)
        reports = [replace(one, score=scores.get(one.measure.name)) for one in reports]
    else:
        reports = [
            replace(
                one,
                score=_gap_score(plan, evidence, store, _values(one.measure, one.outcomes), found, outcomes),
            )
            for one in reports
        ]
    return replace(report, measures=reports, table=table)


def _table_scores(report: RunReport) -> TableScores:
    """The record table scored as `genbench score` does; recorded scores of other measures are taken over."""
    import pandas as pd

    from genbench.population.table import has_seeds, table_rows
    from genbench.scoring.all_scores import score_table
    from genbench.scoring.population import scores_frame
    from genbench.scoring.robust import sign_error_environments
    from genbench.scoring.table_files import table_from_frame

    if not has_seeds(report):
        return TableScores(None, "every network has the same seed; the scores need several")
    references = report.plan.references
    recorded = {
        name: one.score["scores"] for name, one in references.items() if one.score and "scores" in one.score
    }
    known = {one.measure.name: one.measure for one in report.measures}
    try:
        records = table_from_frame(pd.DataFrame(table_rows(report)), known_measures=known)
        board = score_table(records.select([name for name in records.measures if name not in recorded]))
    except UserError as problem:
        return TableScores(None, str(problem))
    if recorded:
        scores = pd.concat([board.scores, scores_frame(recorded)], ignore_index=True)
        everything = None if board.environments is None else sign_error_environments(records)
        board = replace(board, networks=records, scores=scores, environments=everything)
    return TableScores(board)


def _gap_score(
    plan: Plan,
    evidence: PopulationPlan,
    store: Store,
    values: Mapping[str, float],
    found: Mapping[str, Mapping[str, Any]],
    outcomes: Mapping[str, Outcome],
) -> SignError | None:
    import numpy as np

    from genbench.scoring import bootstrap_sign_error

    judged = [
        (subject.label, subject.truth)
        for subject in evidence.subjects
        if subject.truth is not None
        and outcomes[subject.truth.key].status is Status.OK
        and found[subject.label].get("converged")
    ]
    if len(judged) < 2:
        return None
    files = _evidence_files(store, {cell.key for _, cell in judged})
    labels = files[judged[0][1].key]["labels"]
    if any(not np.array_equal(file["labels"], labels) for file in files.values()):
        # Networks judged on different images: the scores of the record table compare them, this one cannot.
        return None
    right = [files[cell.key]["right"][evidence.places[label]] for label, cell in judged]
    return bootstrap_sign_error(
        [values[label] for label, _ in judged],
        [found[label]["train_accuracy"] for label, _ in judged],
        np.stack(right),
        labels,
        seed=derive_seed(plan.suite.name, "bootstrap") % 2**32,
    )


def _evidence_files(store: Store, keys: set[str]) -> dict[str, dict[str, Any]]:
    """What each evidence cell stored, by key: a block's is read once for all its networks."""
    from safetensors.numpy import load_file

    return {key: load_file(store.folder(key) / "evidence.safetensors") for key in sorted(keys)}
