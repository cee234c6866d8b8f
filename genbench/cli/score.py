"""`genbench score`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench.cli.common import common_options
from genbench.display.tables import fitting_columns, print_json, print_table, print_text

if TYPE_CHECKING:
    from genbench.scoring.all_scores import TableScores
    from genbench.scoring.columns import Columns

_NAMES: dict[str, Any] = {"metavar": "A,B", "default": ""}


@click.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--score", "scores", **_NAMES,
    help="Only these: sign_error, affine_oracle, kendall, independence, pgdl, cms.",
)  # fmt: skip
@click.option("--columns", type=click.Path(path_type=Path), metavar="TOML", help="A mapping of columns.")
@click.option("--hp", "hyperparameters", **_NAMES, help="Hyperparameter columns, if not `hp.…`.")
@click.option("--measures", **_NAMES, help="Measure columns, if not `complexity.…`; patterns too: '*_norm'.")
@click.option("--seed-column", "seed", metavar="COLUMN", default="", help="If not `seed`.")
@click.option("--gap", metavar="COLUMN", default="", help="If not `gap`.")
@click.option("--ood", **_NAMES, help="Gaps to shifted test sets, if not `gap_ood…`.")
@click.option("--test-error", metavar="COLUMN", default="", help="If not `test_error`.")
@click.option(
    "--test-size", metavar="COLUMN|N", default="", help="If not `test_size`; a number for all rows."
)
@click.option("--higher-is-better", **_NAMES, help="Measures that enter as −C.")
@click.option("--log", "logarithm", **_NAMES, help="Measures that already are logarithms, if not `log_…`.")
@click.option(
    "--where", multiple=True, metavar="COLUMN=A,B",
    help="Only rows with one of these values: dataset=svhn. Can be repeated.",
)  # fmt: skip
@click.option("--keep-unconverged", is_flag=True, help="Score rows that are marked unconverged too.")
@click.option("--complete-rows", is_flag=True, help="Leave out a row for all measures if one has no reading.")
@click.option("--target", default="", metavar="GAP", help="Score against this gap, not the IID one.")
@click.option(
    "--family", type=click.Choice(["strict", "pooled"]), default="strict", show_default=True,
    help="Environments of the sign-error: pairs of combos, or of one hyperparameter's values (001 D.3).",
)  # fmt: skip
@click.option("--no-noise-filter", is_flag=True, help="Give every pair of runs the weight 1 (sign-error).")
@click.option(
    "--min-n-eff", type=click.FloatRange(min=0), default=12.0, show_default=True,
    help="Drop environments with fewer effective pairs (sign-error).",
)  # fmt: skip
@click.option("--group-by", **_NAMES, help="Hyperparameters that make the groups of CMS.")
@click.option(
    "--combine", multiple=True, metavar="METHOD:A,B",
    help="Add a combination: pca, npca, avg, prod, prod+avg, avg_rank. Can be repeated.",
)  # fmt: skip
@click.option(
    "--resamples", type=click.IntRange(min=0), default=1000, show_default=True,
    help="Bootstrap resamples of seeds; large tables use fewer or none and say so; 0 for no intervals.",
)  # fmt: skip
@click.option(
    "--worst", type=click.IntRange(min=0), default=0, metavar="N",
    help="Also list the N environments where each measure fails worst.",
)  # fmt: skip
@click.option(
    "--by-values", **_NAMES,
    help="Measures whose sign-errors the page shows by pairs of values (001 Fig. 2); the best unless given.",
)  # fmt: skip
@click.option(
    "--questions", is_flag=True,
    help="Also ask every measure whether it says more than chance, size, training fit and settings.",
)  # fmt: skip
@click.option("--size", metavar="COLUMN", default="", help="Number of weights, if not `parameters`.")
@click.option("--train-loss", metavar="COLUMN", default="", help="If not `train_loss`.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one tidy table as CSV.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with figures.")
@common_options
def score(table: Path, as_json: bool, as_csv: bool, html: Path | None, worst: int, **given: Any) -> int:
    """Score measures on a table of runs.

    TABLE is a CSV or Parquet file with one row per trained network: hyperparameters (`hp.…`), `seed`, `gap`
    (training minus test accuracy), measures (`complexity.…`), and if there are any `test_error`,
    `test_size`, `gap_ood…`, `heldout_ece`, `converged`. Other names are given by options, or by a TOML file:

    \b
    hyperparameters = ["lr", "depth"]
    measures = ["path_norm", "sharpness"]
    gap = "gen_gap"
    test_size = 10000

    The table of paper 001 as it was published, its unnamed first column and all:

    \b
    genbench score nin_adjusted.csv --measures '*_adjusted1' --test-size 10000 \\
        --keep-unconverged --where dataset=svhn --html svhn.html
    """
    from genbench.api.tables import read_networks, score_networks
    from genbench.display.score_progress import score_progress
    from genbench.errors import UserError
    from genbench.scoring.all_scores import Options

    if as_json and as_csv:
        raise UserError("--json and --csv both print to standard output; give one of them")
    networks = read_networks(
        table,
        columns=_columns(given),
        where=given["where"],
        keep_unconverged=given["keep_unconverged"],
        complete_rows=given["complete_rows"],
        combine=given["combine"],
    )
    options = Options(
        target=given["target"],
        family=given["family"],
        noise_filter=not given["no_noise_filter"],
        min_n_eff=given["min_n_eff"],
        group_by=_short(given["group_by"]),
        resamples=given["resamples"],
    )
    chosen = _short(given["by_values"])
    for name in chosen:
        if name not in networks.measures:
            raise UserError(f"--by-values: no measure {name!r}; there are {', '.join(networks.measures)}")
    with score_progress(quiet=as_json) as progress:
        found = score_networks(networks, _list(given["scores"]), options, progress)
    scored = found.result
    asked = found.questions if given["questions"] else None
    if html is not None:
        found.report(html, chosen)
    if as_json:
        from genbench.report.score_document import score_document

        print_json(score_document(scored, worst, asked))
    elif as_csv:
        click.echo(scored.scores.to_csv(index=False), nl=False)
    else:
        _show(scored, worst)
        if asked is not None:
            from genbench.cli.judge import show_verdicts

            show_verdicts(*asked, title="Questions")
    if html is not None:
        click.echo(f"page: {html}", err=True)
    return 0


def _columns(given: dict[str, Any]) -> Columns:
    """The TOML mapping, if any, with what the options say on top."""
    from genbench.scoring.columns import Columns, read_columns

    columns = Columns() if given["columns"] is None else read_columns(given["columns"])
    names = ("hyperparameters", "measures", "ood", "higher_is_better", "logarithm")
    changes: dict[str, Any] = {name: _list(given[name]) for name in names}
    changes |= {name: given[name] for name in ("seed", "gap", "test_error", "size", "train_loss")}
    size = given["test_size"]
    changes["test_size"] = int(size) if size.lstrip("-").isdigit() else size
    return replace(columns, **{name: value for name, value in changes.items() if value not in ("", ())})


def _list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _short(text: str) -> tuple[str, ...]:
    from genbench.scoring.columns import short_name

    return tuple(map(short_name, _list(text)))


def _show(scored: TableScores, worst: int) -> None:
    from genbench.display.score_tables import score_tables, worst_environments

    for table in score_tables(scored):
        columns = fitting_columns(table.columns, table.rows)
        right = [c for c in columns if c not in ("measure", "fails worst at", "")]
        print_table(columns, table.rows, title=table.title, right=right)
        left = [column for column in table.columns if column not in columns]
        more = f"; a wider terminal shows {', '.join(left)}" if left else ""
        print_text(f"{table.score}: {table.note}{more}", err=True)
        click.echo(err=True)
    environments = worst_environments(scored, worst)
    if worst and environments is not None:
        columns = ["measure", "sign_error", "hyperparameter", "low_value", "high_value", "fixed", "n_eff"]
        rows = environments.sort_values("measure", kind="stable").to_dict("records")
        texts = [
            {**row, "sign_error": f"{row['sign_error']:.3f}", "n_eff": f"{row['n_eff']:.1f}"} for row in rows
        ]
        print_table(columns, texts, title=f"The {worst} environments where each measure fails worst")
    for name, reason in scored.skipped.items():
        print_text(f"{name}: skipped, {reason}", err=True)
    print_text(_summary(scored), err=True)


def _summary(scored: TableScores) -> str:
    from genbench.display.score_tables import losses

    networks = scored.networks
    text = f"{len(networks)} runs of {len(networks.runs)} combinations"
    if networks.where:
        text += f" with {' and '.join(networks.where)} ({networks.not_chosen} others not chosen)"
    if networks.left_out:
        text += f"; {networks.left_out} unconverged runs left out"
    return "\n".join([text, *losses(networks)])
