"""The web site: static pages that need nothing from another host and work from a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench import __version__
from genbench.leaderboard.board import Board, Row
from genbench.leaderboard.figures import SLICE_NAMES, cube_figures, scatter
from genbench.leaderboard.papers import paper_of
from genbench.report.cubes import short_count, short_name

if TYPE_CHECKING:
    from jinja2 import Environment

    from genbench.scoring.practical import WorstPair

__all__ = ["site_files"]

_ASSETS = Path(__file__).parent / "assets"
_MOST_WORST = 10
_INVARIANCES = {
    "hidden units permuted": "P",
    "consecutive layers rescaled": "R",
    "weights before batch norm scaled": "B",
    "four dead units added": "D",
}
"""How the names of the conformance kit's findings begin, and the letter that stands for each."""
_STATISTICS = {"mean": "M", "sd": "SD", "p10": "P10"}


def site_files(boards: Sequence[Board]) -> dict[str, bytes]:
    """Relative path to content of every file of the site."""
    environment = _environment()

    def page(template: str, root: str, **content: Any) -> bytes:
        text = environment.get_template(template).render(
            root=root, version=__version__, suites=[board.name for board in boards], **content
        )
        return text.encode()

    files = {f"assets/{path.name}": path.read_bytes() for path in sorted(_ASSETS.iterdir()) if path.is_file()}
    files["index.html"] = page("index.html.j2", ".", boards=[_board(board) for board in boards])
    for board in boards:
        files[f"{board.name}/index.html"] = page("board.html.j2", "..", board=_board(board))
        families = [_family(board, name) for name in board.evidence.cubes]
        files[f"{board.name}/evidence.html"] = page(
            "evidence.html.j2", "..", board=_board(board), families=families, packed=_packed(board)
        )
        for row in board.rows:
            files[f"{board.name}/measures/{row.name}.html"] = page(
                "measure.html.j2", "../..", board=_board(board), row=_row(row), **_measure(board, row)
            )
    return files


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("genbench.leaderboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Curves and maps keep their order.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.filters["seconds"] = _shown_seconds
    return environment


def _shown_seconds(value: float) -> str:
    return "<0.01" if value < 0.005 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _board(board: Board) -> dict[str, Any]:
    rows = [_row(row) for row in board.rows]
    return {
        "name": board.name,
        "summary": board.evidence.suite.summary,
        "networks": board.evidence.suite.networks,
        "rows": rows,
        "categories": sorted({row["category"] for row in rows}),
        "invariance": any(row["invariance"] for row in rows),
        "letters": [(letter, name) for name, letter in _INVARIANCES.items()],
    }


def _row(row: Row) -> dict[str, Any]:
    from genbench.scoring.practical import SLICES

    return {
        "name": row.name,
        "rank": row.rank,
        "tied": row.tied,
        "baseline": row.baseline,
        "category": row.record["measure"]["category"],
        "summary": row.record["measure"]["summary"],
        "plugin": "" if row.record["plugin"]["kind"] == "built-in" else _plugin(row),
        "score": row.score,
        "slices": [row.score.slice_value(name) for name in SLICES] if row.score else [None, None],
        "statuses": sorted(row.record["statuses"].items(), key=lambda item: (-item[1], item[0])),
        "valued": row.record["statuses"].get("ok", 0),
        "seconds": row.seconds,
        "trust": row.trust.level,
        "reproduced": row.trust.reproduced,
        "invariance": _marks(row.trust.findings),
    }


def _marks(findings: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"letter": letter, "name": name, "unchanged": findings[name] == "unchanged"}
        for start, letter in _INVARIANCES.items()
        for name in findings
        if name.startswith(start)
    ]


def _plugin(row: Row) -> str:
    plugin = row.record["plugin"]
    return f"{plugin['distribution'] or plugin['name']} {plugin['version']}".strip()


# -- one measure -------------------------------------------------------------------------------------


def _measure(board: Board, row: Row) -> dict[str, Any]:
    from genbench.scoring.practical import HEADLINE

    score, record = row.score, row.record
    truth = board.evidence.truth.record()
    paper, place = paper_of(record["measure"]["paper"])
    wrong = score.worst if score else []
    return {
        "about": record["measure"],
        "formula": _paragraphs(record["measure"]),
        "paper": paper,
        "place": place,
        "figure": scatter(row, board.evidence),
        "parts": [
            {"part": part, "slice": SLICE_NAMES[part.slice], "statistic": _STATISTICS[part.statistic]}
            for part in (score.parts if score else [])
        ],
        "wrong": len(wrong),
        "judgements": sum(p.pairs for p in score.parts if p.statistic == HEADLINE) if score else 0,
        "worst": [_explained(row, pair) for pair in wrong[:_MOST_WORST]],
        "readings": [_reading(reading, truth[reading["subject"]]) for reading in record["readings"]],
        "provenance": _provenance(record),
        "command": record["provenance"]["command"],
        "reproduce": f"genbench reproduce leaderboards/{board.name}.json#{row.name}",
    }


