"""Takes one reading in this process: a measure of a subject, and what it took."""

from __future__ import annotations

import time

import torch

from genbench.engine.messages import Found, Reading
from genbench.engine.value import result_record
from genbench.errors import NotApplicable
from genbench.plugin.contract import Measure
from genbench.subject.parts import CountedParts, seed_globals
from genbench.subject.subject import Subject, TrainedNetwork

__all__ = ["take"]


def take(measure: Measure, reading: Reading, network: TrainedNetwork, parts: CountedParts) -> Found:
    """Call `measure`; its exceptions come through."""
    seed_globals(reading.seed)
    if network.device.type != "cpu":
        torch.manual_seed(reading.seed)  # the device's own generator too
    subject = Subject(network, parts, seed=reading.seed)
    lacking = measure.needs - subject.provides
    if lacking:
        raise NotApplicable(f"it needs {', '.join(sorted(lacking))}, which this subject does not have")
    began = time.perf_counter()
    result = result_record(measure(subject))
    seconds = time.perf_counter() - began - parts.waited
    return Found(result, seconds, sum(parts.shared_seconds.values()))
