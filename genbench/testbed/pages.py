"""How a testbed looks: readings beside both slices' errors, wrong pairs in sentences, cubes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs, to_builtins

from genbench.display.kept_figures import inlined
from genbench.display.names import reading_note, short_count, short_name
from genbench.display.scatter import Point, ScatterPanel
from genbench.display.tables import Table
from genbench.engine.cells import Outcome
from genbench.scoring.practical import HEADLINE, SLICE_NAMES, SLICES, Part, PracticalScore, WorstPair
from genbench.suites.pages import NetworkColumn, Pages, Section
from genbench.suites.result import MeasureResult
from genbench.testbed.cube import ADAPTATION
from genbench.testbed.cube_figures import heat_maps, marginal_figure
from genbench.testbed.error_scatter import ErrorFigure, error_scatter, sign_error_scatter
from genbench.testbed.site_figures import (
    CubeFigure,
    ScatterFigure,
    cube_figures,
    scatter,
    shared_networks,
)
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import xarray as xr
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from genbench.testbed.evidence import TestbedEvidence

__all__ = ["TestbedPages"]

Rows = list[tuple[str, str]]
"""What something is called, and its value."""


class TradeOffs(Struct, frozen=True):
    """What `genbench run --json` says of a testbed: family to its trade-off point."""

    trade_off: dict[str, TradeOff]


class FamilySection(Section, frozen=True, kw_only=True):
    """A family on the page of a run."""

    models: list[str]
    note: str
    """What its numbers are means of, after the models; empty where those are single networks."""
    marginals: Markup
    heat_maps: list[tuple[str, Markup]]
    trade_off: Rows
    certified: bool


class ToldPair(Struct, frozen=True):
    """Two networks that a measure orders wrongly, and why that counts against it."""

    family: str
    slice: str
    sentence: str
    certainty: str


class ShownPart(Struct, frozen=True):
    """A part of the sign-error with its names."""

    part: Part
    slice: str
    statistic: str


class Told(Struct, frozen=True, kw_only=True):
    """Where a measure fails, and its sign-error by part."""

    wrong: int
    judgements: int
    worst: list[ToldPair]
    """The surest."""
    parts: list[ShownPart]


class ShownReading(Struct, frozen=True, kw_only=True):
    """A measure on one backbone."""

    network: str
    weights: str
    value: str
    standard_error: str
    status: str
    reason: str
    truth: list[float]
    """By slice."""
    seconds: float


class MeasurePage(Told, frozen=True, kw_only=True):
    """A measure on the site."""

    figure: ScatterFigure | None
    readings: list[ShownReading]
    """Of many networks only those without a value."""
    networks: int


class BoardPage(Struct, frozen=True):
    """All sign-errors of all measures."""

    errors: ErrorFigure | None


class FamilyCubes(Struct, frozen=True, kw_only=True):
    """A family on the evidence page."""

    name: str
    models: list[str]
    note: str
    """What its numbers are means of, after the models; empty where those are single networks."""
    figures: CubeFigure
    trade_off: Rows
    certified: bool


class EvidencePage(Struct, frozen=True, kw_only=True):
    """Every family's cube, and where the pack comes from."""

    families: list[FamilyCubes]
    packed: Rows


_WORST_SHOWN = 5
_MOST_ROWS = 40
"""Networks that a page of the site has a table of."""
_WORST_TOLD = 6
_STATISTICS = {"mean": "M", "sd": "SD", "p10": "P10"}


