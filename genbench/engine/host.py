"""A worker process: holds one subject and its shared parts, and forks a guarded child for every cell.

It runs genbench's own code only. A measure, the import of its plugin included, runs in a forked child and
sees the host's memory as it was at the fork, in which there never was held-out data: cells that read
held-out data do so in children of their own.

Started by `genbench.engine.local` as `python -m genbench.engine.host PARENT_PID SCRATCH`; speaks JSON lines.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from genbench.engine.cells import Cost, Outcome, Status
from genbench.engine.guard import Ask, Limits, die_with_parent, run_guarded
from genbench.engine.messages import Job, line, parse
from genbench.engine.readings import READING
from genbench.engine.steps import load_named, load_step
from genbench.engine.value import result_record
from genbench.errors import NotApplicable, described
from genbench.plugin.registry import Source, source_measures
from genbench.subject.parts import AskedParts, Part, part_label, save_part, timed_part
from genbench.subject.subject import Subject, TrainedNetwork

__all__ = ["ReadingHost", "main"]


class ReadingHost:
    """One loaded subject, its shared parts, and the readings taken of it."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._group = ""
        self._network: TrainedNetwork | None = None
        self._part_seed = 0
        self._parts: dict[str, tuple[Part, float]] = {}
        self._refusals: dict[str, str] = {}
        self._limits = Limits(0, 0)

    def load(self, group: str, network: TrainedNetwork, part_seed: int) -> None:
        """Hold `network` from now on; parts of the one before are dropped."""
        self._group, self._network, self._part_seed = group, network, part_seed
        self._parts.clear()
        self._refusals.clear()
        # Folded here, once, so that every child inherits the result with the fork.
        _ = network.folded, network.folded_initial

    @property
    def group(self) -> str:
        """Which subject is loaded."""
        return self._group

    def read(self, source: Source, measure: str, seed: int, limits: Limits) -> Outcome:
        """One measure on the loaded subject, in a guarded child."""
        network = self._network
        assert network is not None
        self._limits = limits

        def work(ask: Ask) -> Mapping[str, Any]:
            parts = AskedParts(ask, self._parts, self._refusals)
            _seed_globals(seed)
            chosen = source_measures(source)[measure]
            subject = Subject(network, parts, seed=seed)
            lacking = chosen.needs - subject.provides
            if lacking:
                raise NotApplicable(
                    f"it needs {', '.join(sorted(lacking))}, which this subject does not have"
                )
            began = time.perf_counter()
            found = result_record(chosen(subject))
            seconds = time.perf_counter() - began - parts.waited
            return {**found, "seconds": seconds, "shared": sum(parts.shared_seconds.values())}

        outcome = run_guarded(work, limits, self._answer)
        result = dict(outcome.result)
        cost = outcome.cost
        if outcome.status is Status.OK:
            cost = Cost(result.pop("seconds"), result.pop("shared"), cost.peak_bytes)
        return replace(outcome, result=result, cost=cost)

    def _answer(self, request: dict[str, Any], seconds_left: float) -> dict[str, Any]:
        """Give a child the shared part it asks for, computing it in a guarded child of its own."""
        name, options = str(request.get("name")), dict(request.get("options", {}))
        label = part_label(name, options)
        file = self._scratch / "part.safetensors"
        if label not in self._parts and label not in self._refusals:
            outcome = self._compute(
                name, options, self._scratch / f"{time.time_ns()}.safetensors", seconds_left
            )
            if outcome is not None:
                return {"status": str(outcome.status), "reason": outcome.reason}
        if label in self._refusals:
            return {"status": str(Status.NOT_APPLICABLE), "reason": self._refusals[label]}
        part, seconds = self._parts[label]
        save_part(part, file)
        return {"status": "ok", "file": str(file), "seconds": seconds}

    def _compute(self, name: str, options: dict[str, Any], file: Path, seconds_left: float) -> Outcome | None:
        """Compute a part into memory; the outcome if that failed."""
        network, seed = self._network, self._part_seed
        assert network is not None

        def work(ask: Ask) -> Mapping[str, Any]:
            _seed_globals(seed)
            return timed_part(
                network, seed, AskedParts(ask, self._parts, self._refusals), name, options, file
            )

        limits = Limits(max(seconds_left, 0.0), self._limits.memory)
        outcome = run_guarded(work, limits, self._answer)
        label = part_label(name, options)
        if outcome.status is Status.OK:
            part = {key: tensor.clone() for key, tensor in load_file(file).items()}
            self._parts[label] = (part, float(outcome.result["seconds"]))
            file.unlink()
        elif outcome.status is Status.NOT_APPLICABLE:
            self._refusals[label] = outcome.reason
        else:
            return outcome
        return None


def _seed_globals(seed: int) -> None:
    """Measures draw from `subject.generator`; one that draws from a global generator is repeatable too."""
    import numpy as np

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _run_step(job: Job) -> Outcome:
    parents = {name: Path(folder) for name, folder in job.parents.items()}
    inputs = {**job.inputs, "how": job.how} if job.how else job.inputs
    step = load_step(job.step, inputs)
    return run_guarded(lambda _: step(inputs, parents, Path(job.out)), job.limits)


def _run_job(host: ReadingHost, job: Job) -> Outcome:
    if job.step != READING.function:
        return _run_step(job)
    if host.group != job.group:
        folders = {name: Path(folder) for name, folder in job.parents.items()}
        network = load_named(job.how["loader"])(job.about["subject"], **folders)
        host.load(job.group, network, int(job.how["part_seed"]))
    source = Source(**job.how["source"])
    return host.read(source, job.inputs["measure"], int(job.inputs["seed"]), job.limits)


def prepare_torch() -> None:
    """One thread and deterministic kernels, so that bits depend on neither workers nor load."""
    torch.set_num_threads(1)
    # As `use_deterministic_algorithms(True, warn_only=True)`, which also imports torch's compiler: a second.
    torch.set_deterministic_debug_mode("warn")


def main(parent: int, scratch: Path) -> None:
    """Serve jobs from standard input until it closes."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    jobs = open(os.dup(0), "rb")  # noqa: SIM115
    answers = open(os.dup(1), "wb", buffering=0)  # noqa: SIM115
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    prepare_torch()
    host = ReadingHost(Path(tempfile.mkdtemp(dir=scratch)))
    for text in jobs:
        job = parse(text, Job)
        try:
            outcome = _run_job(host, job)
        except Exception as problem:  # loading a subject failed: this job's fault, not the next one's
            outcome = Outcome(Status.FAILED, f"the subject could not be loaded: {described(problem)}")
        answers.write(line(outcome))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
