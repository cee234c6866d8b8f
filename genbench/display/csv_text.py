"""A record table as CSV: one row per network, for `genbench score` and for everyone else."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from genbench.display.tables import Shown

__all__ = ["table_text"]


def table_text(rows: Sequence[Mapping[str, Shown]]) -> str:
    """Rows as CSV; a column is where it first appears."""
    columns = dict.fromkeys(name for row in rows for name in row)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