class TestbedPages(Pages):
    """Of a suite with cubes."""

    __test__ = False  # not a test, whatever pytest makes of its name

    evidence: TestbedEvidence

    judged_by = "the practical metric: held-out error over degraded images and unseen classes"
    score_title = "sign-error against the practical metric"
    about_scores = "The bar is the 95 % interval for another draw of backbones and of held-out images."
    scatter_caption = "Lines join pairs of one family that the measure orders wrongly, the surest darkest."
    papers = ("004",)
    templates = "genbench.testbed"
    run_measure_template = "testbed/run_measure.html.j2"
    run_evidence_template = "testbed/run_evidence.html.j2"
    board_template = "testbed/board.html.j2"
    evidence_template = "testbed/evidence.html.j2"
    measure_template = "testbed/measure.html.j2"

    # -- networks ----------------------------------------------------------------------------------------

    @property
    def network_columns(self) -> list[NetworkColumn]:
        """Weights, and the mean error of both slices."""
        known = self.evidence.known

        def error(name: str) -> NetworkColumn:
            label = SLICE_NAMES[name]
            return NetworkColumn(
                label, lambda network: f"{known[network].error(name):.3f}", heading=f"error, {label}"
            )

        weights = NetworkColumn("weights", lambda n: short_count(known[n].weights), truth=False)
        return [weights, *map(error, SLICES)]

    def note(self, network: str) -> str:
        """That a network did not reach the loss of the others."""
        return "unconverged" if network in self.evidence.truth.unconverged else ""

    def truth(self, network: str) -> float | None:
        """The mean error over both slices."""
        errors = [self.evidence.known[network].error(name) for name in SLICES]
        return sum(errors) / len(errors)

    def panels(self, result: MeasureResult) -> list[ScatterPanel]:
        """One per slice."""
        known = self.evidence.known
        return [
            ScatterPanel(
                SLICE_NAMES[name],
                "mean held-out error",
                [
                    Point(network, known[network].family, value, known[network].error(name))
                    for network, value in result.values.items()
                ],
                [(pair.better, pair.worse) for pair in _wrong(result) if pair.slice == name],
            )
            for name in SLICES
        ]

    # -- a run -------------------------------------------------------------------------------------------

    def failures(self, result: MeasureResult) -> list[Table | str]:
        """The wrongly ordered pairs that the evidence is surest of."""
        score: PracticalScore | None = result.score
        if score is None:
            return []
        if not score.worst:
            return [f"{result.name} orders every pair as the evidence does"]
        rows = [
            {
                "slice": f"{pair.family}, {SLICE_NAMES[pair.slice]}",
                "better": short_name(pair.better),
                "its error": f"{pair.error_better:.3f}",
                "its reading": f"{result.direction * pair.reading_better:.3g}",
                "worse": short_name(pair.worse),
                "error": f"{pair.error_worse:.3f}",
                "reading": f"{result.direction * pair.reading_worse:.3g}",
                "sds": f"{pair.certainty:.1f}",
            }
            for pair in score.worst[:_WORST_SHOWN]
        ]
        title = (
            f"where {result.name} is wrong: {score.wrong} of {2 * score.pairs} judgements, the surest "
            "first (sds: standard deviations between the errors)"
        )
        numbers = ["its error", "its reading", "error", "reading", "sds"]
        return [
            Table(list(rows[0]), rows, title, numbers),
            f"sign-error {score.value:.3f} is the mean of the shares in each family and slice, not "
            f"{score.wrong}/{2 * score.pairs}",
        ]

    def document(self, table: Path | None) -> TradeOffs:
        """Trade-off points."""
        return TradeOffs(dict(self.evidence.trade_offs))

    def run_measure(self, result: MeasureResult) -> Told:
        """Wrong pairs in sentences, and every part of the sign-error."""
        return _told(result)

    def run_evidence(self) -> list[FamilySection]:
        """A section per family."""
        return [
            self._family(name, f"family-{place}") for place, name in enumerate(self.evidence.cubes, start=1)
        ]

    def _family(self, name: str, place: str) -> FamilySection:
        cube, point = self.evidence.cubes[name], self.evidence.trade_offs[name]
        maps = {"error_mean": "mean error", "kappa_mean": "mean kappa"}
        solved = [
            ("objective", f"{point.objective:.6f} ({point.scales})"),
            ("gap to brute force", f"{point.gap:+.1e}"),
            ("solver", point.solver),
            *([("why not GEKKO", point.reason)] if point.reason else []),
        ]
        return FamilySection(
            id=place,
            name=name,
            models=[
                f"{short_name(str(model))} ({short_count(float(count))})"
                for model, count in zip(cube["model"].values, cube["weights"].values, strict=True)
            ],
            note=_of_adaptations(cube),
            marginals=inlined(f"marginals of {name}", marginal_figure, cube, point),
            heat_maps=[
                (label, inlined(f"{label} of {name}", heat_maps, cube, statistic, point))
                for statistic, label in maps.items()
            ],
            trade_off=[*_bounds(point), *solved],
            certified=point.certified,
        )

    def provenance(self) -> list[tuple[str, str]]:
        """Of every family's data."""
        return [
            (f"data of {name}", f"{cube.attrs.get('dataset', '')}, kappa {cube.attrs['kappa']}")
            for name, cube in self.evidence.cubes.items()
        ]

    # -- the site and the paper kit ----------------------------------------------------------------------

    def site_files(self) -> dict[str, bytes]:
        """What is known of the networks, once for the pages of all measures."""
        text = json.dumps(to_builtins(shared_networks(self.evidence.known)), separators=(",", ":"))
        return {"networks.js": f'"use strict";\nconst NETWORKS = {text};\n'.encode()}

    def board_page(self) -> BoardPage:
        """All sign-errors of all measures."""
        return BoardPage(error_scatter(self.judged.results))

    def evidence_page(self) -> EvidencePage:
        """Every family's cube, and where the pack comes from."""
        families = []
        for name, cube in self.evidence.cubes.items():
            point = self.evidence.trade_offs[name]
            figures = cube_figures(cube, point)
            families.append(
                FamilyCubes(
                    name=name,
                    models=figures.models,
                    note=_of_adaptations(cube),
                    figures=figures,
                    trade_off=[
                        *_bounds(point),
                        ("objective (normalised)", f"{point.objective:.3f}"),
                    ],
                    certified=point.certified,
                )
            )
        return EvidencePage(families=families, packed=self.packed())

    def packed(self) -> Rows:
        """With what the cubes were made."""
        data, testbed = self.evidence.suite.data, self.evidence.suite.testbed
        rows = dict(super().packed())
        repeat = rows.pop("rebuild and compare", "")
        data_hash = rows.pop("data sha256", "")
        return [
            *rows.items(),
            ("data", f"{data.dataset}: {data.seen} seen and {data.unseen} unseen classes"),
            ("data sha256", data_hash),
            ("degradation", testbed.degradation),
            ("heads of unseen classes", testbed.unseen_head),
            ("rebuild and compare", repeat),
        ]

    def measure_page(self, result: MeasureResult) -> MeasurePage:
        """Readings against evidence, and what went wrong."""
        return MeasurePage(
            figure=scatter(
                result,
                self.evidence.known,
                [(pair, *_readings(result, pair)) for pair in _wrong(result)[:_WORST_TOLD]],
            ),
            **structs.asdict(_told(result)),
            readings=[
                self._reading(*reading)
                for reading in result.outcomes.items()
                if len(result.outcomes) <= _MOST_ROWS or reading[1].value is None
            ],
            networks=len(result.outcomes),
        )

    def _reading(self, network: str, outcome: Outcome) -> ShownReading:
        known = self.evidence.known[network]
        error = outcome.detail.get("standard_error")
        return ShownReading(
            network=network,
            weights=short_count(known.weights),
            value="" if outcome.value is None else f"{outcome.value:.6g}",
            standard_error=f"{error:.2g}" if isinstance(error, (int, float)) else "",
            status=str(outcome.status),
            reason=reading_note(outcome),
            truth=[known.error(name) for name in SLICES],
            seconds=outcome.cost.seconds + outcome.cost.shared_seconds,
        )

    def figures(self, result: MeasureResult) -> dict[str, Figure]:
        """Marginals and heat maps of every family, all sign-errors, and the readings."""
        errors = sign_error_scatter(self.judged.results)
        found = {} if errors is None else {"sign-errors.pdf": errors}
        for family, cube in self.evidence.cubes.items():
            point = self.evidence.trade_offs[family]
            found[f"marginals-{family}.pdf"] = marginal_figure(cube, point)
            found[f"error-{family}.pdf"] = heat_maps(cube, "error_mean", point)
        return found | super().figures(result)


