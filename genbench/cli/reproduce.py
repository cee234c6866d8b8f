"""`genbench reproduce`: compute a row of a leaderboard again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options
from genbench.cli.execution import Execution, local_execution_options
from genbench.display.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.records.record import Record

_MOST_ROWS = 60


@click.command()
@click.argument("row", metavar="BOARD.json#MEASURE")
@click.option(
    "--store", type=click.Path(path_type=Path), metavar="DIR",
    help="Use and keep results here.  [default: compute everything, keep nothing]",
)  # fmt: skip
@local_execution_options
@common_options
def reproduce(
    row: str,
    store: Path | None,
    execution: Execution,
    as_json: bool,
) -> int:
    """Compute a row of a leaderboard again and compare.

    As in: genbench reproduce leaderboards/mini.json#path_norm. Exit code 1 if a reading differs by more than
    the tolerance.
    """
    from genbench.leaderboard.recompute import compare, recompute, require_measure, what_differs

    record = _record(row)
    entry = require_measure(record)
    name, suite = record.name, record.suite
    subjects = [reading.subject for reading in record.readings]
    if not as_json:
        seconds = sum(reading.seconds + reading.shared_seconds for reading in record.readings)
        click.echo(f"{name} on {suite}: {len(subjects)} readings, which took {seconds:.3g} s", err=True)
    how = execution.settle()
    found = recompute({name: subjects}, suite, store=store, quiet=as_json, **how)
    agreements = compare(record, found)
    differs = what_differs(record, entry)
    same = sum(one.same_bits for one in agreements)
    agrees = all(one.agrees for one in agreements)
    largest = max(one.tolerance for one in agreements)
    if as_json:
        print_json(
            {
                "suite": suite, "measure": name, "agrees": agrees, "same_bits": same == len(agreements),
                "tolerance": largest, "what_differs": differs, "readings": [
                    {
                        "subject": one.subject, "recorded": one.recorded, "found": one.found,
                        "status": one.status, "same_bits": one.same_bits, "agrees": one.agrees,
                        "tolerance": one.tolerance,
                    }
                    for one in agreements
                ],
            }
        )  # fmt: skip
        return 0 if agrees else 1
    rows = [
        {
            "network": one.subject,
            "recorded": _shown(one.recorded, one.recorded_status),
            "computed": _shown(one.found, one.status),
            "agreement": "to the bit" if one.same_bits else f"differs by {one.difference:.1e}",
        }
        for one in agreements
        # Of a population, only what is worth a look.
        if len(agreements) <= _MOST_ROWS or not one.same_bits
    ]
    if rows:
        print_table(["network", "recorded", "computed", "agreement"], rows, right=["recorded", "computed"])
    for sentence in differs:
        click.echo(sentence)
    click.echo(
        f"{same} of {len(agreements)} readings agree to the bit"
        + ("" if same == len(agreements) else f", all within {largest:g}" if agrees else "; NOT reproduced")
    )
    return 0 if agrees else 1


def _shown(value: float | None, status: str) -> str:
    return status if value is None else f"{value:.10g}"


def _record(row: str) -> Record:
    """The record behind "leaderboards/mini.json#path_norm", which must be the one the board was made from."""
    from genbench.errors import UserError
    from genbench.plugin.registry import unknown_name
    from genbench.records.validate import read_record
    from genbench.suites.evidence_packs import shipped_evidence

    file, hash_sign, measure = row.partition("#")
    if not hash_sign or not measure:
        raise UserError(
            f"{row!r} names no row; write BOARD.json#MEASURE, as leaderboards/mini.json#path_norm"
        )
    path = Path(file)
    try:
        board = json.loads(path.read_text(encoding="utf-8"))
        rows = {found["measure"]: found for found in board["rows"]}
        suite = str(board["suite"])
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not a board; `genbench leaderboard build` makes them") from None
    if measure not in rows:
        raise UserError(unknown_name("row", measure, rows, str(path.with_suffix(".md"))))
    evidence = shipped_evidence(suite)
    record = read_record(path.parent / "records" / evidence.suite.name / f"{measure}.json", evidence)
    if record.sha256 != rows[measure]["record"]:
        raise UserError(f"{path} was made from another record of {measure}; run `genbench leaderboard build`")
    return record
