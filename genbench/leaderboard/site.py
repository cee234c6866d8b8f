"""The web site: static pages that need nothing from another host and work from a folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from genbench._version import __version__
from genbench.audit.report import MeasureAudit, pair_of
from genbench.audit.setups import STRESSORS
from genbench.display.papers import paper_of
from genbench.display.question_marks import marks_of, question_titles
from genbench.display.templates import template_environment
from genbench.leaderboard.board import Board, Row
from genbench.leaderboard.site_pages import (
    AuditLine,
    ComparedMeasure,
    ComparedRow,
    Comparison,
    CostDrawing,
    CostPoint,
    InvarianceMark,
    MatrixRow,
    MeasurePage,
    SiteAudit,
    SiteBoard,
    SiteRow,
)
from genbench.plugin.registry import BUILT_IN
from genbench.records.record import About, Record
from genbench.scoring.claims import Claims

__all__ = ["site_files"]

_ASSETS = Path(__file__).parent / "assets"
_INVARIANCES = {
    "hidden units permuted": "P",
    "consecutive layers rescaled": "R",
    "weights before batch norm scaled": "B",
    "four dead units added": "D",
}
"""How the names of the conformance kit's findings begin, and the letter that stands for each."""


def site_files(boards: Sequence[Board]) -> dict[str, bytes]:
    """Relative path to content of every file of the site."""
    environment = template_environment(
        "genbench.leaderboard", {board.evidence.suite.kind: board.pages.templates for board in boards}
    )

    def page(template: str, root: str, **content: Any) -> bytes:
        text = environment.get_template(template).render(
            root=root,
            version=__version__,
            suites=[board.name for board in boards],
            audited=any(one.audited for one in contents),
            **content,
        )
        return text.encode()

    contents = [_board(board) for board in boards]
    files = {f"assets/{path.name}": path.read_bytes() for path in sorted(_ASSETS.iterdir()) if path.is_file()}
    matrix = _matrix(contents)
    files["index.html"] = page("index.html.j2", ".", boards=contents, matrix=matrix, costs=_costs(contents))
    files["compare.html"] = page("compare.html.j2", ".", boards=contents, compared=_compared(boards, matrix))
    if any(content.audited for content in contents):
        files["audits.html"] = page(
            "audits.html.j2", ".", rows=_audited(contents), stressors=list(STRESSORS.values())
        )
    for board, content in zip(boards, contents, strict=True):
        pages, common = board.pages, _common(board)
        files |= {f"{board.name}/{name}": shared for name, shared in pages.site_files().items()}
        files[f"{board.name}/index.html"] = page(
            pages.board_template, "..", board=content, **structs.asdict(pages.board_page())
        )
        files[f"{board.name}/evidence.html"] = page(
            pages.evidence_template,
            "..",
            board=content,
            of_records=list(common.items()),
            **structs.asdict(pages.evidence_page()),
        )
        for row, shown in zip(board.rows, content.rows, strict=True):
            elsewhere = [other.name for other in boards if other is not board and row.name in other.names]
            home = next(other.name for other in boards if row.name in other.names)
            shared = _measure(board, row, elsewhere, home, common)
            own = {**structs.asdict(shared), **structs.asdict(pages.measure_page(row.result))}
            files[f"{board.name}/measures/{row.name}.html"] = page(
                pages.measure_template, "../..", board=content, row=shown, **own
            )
    return files


# -- the board ---------------------------------------------------------------------------------------


def _board(board: Board) -> SiteBoard:
    evidence = board.evidence
    rows = [_row(board, row) for row in board.rows]
    invariance = any(row.invariance for row in rows)
    return SiteBoard(
        name=board.name,
        summary=evidence.suite.summary,
        meaning=evidence.meaning,
        networks=len(evidence.networks),
        rows=rows,
        columns=evidence.columns,
        categories=sorted({row.category for row in rows}),
        invariance=invariance,
        audited=any(row.audit for row in rows),
        legend=_legend(board, invariance, audited=any(row.audit for row in rows)),
        band=None if board.claims is None else board.claims.band,
        questions=[] if board.claims is None else question_titles(board.claims),
        baselines={} if board.claims is None else board.claims.baselines,
        calibration=board.calibration,
        downloads=sorted(["json", "md", *board.pages.board_files()]),
    )


def _passes(claims: Claims) -> str:
    asked = " ".join(f"{name[0].upper()}, {name}: {about}" for name, about in question_titles(claims))
    return f"At 5 % after Holm over all measures, in this order, none after one that was failed. {asked}"


def _matrix(contents: Sequence[SiteBoard]) -> list[MatrixRow]:
    """Every measure with its row on each board, those that pass most questions first."""
    names = sorted({row.name for content in contents for row in content.rows})
    places = [{row.name: row for row in content.rows} for content in contents]
    found = []
    for name in names:
        rows = [place.get(name) for place in places]
        known = [row for row in rows if row is not None]
        values = [row.headline.value for row in known if row.headline]
        found.append(
            MatrixRow(
                name=name,
                summary=known[0].summary,
                category=known[0].category,
                baseline=known[0].baseline,
                rows=rows,
                passed=sum(row.passed for row in known),
                mean=sum(values) / len(values) if values else 1.0,
            )
        )
    return sorted(found, key=lambda one: (-one.passed, one.mean, one.name))


