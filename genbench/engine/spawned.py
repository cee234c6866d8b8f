"""A guarded process that inherits nothing: told what to do, it answers as a forked one does.

Started by `genbench.engine.guard` as `python -m genbench.engine.spawned PARENT_PID CHANNEL_FD OUTPUT_FD`,
where a device does not survive a fork. Its imports, and loading the network, come before its work and its
limits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from genbench.engine.guarded import Ask, Work, die_with_parent, next_line, run_child
from genbench.engine.host import prepare_torch
from genbench.engine.messages import (
    Fresh,
    FreshWork,
    NetworkPlace,
    PartWork,
    Reading,
    ReadingsWork,
    SharedWork,
    StepWork,
    parse,
)
from genbench.engine.works import (
    OwnReadings,
    compute_for_plugins,
    compute_shared,
    load_network,
    step_work,
    take_plugins,
)
from genbench.errors import described
from genbench.plugin.registry import BUILT_IN, source_measures
from genbench.subject.subject import TrainedNetwork

__all__ = ["main"]


def main(parent: int, channel: int, output: int) -> None:
    """Do what the first line from `channel` says; never returns."""
    die_with_parent(parent)
    told = parse(next_line(channel), Fresh)
    prepare_torch()
    run_child(partial(_prepared, told.work), told.limits, channel, output, parent)


def _prepared(work: FreshWork) -> Sequence[Work]:
    """The pieces of work; where they cannot be had, ones that say why."""
    try:
        return _pieces(work)
    except Exception as problem:
        count = len(work.readings) if isinstance(work, ReadingsWork) else 1
        return [partial(_fail, problem)] * count


def _fail(problem: Exception, ask: Ask) -> NoReturn:
    raise problem


def _pieces(work: FreshWork) -> Sequence[Work]:
    if isinstance(work, StepWork):
        return [step_work(work.task)]
    if isinstance(work, PartWork):
        part = partial(compute_for_plugins, _network(work.network), work, {}, {})
        return [part]
    measures = source_measures(work.source, prepare=work.source.kind != BUILT_IN)
    network = _network(work.network)
    if isinstance(work, SharedWork):
        return [partial(compute_shared, network, work.function, work.part_seed)]
    if work.source.kind == BUILT_IN:
        own = OwnReadings(network, measures, work.part_seed, {}, {})
        return [partial(own.take, reading) for reading in work.readings]
    shared = work.shared

    def take(reading: Reading, ask: Ask) -> Any:
        return take_plugins(measures[reading.measure], reading, network, ask, shared=shared)

    return [partial(take, reading) for reading in work.readings]


def _network(place: NetworkPlace) -> TrainedNetwork:
    try:
        return load_network(place)
    except Exception as problem:
        raise RuntimeError(f"the subject could not be loaded: {described(problem)}") from problem


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