def _paragraphs(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The docstring of a measure: texts, and indented blocks that keep their lines; not its summary."""
    found = []
    for block in about["description"].split("\n\n"):
        if not block.strip() or block.strip() == about["summary"]:
            continue
        indented = any(line.startswith("    ") for line in block.splitlines())
        found.append(("lines", block) if indented else ("text", " ".join(block.split())))
    return found or [("text", about["summary"])]


def _explained(row: Row, pair: WorstPair) -> dict[str, str]:
    """Why a pair counts against the measure, in a sentence."""
    direction = 1.0 if row.record["measure"]["higher_means"] == "worse" else -1.0
    better, worse = short_name(pair.better), short_name(pair.worse)
    digits = 4
    while digits < 17 and f"{pair.reading_better:.{digits}g}" == f"{pair.reading_worse:.{digits}g}":
        digits += 1
    first, second = (f"{direction * value:.{digits}g}" for value in (pair.reading_better, pair.reading_worse))
    return {
        "family": pair.family,
        "slice": SLICE_NAMES[pair.slice],
        "sentence": f"{better} errs less than {worse} ({pair.error_better:.3f} against "
        f"{pair.error_worse:.3f}), but {row.name} reads {first} for {better} and {second} for {worse}.",
        "certainty": f"{pair.certainty:.1f}",
    }


def _reading(reading: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
    from genbench.scoring.practical import HEADLINE, SLICES

    error = reading["detail"].get("standard_error")
    return {
        "network": reading["subject"],
        "weights": short_count(truth["weights"]),
        "value": "" if reading["value"] is None else f"{reading['value']:.6g}",
        "standard_error": f"{error:.2g}" if isinstance(error, (int, float)) else "",
        "status": reading["status"],
        "reason": reading["reason"],
        "truth": [truth[name][HEADLINE] for name in SLICES],
        "seconds": reading["seconds"] + reading["shared_seconds"],
    }


def _provenance(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    origin, plugin, git = record["provenance"], record["plugin"], record["provenance"]["git"]
    machine = origin["platform"]
    return [
        ("offered by", f"{plugin['kind']}: {plugin['distribution'] or plugin['name']} {plugin['version']}"),
        ("measure version", record["measure"]["version"]),
        ("source sha256", plugin["sha256"]),
        ("genbench", origin["genbench"]),
        ("git", "" if git is None else git["commit"] + (" and uncommitted changes" if git["dirty"] else "")),
        ("evidence pack", origin["evidence"] or ""),
        ("data sha256", origin["data_sha256"] or ""),
        ("suite sha256", origin["suite_sha256"]),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(origin["packages"].items()))),
        (
            "machine",
            f"{machine['system']} {machine['machine']}, Python {machine['python']}, {machine['libc']}",
        ),
        ("record sha256", record["sha256"]),
    ]


# -- the evidence ------------------------------------------------------------------------------------


def _family(board: Board, name: str) -> dict[str, Any]:
    cube, point = board.evidence.cubes[name], board.evidence.trade_offs[name]
    figures = cube_figures(cube, point)
    return {
        "name": name,
        "models": figures["models"],
        "figures": figures,
        "trade_off": [
            ("generalization bound", f"{point['generalization_bound']:.3f}"),
            ("diversity bound", f"{point['diversity_bound']:.3f}"),
            ("SSIM, lower bound", f"{point['ssim']:.3f}"),
            ("zero-shot share, upper bound", f"{point['zero_shot']:.3f}"),
            ("model size", f"{short_count(point['model_size'])} weights"),
            ("objective (normalised)", f"{point['objective']:.3f}"),
        ],
        "certified": point["certified"],
    }


def _packed(board: Board) -> list[tuple[str, str]]:
    manifest = board.evidence.pack.manifest
    data, testbed = manifest["evidence"]["data"], manifest["evidence"]["testbed"]
    return [
        ("evidence pack", board.evidence.pack.version),
        ("pack sha256", board.evidence.pack.hash),
        ("data", f"{data['dataset']}: {data['seen']} seen and {data['unseen']} unseen classes"),
        ("data sha256", manifest["data_hash"]),
        ("degradation", testbed["degradation"]),
        ("heads of unseen classes", testbed["unseen_head"]),
        ("rebuild and compare", f"genbench pack verify --suite {board.name}"),
    ]