def _costs(contents: Sequence[SiteBoard]) -> list[CostDrawing]:
    """Of each board: seconds a network and sign-error of every measure, as places in a drawing."""
    drawings = []
    for content in contents:
        points = [
            (row, row.headline.value, max(row.seconds / max(row.valued, 1), 1e-4))
            for row in content.rows
            if row.headline is not None and row.seconds > 0
        ]
        if not points:
            continue
        low = math.floor(math.log10(min(seconds for *_, seconds in points)))
        high = max(low + 1, math.ceil(math.log10(max(seconds for *_, seconds in points))))
        drawings.append(
            CostDrawing(
                name=content.name,
                band=content.band,
                ticks=[
                    ((place - low) / (high - low), f"{10.0**place:g} s") for place in range(low, high + 1)
                ],
                points=[
                    CostPoint(
                        name=row.name,
                        x=(math.log10(seconds) - low) / (high - low),
                        y=value,
                        passed=row.passed,
                        seconds=seconds,
                    )
                    for row, value, seconds in points
                ],
            )
        )
    return drawings


def _compared(boards: Sequence[Board], matrix: Sequence[MatrixRow]) -> Comparison:
    """What the page that compares measures knows: marks, and which of two is surely better."""
    return Comparison(
        suites=[board.name for board in boards],
        measures={
            one.name: ComparedMeasure(
                summary=one.summary,
                family=one.category,
                suites=[None if row is None else _compared_row(row) for row in one.rows],
            )
            for one in matrix
        },
        apart=[_apart(board, [one.name for one in matrix]) for board in boards],
    )


def _compared_row(row: SiteRow) -> ComparedRow:
    headline = row.headline
    return ComparedRow(
        rank=row.rank,
        value=None if headline is None else round(headline.value, 3),
        low=None if headline is None else round(headline.low, 3),
        high=None if headline is None else round(headline.high, 3),
        marks=[mark.text for mark in row.marks],
        seconds=float(f"{row.seconds:.3g}"),
        trust=row.trust,
    )


def _apart(board: Board, names: Sequence[str]) -> dict[str, str]:
    found = {}
    for row in board.rows:
        tied = {row.name, *row.tied}
        found[row.name] = "".join("1" if name in board.names and name not in tied else "0" for name in names)
    return found


def _legend(board: Board, invariance: bool, *, audited: bool) -> dict[str, str]:
    """Heading to what stands below it."""
    letters = ", ".join(f"{letter} {name}" for name, letter in _INVARIANCES.items())
    marks = (
        f"Does the value stay the same (✓) when the function provably does? {letters}. "
        "~: it changes, but the measure draws random numbers, which may be why"
    )
    return {
        "rank": "One more than the number of measures that are surely better",
        "sign-error": "0 is perfect, ½ (the dashed mark) a coin, 1 always wrong; the bar its 95 % interval, "
        "the grey band what random numbers score",
        **({} if board.claims is None else {"passes": _passes(board.claims)}),
        **{column.label: column.about for column in board.evidence.columns},
        **({"survives": "Stressors of the audit under which it is robust"} if audited else {}),
        "readings": f"How many of the {len(board.evidence.networks)} networks have a value",
        "seconds": "All readings together, shared parts included",
        **({"invariance": marks} if invariance else {}),
        "trust": "claimed; checked: the conformance kit passed; reproduced: values were recomputed; suspect: "
        "worse on fresh networks than chance explains, or its readings change with the evidence",
    }


def _row(board: Board, row: Row) -> SiteRow:
    score = row.score
    return SiteRow(
        name=row.name,
        rank=row.rank,
        tied=row.tied,
        baseline=row.baseline,
        category=row.record.measure.category,
        summary=row.record.measure.summary,
        plugin="" if row.record.plugin.kind == BUILT_IN else _plugin(row.record),
        score=score,
        headline=row.headline,
        marks=[] if row.verdict is None else marks_of(row.verdict),
        passed=0 if row.verdict is None else len(row.verdict.verdict),
        same_order=row.same_order,
        numbers={
            column.label: None if score is None else column.number(score) for column in board.evidence.columns
        },
        statuses=sorted(row.record.statuses.items(), key=lambda item: (-item[1], item[0])),
        valued=row.record.statuses.get("ok", 0),
        problem=not row.record.statuses.keys() <= {"ok", "not_applicable"},
        seconds=row.seconds,
        trust=row.trust.level,
        reproduced=row.trust.reproduced,
        challenge=[] if row.trust.challenge is None else row.trust.challenge.sentences(),
        invariance=_marks(row.trust.findings, drawn=row.record.measure.randomness == "seeded"),
        audit=None if row.audit is None else _audit(row.audit),
    )


_STYLES = {"robust": "ok", "fragile": "problem", "blind": "not_applicable", "not applicable": "soft"}


