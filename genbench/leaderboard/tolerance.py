"""How well a reading must agree with the same one computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from genbench.engine.cells import Cost
from genbench.records.provenance import package_versions, processor
from genbench.records.record import Reading, Record

__all__ = ["TOLERANCE", "Tolerance", "tolerance_of"]


@dataclass(frozen=True)
class Tolerance:
    """Relative differences, by what is not the same."""

    alike: float = 0.0
    """Nothing: processor, packages and threads are the same, and no GPU had a part in it."""
    threads: float = 1e-6
    """The number of threads alone, of measures that draw nothing: sums run in another order."""
    elsewhere: float = 1e-4
    """A device, a processor or a package, or anything with a measure that draws: last bits differ, and
    searches such as that for sigma multiply the difference."""


TOLERANCE = Tolerance()
"""What boards and `genbench reproduce` compare with."""


def tolerance_of(record: Record, reading: Reading, found: Cost) -> float:
    """What a recorded reading may differ by from one computed now, on this machine, as `found` says."""
    origin = record.provenance
    here = origin.platform.processor == processor() != "" and origin.packages == package_versions()
    if not here or reading.device != "cpu" or found.device != "cpu":
        return TOLERANCE.elsewhere
    if reading.threads == found.threads:
        return TOLERANCE.alike
    return TOLERANCE.threads if record.measure.randomness == "none" else TOLERANCE.elsewhere
