"""Scores: readings of a measure compared with evidence. Array code on numpy, never torch.

    from genbench.scoring import read_table, robust_sign_error

    networks = read_table("runs.csv")             # or table_from_frame(a pandas table)
    robust_sign_error(networks)                     # a tidy pandas table: value, low, high per measure

The scores of record tables need pandas and scipy; each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from genbench.scoring.sign_error import sign_error

if TYPE_CHECKING:
    from genbench.scoring.affine import affine_oracle as affine_oracle
    from genbench.scoring.columns import Columns as Columns
    from genbench.scoring.combine import add_combination as add_combination
    from genbench.scoring.independence import conditional_independence as conditional_independence
    from genbench.scoring.kendall import granulated_kendall as granulated_kendall
    from genbench.scoring.network_table import NetworkTable as NetworkTable
    from genbench.scoring.pgdl import pgdl_score as pgdl_score
    from genbench.scoring.robust import robust_sign_error as robust_sign_error
    from genbench.scoring.robust import sign_error_environments as sign_error_environments
    from genbench.scoring.spread import cms as cms
    from genbench.scoring.table_files import read_table as read_table
    from genbench.scoring.table_files import table_from_frame as table_from_frame

_LAZY = {
    "Columns": "columns",
    "NetworkTable": "network_table",
    "add_combination": "combine",
    "affine_oracle": "affine",
    "cms": "spread",
    "conditional_independence": "independence",
    "granulated_kendall": "kendall",
    "pgdl_score": "pgdl",
    "read_table": "table_files",
    "table_from_frame": "table_files",
    "robust_sign_error": "robust",
    "sign_error_environments": "robust",
}

__all__ = ["sign_error", *_LAZY]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