def _audit(audit: MeasureAudit) -> SiteAudit:
    return SiteAudit(
        survived=audit.survived,
        lines=[
            AuditLine(
                title=STRESSORS[one.stressor].title,
                verdict=one.verdict,
                style=_STYLES[one.verdict],
                number="" if one.number is None else f"{one.number:.3g}",
                why=one.why,
                networks="" if one.networks is None else _two(*one.networks),
                notes=list(one.notes),
            )
            for one in audit.verdicts
        ],
        card=[(pair_of(one), one.detail) for one in audit.card],
    )


def _two(first: str, second: str) -> str:
    """Two networks of a stressor in one line: "net fcn, n 75: optimizer sgd / optimizer adam"."""
    one, other = (name.partition(": ")[2].split(", ") for name in (first, second))
    common = [part for part in one if part in other]
    apart = [", ".join(part for part in parts if part not in common) for parts in (one, other)]
    said = ", ".join(common)
    return said if not any(apart) else f"{said}{': ' if said else ''}{' / '.join(apart)}"


def _audited(contents: Sequence[SiteBoard]) -> list[tuple[str, SiteRow]]:
    """Board and row of every measure, those that survive most first, those without an audit last."""
    rows: dict[str, tuple[str, SiteRow]] = {}
    for content in contents:
        for row in content.rows:
            if row.name not in rows or rows[row.name][1].audit is None:
                rows[row.name] = (content.name, row)

    def place(one: tuple[str, SiteRow]) -> tuple[int, str]:
        return (1 if one[1].audit is None else -one[1].audit.survived), one[1].name

    return sorted(rows.values(), key=place)


def _marks(findings: Mapping[str, str], *, drawn: bool) -> list[InvarianceMark]:
    """What the conformance kit found; of a measure that draws random numbers, a change may be chance."""
    changes = ("~", "changes, perhaps by chance") if drawn else ("✗", "changes")
    return [
        InvarianceMark(
            letter=letter,
            name=name,
            unchanged=findings[name] == "unchanged",
            mark="✓" if findings[name] == "unchanged" else changes[0],
            said="unchanged" if findings[name] == "unchanged" else changes[1],
        )
        for start, letter in _INVARIANCES.items()
        for name in findings
        if name.startswith(start)
    ]


def _plugin(record: Record) -> str:
    plugin = record.plugin
    return f"{plugin.distribution or plugin.name} {plugin.version}".strip()


# -- one measure -------------------------------------------------------------------------------------


def _measure(
    board: Board, row: Row, elsewhere: list[str], home: str, common: Mapping[str, str]
) -> MeasurePage:
    record = row.record
    provenance = _provenance(record)
    paper, place = paper_of(record.measure.paper)
    return MeasurePage(
        about=record.measure,
        formula=_paragraphs(record.measure),
        paper=paper,
        place=place,
        provenance=[(name, said) for name, said in provenance if common.get(name) != said],
        shares=any(common.get(name) == said for name, said in provenance),
        command=record.provenance.command,
        reproduce=f"genbench reproduce leaderboards/{board.name}.json#{row.name}",
        elsewhere=elsewhere,
        audited_on=home,
    )


def _paragraphs(about: About) -> list[tuple[str, str]]:
    """The docstring of a measure: texts, and indented blocks that keep their lines; not its summary."""
    found = []
    for block in about.description.split("\n\n"):
        if not block.strip() or block.strip() == about.summary:
            continue
        indented = any(line.startswith("    ") for line in block.splitlines())
        found.append(("lines", block) if indented else ("text", " ".join(block.split())))
    return found or [("text", about.summary)]


def _machine(record: Record) -> str:
    """Also devices and threads, where they are not one thread of the CPU."""
    machine = record.provenance.platform
    used = {(reading.device, reading.threads) for reading in record.readings} - {("cpu", 1)}
    devices = "".join(f", {device} with {threads} threads" for device, threads in sorted(used))
    return f"{machine.system} {machine.machine}, Python {machine.python}, {machine.libc}{devices}"


def _common(board: Board) -> dict[str, str]:
    """What more than half of the records say alike of where they come from: told once, not on every page."""
    said = [dict(_provenance(row.record)) for row in board.rows]
    names = ("genbench", "evidence pack", "data sha256", "suite sha256", "packages", "machine")
    counts = {name: Counter(one[name] for one in said).most_common(1)[0] for name in names}
    return {name: value for name, (value, count) in counts.items() if 2 * count > len(said) > 2}


def _provenance(record: Record) -> list[tuple[str, str]]:
    origin, git = record.provenance, record.provenance.git
    return [
        ("offered by", f"{record.plugin.kind}: {_plugin(record)}"),
        ("measure version", record.measure.version),
        ("source sha256", record.plugin.sha256),
        ("genbench", origin.genbench),
        ("git", "" if git is None else git.commit + (" and uncommitted changes" if git.dirty else "")),
        ("evidence pack", origin.evidence or ""),
        ("data sha256", origin.data_sha256 or ""),
        ("suite sha256", origin.suite_sha256),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(origin.packages.items()))),
        ("machine", _machine(record)),
        ("record sha256", record.sha256),
    ]
