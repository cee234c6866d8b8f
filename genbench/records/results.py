"""A record as a measure's result, as runs, boards and pages take it."""

from __future__ import annotations

import msgspec

from genbench.engine.cells import Cost, Outcome
from genbench.plugin.contract import MeasureInfo
from genbench.plugin.registry import Source
from genbench.records.record import About, Plugin, Reading, Record
from genbench.suites.result import MeasureResult

__all__ = ["about", "info_of", "result_of", "source_of"]


def result_of(record: Record) -> MeasureResult:
    """Readings of a record, not yet judged."""
    outcomes = {reading.subject: _outcome(reading) for reading in record.readings}
    return MeasureResult(info_of(record.measure), source_of(record.plugin), outcomes)


def info_of(about: About) -> MeasureInfo:
    """What a record keeps of a measure."""
    return MeasureInfo(**{**msgspec.structs.asdict(about), "needs": frozenset(about.needs)})


def about(info: MeasureInfo) -> About:
    """The same as a record has it."""
    known = {field.name: getattr(info, field.name) for field in msgspec.structs.fields(About)}
    return About(**{**known, "needs": sorted(info.needs)})


def source_of(plugin: Plugin) -> Source:
    """Who offered the measure."""
    return Source(plugin.kind, plugin.name, plugin.distribution, plugin.version)


def _outcome(reading: Reading) -> Outcome:
    result = {} if reading.value is None else {"value": reading.value, "detail": reading.detail}
    cost = Cost(
        reading.seconds,
        reading.shared_seconds,
        reading.peak_bytes,
        reading.device,
        reading.threads,
        reading.sandbox,
    )
    return Outcome(reading.status, reading.reason, result, cost, computed=False)
