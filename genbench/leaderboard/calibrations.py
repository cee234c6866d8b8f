"""Calibrations beside the boards: can the answers of a board be trusted (SPEC.md 6)?

`genbench calibrate --records leaderboards/calibrations` writes one for a suite, and boards and site show it.
It takes minutes and depends on the evidence alone, so boards do not compute it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, to_builtins

from genbench._version import __version__
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.packs.record_types import Count, RecordPart, Sha256, Text
from genbench.scoring.calibrate import Calibration
from genbench.scoring.questions import QUESTIONS
from genbench.suites.evidence import Evidence

__all__ = ["BoardCalibration", "pack_of", "read_calibration", "write_calibration"]

_LARGEST = 2**20
"""Bytes; real ones have a hundredth of it."""


class BoardCalibration(RecordPart, frozen=True, kw_only=True):
    """The calibration of a suite. Lies in calibrations/<suite>.json."""

    schema: Annotated[Literal[1], Meta(description="Version of this format.")] = 1
    suite: Text
    evidence: Annotated[Sha256, Meta(description="sha256 of the evidence pack's manifest.")]
    genbench: Text
    measures: Annotated[Count, Meta(description="Empty measures of each kind.")]
    permutations: Annotated[Count, Meta(description="Behind every p-value.")]
    found: Calibration

    @property
    def worst(self) -> float:
        """The largest share of empty measures of a kind that pass a question they must fail."""
        return max((one.share for one in self.found.false_passes if one.share is not None), default=0.0)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Every kind of empty measure, and in words how many pass each question; nothing where they may."""
        shares = {(one.empty, one.question): one.share for one in self.found.false_passes}
        kinds = dict.fromkeys(one.empty for one in self.found.false_passes)
        return [(kind, [_words((kind, question), shares) for question in QUESTIONS]) for kind in kinds]

    @property
    def sentence(self) -> str:
        """What a reader should know."""
        told = self.found.smallest_difference
        apart = (
            "no difference looked at is told apart four times in five"
            if told is None
            else f"a difference of {told:.2f} is told apart four times in five"
        )
        covered = self.found.covered
        held = "" if covered is None else f"95 % intervals hold the known sign-error in {covered:.1%}, and "
        return (
            f"Of {self.measures:,} measures of each kind that say nothing, at most {self.worst:.1%} pass a "
            f"question that they must fail, at the nominal 5 %; {held}{apart}."
        )


def _words(place: tuple[str, str], shares: dict[tuple[str, str], float | None]) -> str:
    if place not in shares:
        return ""
    share = shares[place]
    return "–" if share is None else f"{share:.1%}"


def pack_of(evidence: Evidence) -> str:
    """sha256 of the pack that a board of this suite is made with."""
    if evidence.pack is None or evidence.suite.changes or evidence.suite.quick:
        raise UserError(
            f"{evidence.suite.title} has no evidence pack of its own, so its calibration holds for no board; "
            "drop --records, or the options that change the suite"
        )
    return evidence.pack.hash


def write_calibration(
    folder: Path, evidence: Evidence, found: Calibration, *, measures: int, permutations: int
) -> Path:
    """Keep the calibration of a suite that ships with its evidence."""
    record = BoardCalibration(
        suite=evidence.suite.name,
        evidence=pack_of(evidence),
        genbench=__version__,
        measures=measures,
        permutations=permutations,
        found=found,
    )
    path = folder / f"{record.suite}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(to_builtins(record), indent=1, ensure_ascii=False) + "\n")
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror}") from None
    return path


def read_calibration(folder: Path, evidence: Evidence) -> BoardCalibration | None:
    """That of a suite, if there is one; a `UserError` if it was made with other evidence."""
    path = folder / f"{evidence.suite.name}.json"
    if not path.exists():
        return None
    again = f"run `genbench calibrate --suite {evidence.suite.name} --records {folder}` again"
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"{path} is larger than any calibration; {again}")
        found = msgspec.json.decode(path.read_bytes(), type=BoardCalibration)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{path} is not what `genbench calibrate` writes; {again}") from None
    pack = evidence.pack
    if found.suite != evidence.suite.name or pack is None or found.evidence != pack.hash:
        raise UserError(f"{path} was made with other evidence than the pack that ships; {again}")
    return found
