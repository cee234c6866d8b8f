"""Boards of both kinds, with a site, made once for all tests that look at what they show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from population_records import population_records
from test_leaderboard import records
from test_records import make_record, numbers, write

from genbench.leaderboard import build as building
from genbench.leaderboard.board import Board
from genbench.records.write import record_text
from genbench.scoring import claims

__all__ = ["ShownBoards", "write_population"]


def write_population(folder: Path, record: dict[str, Any]) -> Path:
    path = folder / str(record["suite"]) / f"{record['measure']['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record_text(record), encoding="utf-8")
    return path


@dataclass(frozen=True)
class ShownBoards:
    """Not to be changed."""

    folders: building.Folders
    boards: dict[str, Board]
    """By suite, as the build read them off the records: judging takes a quarter of a minute."""

    @classmethod
    def build(cls, folder: Path) -> ShownBoards:
        for record in [*records(), make_record("path_norm", numbers(7), category="path", paper="001 (27)")]:
            write(folder / "records", record)
        for record in population_records():
            write_population(folder / "records", record)
        folders = building.Folders(folder, folder / "records", site=folder / "site")
        found: list[Board] = []
        read_boards = building.read_boards

        def remembered(*places: Any, **options: Any) -> list[Board]:
            found.extend(read_boards(*places, **options))
            return found

        # What boards show of an answer is the same for any number of permutations, and they take seconds.
        few = partial(claims.judge, permutations=2000)
        with (
            mock.patch.object(building, "read_boards", remembered),
            mock.patch.object(claims, "judge", few),
        ):
            building.build(folders)
        return cls(folders, {board.name: board for board in found})
