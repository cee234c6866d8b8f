"""Makes all boards from the records, and tells whether those on disk are the ones they give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.leaderboard.board import Board, board_document, read_boards
from genbench.leaderboard.markdown import audit_matrix, markdown
from genbench.leaderboard.site import site_files
from genbench.records.references import reference_text
from genbench.suites.kind import kind_of

__all__ = ["Folders", "Written", "build", "stale"]

SITE_LIMIT = 5 * 10**6
"""Bytes of the whole site."""
_AUDITS = "audits.md"
"""Measures by stressors, beside the boards."""
SPOT_CHECKS = 2
"""Records of one suite, drawn at every check, whose slow scores are computed anew."""


@dataclass(frozen=True)
class Folders:
    """Where things lie."""

    boards: Path
    records: Path
    references: Path | None = None
    """Where the package keeps recorded readings; boards elsewhere leave it alone."""
    site: Path | None = None
    """Where the web site goes; it is made anew wherever it is wanted, and kept nowhere."""

    @property
    def audits(self) -> Path:
        """What `genbench audit --records` wrote."""
        return self.boards / "audits"

    @property
    def calibrations(self) -> Path:
        """What `genbench calibrate --records` wrote."""
        return self.boards / "calibrations"

    @property
    def trust(self) -> Path:
        """What was verified; beside the records' boards."""
        return self.boards / "trust"


def _read(folders: Folders, spot_checks: int | None = None) -> list[Board]:
    boards = read_boards(
        folders.records,
        folders.trust,
        spot_checks=spot_checks,
        audits=folders.audits,
        calibrations=folders.calibrations,
    )
    if not boards:
        raise UserError(f"{folders.records} holds no records; `genbench run --records DIR` writes them")
    return boards


def _board_files(boards: Sequence[Board]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for board in boards:
        document = json.dumps(
            to_builtins(board_document(board)), indent=1, sort_keys=True, ensure_ascii=False
        )
        files[f"{board.name}.json"] = (document + "\n").encode()
        files[f"{board.name}.md"] = markdown(board).encode()
        files |= {f"{board.name}.{end}": text.encode() for end, text in board.pages.board_files().items()}
    if matrix := audit_matrix(boards):
        files[_AUDITS] = matrix.encode()
    return files


@dataclass(frozen=True)
class Written:
    """What a build made: path below its folder to content."""

    boards: dict[str, bytes]
    site: dict[str, bytes]


def build(folders: Folders, *, full: bool = False) -> Written:
    """Write the boards anew, and the site where it is wanted; what is not made from a record goes.

    Records are validated as by `stale`.
    """
    if folders.site is not None:
        _require_own_site(folders.site)
    boards = _read(folders, None if full else SPOT_CHECKS)
    files = _board_files(boards)
    try:
        for path, text in _references(boards, folders).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        for name in _present(folders) - files.keys():
            (folders.boards / name).unlink()
        for name, content in files.items():
            folders.boards.mkdir(parents=True, exist_ok=True)
            write_atomically(folders.boards / name, content.decode())
    except OSError as problem:
        raise UserError(f"{folders.boards} cannot be written: {problem.strerror or problem}") from None
    return Written(files, {} if folders.site is None else _build_site(boards, files, folders.site))


def _build_site(boards: Sequence[Board], downloads: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
    shown = site_files(boards)
    size = sum(map(len, shown.values()))  # what a reader's browser may load; downloads are not
    if size > SITE_LIMIT:
        raise UserError(f"the site would have {size / 1e6:.1f} MB, more than {SITE_LIMIT / 1e6:.0f} MB")
    files = {**shown, **{f"data/{name}": content for name, content in downloads.items()}}
    try:
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    return files


def stale(folders: Folders, *, full: bool = False) -> list[str]:
    """One sentence for every file on disk that is not what the records give.

    Unless `full`, slow scores that no board ranks by are computed anew of a few records only.
    """
    boards = _read(folders, None if full else SPOT_CHECKS)
    files = _board_files(boards)
    # A kind may add files of any ending, so what there should be is looked for by its name.
    there = {name for name in files if (folders.boards / name).is_file()}
    problems = [f"{folders.boards / name} is missing" for name in files.keys() - there]
    problems += [
        f"{folders.boards / name} is not made from any record" for name in _present(folders) - files.keys()
    ]
    problems += [
        f"{folders.boards / name} is stale or was edited by hand"
        for name in there
        if (folders.boards / name).read_bytes() != files[name]
    ]
    problems += [
        f"{path} is not what the records give"
        for path, text in _references(boards, folders).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    return sorted(problems)


def _references(boards: Sequence[Board], folders: Folders) -> dict[Path, str]:
    """File to text of the recorded readings that ship with genbench."""
    if folders.references is None:
        return {}
    texts = {}
    for board in boards:
        records = [row.record for row in board.rows]
        texts[folders.references / f"{board.name}.json"] = reference_text(
            records, kind_of(board.evidence.suite), _answers(board)
        )
    return texts


def _answers(board: Board) -> dict[str, dict[str, dict[str, float | None]]]:
    """Measure to question to numbers, but for those that depend on who stands beside it."""
    if board.claims is None:
        return {}
    return {
        name: {
            question: {key: _kept(number) for key, number in vars(answer).items() if key != "p_holm"}
            for question, answer in one.questions.items()
            if answer.value is not None
        }
        for name, one in board.claims.measures.items()
    }


def _kept(number: float | None) -> float | None:
    """To ten digits: all that four digits and Holm's correction of it need, and no noise of sums."""
    return None if number is None else float(f"{number:.10g}")


def _present(folders: Folders) -> set[str]:
    """Files on disk that a build made, and may remove; others may lie beside them."""
    boards = [path.stem for path in folders.boards.glob("*.json") if _is_board(path)]
    own = {path.name for name in boards for path in folders.boards.glob(f"{name}.*") if path.is_file()}
    return own | ({_AUDITS} if (folders.boards / _AUDITS).is_file() else set())


def _is_board(path: Path) -> bool:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (
        isinstance(found, dict) and found.keys() >= {"genbench", "rows"} and found.get("suite") == path.stem
    )


def _require_own_site(folder: Path) -> None:
    """A site is written anew as a whole, so a folder of that name that is none of ours stops a build."""
    page = folder / "index.html"
    if folder.exists() and not (page.is_file() and "genbench" in page.read_text(encoding="utf-8")):
        raise UserError(f"{folder} is not a site that genbench made; give another folder with --site")
