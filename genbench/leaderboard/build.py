"""Makes all boards from the records, and tells whether those on disk are the ones they give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.leaderboard.board import board_document, read_boards
from genbench.leaderboard.markdown import markdown
from genbench.leaderboard.site import site_files
from genbench.population.table import table_text
from genbench.suites.evidence_old import PopulationEvidence

__all__ = ["Folders", "board_files", "build", "stale"]

SITE_LIMIT = 5 * 10**6
"""Bytes of the whole site."""


@dataclass(frozen=True)
class Folders:
    """Where things lie."""

    boards: Path
    records: Path

    @property
    def trust(self) -> Path:
        """What was verified; beside the records' boards."""
        return self.boards / "trust"


def board_files(folders: Folders) -> dict[str, bytes]:
    """Path below the boards' folder to content of every file that the records give."""
    boards = read_boards(folders.records, folders.trust)
    if not boards:
        raise UserError(f"{folders.records} holds no records; `genbench run --records DIR` writes them")
    files: dict[str, bytes] = {}
    for board in boards:
        document = json.dumps(board_document(board), indent=1, sort_keys=True, ensure_ascii=False)
        files[f"{board.name}.json"] = (document + "\n").encode()
        files[f"{board.name}.md"] = markdown(board).encode()
        if isinstance(board.evidence, PopulationEvidence):
            # In the order of names: a rank that moves does not move a column.
            rows = board.evidence.table(sorted((row.record for row in board.rows), key=_measure_name))
            files[f"{board.name}.csv"] = table_text(rows).encode()
    files |= {f"site/{name}": content for name, content in site_files(boards).items()}
    size = sum(len(content) for name, content in files.items() if name.startswith("site/"))
    if size > SITE_LIMIT:
        raise UserError(f"the site would have {size / 1e6:.1f} MB, more than {SITE_LIMIT / 1e6:.0f} MB")
    return files


def _measure_name(record: Mapping[str, Any]) -> str:
    return str(record["measure"]["name"])


def build(folders: Folders) -> dict[str, bytes]:
    """Write the boards anew; what is not made from a record goes."""
    files = board_files(folders)
    try:
        shutil.rmtree(folders.boards / "site", ignore_errors=True)
        for name in _present(folders) - files.keys():
            (folders.boards / name).unlink()
        for name, content in files.items():
            path = folders.boards / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.startswith("site/"):
                path.write_bytes(content)
            else:
                write_atomically(path, content.decode())
    except OSError as problem:
        raise UserError(f"{folders.boards} cannot be written: {problem.strerror or problem}") from None
    return files


def stale(folders: Folders) -> list[str]:
    """One sentence for every file on disk that is not what the records give."""
    files = board_files(folders)
    present = _present(folders)
    problems = [f"{folders.boards / name} is missing" for name in files.keys() - present]
    problems += [
        f"{folders.boards / name} is not made from any record" for name in sorted(present - files.keys())
    ]
    problems += [
        f"{folders.boards / name} is stale or was edited by hand"
        for name in files.keys() & present
        if (folders.boards / name).read_bytes() != files[name]
    ]
    return sorted(problems)


def _present(folders: Folders) -> set[str]:
    """Files on disk that a build would own."""
    tops = [path for kind in ("json", "md", "csv") for path in folders.boards.glob(f"*.{kind}")]
    inside = [path for path in (folders.boards / "site").rglob("*") if path.is_file()]
    names = {path.relative_to(folders.boards).as_posix() for path in [*tops, *inside]}
    return names - {"README.md"}
