"""What a notebook shows of a result: a few sentences, a figure and a small table, as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from genbench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genbench.api.comparison import Comparison
    from genbench.api.readings import Reading
    from genbench.api.runs import Run
    from genbench.api.suites import LoadedSuite
    from genbench.api.tables import ScoredTable

__all__ = ["comparison_view", "reading_view", "run_view", "scored_view", "suite_view"]

_FEW = 3
_ROWS = 10
_BOLD = ' style="font-weight: bold"'

Shown = str | int | float | None


def reading_view(reading: Reading) -> str:
    """The value, and what each layer gave."""
    facts = [f"{reading.seconds:.2g} s"]
    if reading.peak_bytes:
        facts.append(f"{reading.peak_bytes / 2**20:,.0f} MB")
    if reading.standard_error is not None:
        facts.insert(0, f"± {reading.standard_error:.2g}")
    head = (
        f"<p><b>{_safe(reading.measure)}</b> of {_safe(reading.subject)}: <b>{float(reading):.6g}</b> "
        f"<small>{_safe(', '.join(facts))}</small></p>"
    )
    rows = [{"layer": name, "value": f"{value:.6g}"} for name, value in reading.layers.items()]
    return head + (_table(["layer", "value"], rows) if rows else "")


def suite_view(loaded: LoadedSuite) -> str:
    """What it is, and its networks' settings."""
    where = "no pack: networks are trained here" if loaded.pack is None else f"pack {loaded.pack.version}"
    head = f"<p><b>{_safe(loaded.suite.title)}</b>: {_safe(loaded.summary)} <small>{_safe(where)}</small></p>"
    rows = [{"network": one.label, **one.hyperparameters} for one in loaded.plan.networks[:_ROWS]]
    more = len(loaded) - len(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return head + _table(columns, rows) + (f"<p><small>and {more} more</small></p>" if more > 0 else "")


def run_view(run: Run) -> str:
    """The verdict on each measure asked for with its scatter, then where it stands."""
    parts = [f"<p><b>{_safe(run.suite)}</b></p>"]
    for name in run.measures[:_FEW]:
        parts.append(f"<p>{_safe(run.verdict(name))}</p>")
        try:
            parts.append(figure_html(run.scatter(name), f"readings of {name} against the truth"))
        except UserError as problem:
            parts.append(f"<p><small>{_safe(str(problem))}</small></p>")
    parts.append(_scores(run))
    return "".join(parts)


def _scores(run: Run) -> str:
    rows: list[dict[str, Shown]] = []
    marked = set()
    kept = 0
    for name, row in run.scores.iterrows():
        if not (row["asked"] or row["baseline"] or kept < _ROWS - 2):
            continue
        kept += 1
        if row["asked"]:
            marked.add(len(rows))
        rank, error = row["rank"], row["sign_error"]
        rows.append(
            {
                "rank": "" if rank is None or rank != rank else int(rank),
                "measure": str(name),
                "sign-error": "" if error != error else f"{error:.3f}",
                "95 %": "" if error != error else f"{row['low']:.3f} – {row['high']:.3f}",
                "passes": row.get("passes", ""),
            }
        )
    hidden = len(run.scores) - len(rows)
    more = f"<p><small>{hidden} more in <code>.scores</code></small></p>" if hidden else ""
    return _table(["rank", "measure", "sign-error", "95 %", "passes"], rows, marked) + more


def scored_view(scored: ScoredTable) -> str:
    """Every score of every measure, in one table."""
    summary = scored.summary.reset_index()
    rows = [
        {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in summary.head(40).to_dict("records")
    ]
    return _table([str(name) for name in summary.columns], rows)


def comparison_view(comparison: Comparison) -> str:
    """Both scores, both readings in one figure, and the pairs in which they differ."""
    differ = comparison.pairs.head(_ROWS).to_dict("records")
    return (
        f"<p>{_safe(comparison.sentence)}</p>"
        + figure_html(comparison.scatter(), "readings of both measures")
        + (_table(list(comparison.pairs.columns), differ) if differ else "")
    )


def figure_html(figure: Figure, description: str) -> str:
    """A figure in the notebook's own text colour."""
    from genbench.display.figures import inline_svg

    return f'<div style="max-width: 900px">{inline_svg(figure, description)}</div>'


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Shown]], marked: Iterable[int] = ()) -> str:
    chosen = set(marked)
    head = "".join(f"<th>{_safe(name)}</th>" for name in columns)
    body = "".join(
        f"<tr{_BOLD if place in chosen else ''}>"
        + "".join(f"<td>{_safe(row.get(name))}</td>" for name in columns)
        + "</tr>"
        for place, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(value: object) -> str:
    return "" if value is None or value != value else html.escape(str(value))
