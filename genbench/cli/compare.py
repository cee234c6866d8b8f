"""`genbench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from genbench.api.execution import Execution, execution_arguments
from genbench.api.suites import DEFAULT_SUITE
from genbench.cli.common import common_options, store_option
from genbench.cli.execution import execution_options
from genbench.cli.names import complete_measures
from genbench.display.tables import fitting_columns, print_json, print_table, print_text

__all__ = ["compare"]

_MOST_READINGS = 60
_MOST_PAIRS = 12


@click.command()
@click.argument("first", metavar="A", shell_complete=complete_measures)
@click.argument("second", metavar="B", shell_complete=complete_measures)
@click.option(
    "--suite", "-s", default=DEFAULT_SUITE, show_default=True, metavar="NAME|FILE.toml",
    help="What to compare them on.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="On a small subset of it.")
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE.png|.pdf|.svg",
    help="Also draw both readings against each other.",
)  # fmt: skip
@store_option
@execution_options
@common_options
def compare(
    first: str,
    second: str,
    suite: str,
    quick: bool,
    picture: Path | None,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> None:
    """Set two measures side by side.

    A and B are measures by name or file: two ideas, or two versions of one file. Shows their readings and
    scores, whether the evidence can tell them apart, and the pairs of networks that one orders right and the
    other wrong.
    """
    from genbench.api.comparison import compare as compare_measures

    found = compare_measures(
        first, second, suite, quick=quick, store=store, progress=not as_json, **execution_arguments(execution)
    )
    if picture is not None:
        found.scatter().savefig(picture, facecolor="white")
    if as_json:
        print_json(
            {
                "measures": found.measures,
                "p": found.p,
                "scores": _records(found.scores.reset_index()),
                "readings": _records(found.readings.reset_index()),
                "pairs": _records(found.pairs),
            }
        )
        return
    readings = found.readings.reset_index()
    if len(readings) <= _MOST_READINGS:
        rows = [{k: _shown(v) for k, v in row.items()} for row in readings.to_dict("records")]
        print_table(["network", "truth", *found.measures], rows, right=["truth", *found.measures])
    scores = found.scores.reset_index()[["measure", "rank", "sign_error", "low", "high"]]
    rows = [{k: _shown(v) for k, v in row.items()} for row in scores.to_dict("records")]
    print_table(list(scores), rows, right=["rank", "sign_error", "low", "high"])
    pairs = [
        {k: _shown(v) for k, v in row.items()} for row in found.pairs.head(_MOST_PAIRS).to_dict("records")
    ]
    if pairs:
        columns = fitting_columns(["worse", "better", "right", "apart", "against"], pairs)
        title = f"pairs in which they differ: the {len(pairs)} furthest apart of {len(found.pairs)}"
        print_table(columns, pairs, title=title, right=["apart"])
    print_text(found.sentence)
    if picture is not None:
        click.echo(f"picture: {picture}")


def _records(frame: object) -> object:
    import json

    return json.loads(frame.to_json(orient="records", double_precision=15))  # type: ignore[attr-defined]


def _shown(value: object) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