def _wrong(result: MeasureResult) -> list[WorstPair]:
    return [] if result.score is None else list(result.score.worst)


def _told(result: MeasureResult) -> Told:
    """Where a measure fails, in sentences, and its sign-error by part."""
    wrong, score = _wrong(result), result.score
    parts = [] if score is None else score.parts
    return Told(
        wrong=0 if score is None else score.wrong,
        judgements=sum(part.pairs for part in parts if part.statistic == HEADLINE),
        worst=[_explained(result, pair) for pair in wrong[:_WORST_TOLD]],
        parts=[ShownPart(part, SLICE_NAMES[part.slice], _STATISTICS[part.statistic]) for part in parts],
    )


def _readings(result: MeasureResult, pair: WorstPair) -> tuple[str, str]:
    """Of both, with as many digits as it takes to tell them apart."""
    digits = 4
    while digits < 17 and f"{pair.reading_better:.{digits}g}" == f"{pair.reading_worse:.{digits}g}":
        digits += 1  # they differ further behind the point
    first, second = pair.reading_better, pair.reading_worse
    return f"{result.direction * first:.{digits}g}", f"{result.direction * second:.{digits}g}"


def _explained(result: MeasureResult, pair: WorstPair) -> ToldPair:
    """Why a pair counts against the measure, in a sentence."""
    better, worse = short_name(pair.better), short_name(pair.worse)
    first, second = _readings(result, pair)
    return ToldPair(
        family=pair.family,
        slice=SLICE_NAMES[pair.slice],
        sentence=f"{better} errs less than {worse} ({pair.error_better:.3f} against "
        f"{pair.error_worse:.3f}), but {result.name} reads {first} for {better} and {second} for {worse}.",
        certainty=f"{pair.certainty:.1f}",
    )


def _of_adaptations(cube: xr.Dataset) -> str:
    """What the numbers of a cube are means of, where that is not one network of each model."""
    return f"; means over {cube.sizes[ADAPTATION]} adaptations of each" if ADAPTATION in cube.dims else ""


def _bounds(point: TradeOff) -> Rows:
    """The rows of the paper's Tables 2 and 3."""
    return [
        ("generalization bound", f"{point.generalization_bound:.3f}"),
        ("diversity bound", f"{point.diversity_bound:.3f}"),
        ("SSIM, lower bound", f"{point.ssim:.3f}"),
        ("zero-shot share, upper bound", f"{point.zero_shot:.3f}"),
        ("model size", f"{short_count(point.model_size)} weights"),
    ]
