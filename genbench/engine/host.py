"""A worker process: holds one subject and takes its readings, in guarded children.

It runs genbench's own code only. genbench's own measures of a network are read in one forked child, which
holds the shared parts; a plugin is imported in a process of its own, from which its readings are forked. No
such child ever saw held-out data: cells that read held-out data do so in children of their own.

Forked by `genbench.engine.nursery`; speaks JSON lines with the executor.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path

import msgspec
import torch
from safetensors.torch import load_file

from genbench.engine.answers import checked
from genbench.engine.cells import Limits, Outcome, Result, Status
from genbench.engine.compute import starts_fresh
from genbench.engine.environment import restore_environment
from genbench.engine.fixable import fixable
from genbench.engine.given import Given
from genbench.engine.guard import Ask, Work, run_work
from genbench.engine.guarded import Sealing
from genbench.engine.held import Asked, Held
from genbench.engine.messages import (
    Builder,
    Ended,
    Found,
    Job,
    NetworkPlace,
    Order,
    PartWork,
    Reading,
    ReadingPlace,
    ReadingsWork,
    StepWork,
    Task,
    line,
    parse,
)
from genbench.engine.plugin_process import PluginProcess
from genbench.engine.readings import READING
from genbench.engine.sandbox import NOT_SEALED, SEALED, emptied, reading_seal, sealing_of
from genbench.engine.steps import load_named
from genbench.engine.store import store_around
from genbench.engine.works import OwnReadings, compute_for_plugins, step_work, take_plugins
from genbench.errors import described
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Source, load_registry, source_measures
from genbench.sealing.seal import Seal, missing
from genbench.subject.part_messages import PartReply, PartRequest
from genbench.subject.parts import part_label, save_part, seed_globals
from genbench.subject.subject import TrainedNetwork

__all__ = ["ReadingHost", "import_libraries", "prepare_torch", "serve"]

_NAME = "network"
"""Of every network, to a reading."""
_MOST_PLUGINS = 8
"""Processes of plugins that a host keeps; each holds what the plugin imports."""
_ALONE_AGAIN = (Status.CRASHED, Status.OUT_OF_MEMORY)
"""Ends of which company may be the reason: memory that an earlier measure holds, or a heap that it broke."""


_TOGETHER_BYTES = 2**26
"""Of networks that are held at the same time, to be read in one process."""


class ReadingHost:
    """One network, its shared parts, and the readings taken of it; or a few small ones after another."""

    def __init__(
        self,
        scratch: Path,
        held: TrainedNetwork | None = None,
        part_seed: int = 0,
        builder: Builder | None = None,
    ) -> None:
        self.scratch = scratch
        self._store = store_around(scratch)
        self._own_network = held
        """A network in memory from the start, which no loader gives; `builder` gives it again."""
        self._builder = builder
        self._held = Held(NetworkPlace("", builder=builder), part_seed, held)
        self._limits = Limits(0, 0)
        self._measures: dict[str, Measure] = {}
        """genbench's own."""
        self._plugins: dict[Source, PluginProcess] = {}
        self._unready: set[Source] = set()
        self._given = Given(scratch / "given")
        self._private = scratch / "own"
        self._private.mkdir()
        self._seal: Seal | None = None
        self._networks = 0
        self._group = ""
        """Of the network that is held; no reading is told."""

    def hold(self, place: NetworkPlace, part_seed: int) -> None:
        """Read the network at `place` from now on; it is loaded when first needed."""
        if place.group != self._group:
            self._group = ""
            self._held = self._to_hold(place, part_seed)
            self._group = place.group

    def _to_hold(self, place: NetworkPlace, part_seed: int, *, beside: bool = False) -> Held:
        """A network that can be loaded; `beside`: with those before it."""
        self._networks += 1
        # Nothing that would tell which network this is.
        hidden = msgspec.structs.replace(
            place,
            group=str(self._networks),
            name=_NAME,
            folders=self._given.offer(place.folders, beside=beside),
        )
        if not place.loader:
            hidden = msgspec.structs.replace(hidden, builder=self._builder)
            return Held(hidden, part_seed, self._own_network)
        load_named(place.loader)  # imported here, once, for all that is forked from here
        load_registry()  # a loader may ask it, where nothing can be found out any more
        return Held(hidden, part_seed)

    def network(self) -> TrainedNetwork:
        """The network that is held, on the CPU."""
        return self._held.load()

    def take(self, asked: Sequence[Asked], limits: Limits) -> Iterator[tuple[str, Outcome]]:
        """(key, outcome) of all readings; what goes wrong with a network is its own readings' fault."""
        own = all(one.source.kind == BUILT_IN and one.place.loader for one in asked)
        if len(asked) > 1 and own and not starts_fresh(limits.compute):
            yield from self._take_together(asked, limits)
            return
        for one in asked:
            ended = set()
            try:
                self.hold(one.place, one.part_seed)
                for key, outcome in self.read(one.source, one.readings, limits):
                    ended.add(key)
                    yield key, outcome
            except Exception as problem:
                yield from one.failed(problem, ended)

    def _take_together(self, asked: Sequence[Asked], limits: Limits) -> Iterator[tuple[str, Outcome]]:
        """The same, with as many networks in one child as may be held: a fork costs more than a reading."""
        self._group = ""
        left = list(asked)
        while left:
            pieces: list[tuple[Held, Reading]] = []
            size = 0
            while left and size < _TOGETHER_BYTES:
                one = left.pop(0)
                try:
                    held = self._to_hold(one.place, one.part_seed, beside=bool(pieces))
                    size += sum(t.numel() * t.element_size() for t in held.load().model.state_dict().values())
                    pieces += [(held, reading) for reading in one.readings]
                except Exception as problem:
                    yield from one.failed(problem)
            if pieces:
                yield from self._read_hidden(asked[0].source, pieces, limits)

    def read(
        self, source: Source, readings: Sequence[Reading], limits: Limits
    ) -> Iterator[tuple[str, Outcome]]:
        """(key, outcome) of measures of one plugin, or of genbench's own."""
        self._limits = limits
        yield from self._read_hidden(source, [(self._held, one) for one in readings], limits)

    def _read_hidden(
        self, source: Source, pieces: Sequence[tuple[Held, Reading]], limits: Limits
    ) -> Iterator[tuple[str, Outcome]]:
        """With numbers in place of keys, which are hashes of what identifies a network too."""
        keys = [reading.key for _, reading in pieces]
        hidden = [
            (held, msgspec.structs.replace(reading, key=str(place)))
            for place, (held, reading) in enumerate(pieces)
        ]
        if source.kind == BUILT_IN:
            found = self._read_own(source, hidden, limits)
        else:
            found = self._read_plugin(source, [reading for _, reading in hidden], limits)
        for number, outcome in found:
            yield keys[int(number)], checked(outcome)

    def _sealing(self, limits: Limits) -> Sealing | None:
        """How children of this process that run genbench's own code are sealed; None if they are not."""
        self._seal = self._seal or self._new_seal(self._private, limits)
        return None if self._seal is None else sealing_of(self._seal)

    def _new_seal(self, private: Path, limits: Limits, source: Source | None = None) -> Seal | None:
        if not limits.sandbox or starts_fresh(limits.compute) or missing():
            return None
        code = [Path(source.module)] if source is not None and source.kind == "file" else []
        return reading_seal(self._given.folder, private, self._store, limits.compute, code)

    @contextlib.contextmanager
    def _sealed(self, private: Path, limits: Limits, source: Source) -> Iterator[Seal | None]:
        """What a process that will import a plugin may see, for as long as it takes to start it."""
        seal = self._new_seal(private, limits, source)
        try:
            yield seal
        finally:
            if seal is not None:
                seal.forget()

    def close(self) -> None:
        """End the processes of plugins."""
        for process in self._plugins.values():
            process.close()

    # -- genbench's own measures ---------------------------------------------------------------------------

    def _read_own(
        self, source: Source, pieces: Sequence[tuple[Held, Reading]], limits: Limits
    ) -> Iterator[tuple[str, Outcome]]:
        """All in one child; again alone what took it down, because its company may have had a part in it."""
        left, suspects = list(pieces), []
        while left:
            first = left[0][0]
            work = ReadingsWork(source, first.place, first.part_seed, [reading for _, reading in left])
            ended = 0
            forked, seal = partial(self._own, source, left), self._sealing(limits)
            for place, outcome in run_work(work, forked, limits, learn=_import, seal=seal):
                ended = place + 1
                if len(left) > 1 and outcome.status in _ALONE_AGAIN:
                    suspects.append(left[place])
                else:
                    yield left[place][1].key, outcome
            left = left[ended:]
            emptied(self._private)
        for piece in suspects:
            yield from self._read_own(source, [piece], limits)

    def _own(self, source: Source, pieces: Sequence[tuple[Held, Reading]]) -> list[Work]:
        self._measures = self._measures or source_measures(source)
        works: list[Work] = []
        for _, alike in groupby(pieces, key=lambda piece: id(piece[0])):
            readings = list(alike)
            held = readings[0][0]
            # Dictionaries of the child: it fills its own copies.
            own = OwnReadings(held.load(), self._measures, held.part_seed, held.parts, held.refusals)
            works += [partial(own.take, reading) for _, reading in readings]
        return works

    # -- a plugin's measures ---------------------------------------------------------------------------------

    def _read_plugin(
        self, source: Source, readings: Sequence[Reading], limits: Limits
    ) -> Iterator[tuple[str, Outcome]]:
        left = list(readings)
        while left:
            process = self._plugin(source, limits)
            if process is None:
                yield left[0].key, self._read_importing(source, left[0], limits)
                left = left[1:]
                continue
            for key, outcome in process.read(
                Order(self._held.place, self._held.part_seed, left, limits), self._answer
            ):
                # What it says of itself counts for nothing.
                sandbox = SEALED if process.sealed else NOT_SEALED
                yield key, replace(outcome, cost=replace(outcome.cost, sandbox=sandbox))
                left = left[1:]

    def _plugin(self, source: Source, limits: Limits) -> PluginProcess | None:
        """Its process, started if need be; None if it cannot be imported there."""
        process = self._plugins.pop(source, None)
        if source in self._unready:
            return None
        if process is None or not process.alive:
            if len(self._plugins) >= _MOST_PLUGINS:
                self._plugins.pop(next(iter(self._plugins))).close()
            process = self._start(source, limits)
        if not process.ready:
            process.close()
            self._unready.add(source)
            return None
        self._plugins[source] = process  # the last to be closed
        return process

    def _start(self, source: Source, limits: Limits) -> PluginProcess:
        private = Path(tempfile.mkdtemp(dir=self.scratch))
        with self._sealed(private, limits, source) as seal:
            return PluginProcess(source, limits, self._own_network, private, seal)

    def _read_importing(self, source: Source, reading: Reading, limits: Limits) -> Outcome:
        """The reading of a plugin that could not be imported: tried in its own child, to say why."""

        def work(network: TrainedNetwork, ask: Ask) -> Found:
            seed_globals(reading.seed)
            return take_plugins(source_measures(source)[reading.measure], reading, network, ask, shared=False)

        fresh = ReadingsWork(source, self._held.place, self._held.part_seed, [reading], shared=False)
        private = Path(tempfile.mkdtemp(dir=self.scratch))
        with self._sealed(private, limits, source) as seal:
            sealing = None if seal is None else replace(sealing_of(seal), foreign=True)
            forked = partial(work, self.network())
            ((_, outcome),) = run_work(fresh, lambda: [forked], limits, self._answer, seal=sealing)
        return outcome

    # -- shared parts for plugins ----------------------------------------------------------------------------

    def _answer(self, request: PartRequest) -> PartReply:
        """Give a child the shared part it asks for, computing it in a guarded child of its own."""
        label = part_label(request.name, request.options)
        if label not in self._held.parts and label not in self._held.refusals:
            outcome = self._compute(request)
            if outcome is not None:
                return PartReply(str(outcome.status), outcome.reason)
        if label in self._held.refusals:
            return PartReply(str(Status.NOT_APPLICABLE), self._held.refusals[label])
        part, seconds = self._held.parts[label]
        file = self._given.folder / "part.safetensors"
        save_part(part, file)
        return PartReply(str(Status.OK), file=str(file), seconds=seconds)

    def _compute(self, request: PartRequest) -> Outcome | None:
        """Compute a part into memory; the outcome if that failed."""
        file = self._private / f"{time.time_ns()}.safetensors"
        work = PartWork(
            self._held.place, self._held.part_seed, request.name, dict(request.options), str(file)
        )

        def here() -> list[Work]:
            return [partial(compute_for_plugins, self.network(), work, self._held.parts, self._held.refusals)]

        # How much time is left is what the plugin's process says.
        limits = replace(self._limits, seconds=min(max(request.seconds_left, 0.0), self._limits.seconds))
        ((_, outcome),) = run_work(
            work, here, limits, self._answer, learn=import_libraries, seal=self._sealing(limits)
        )
        label = part_label(request.name, request.options)
        if outcome.status is Status.OK:
            part = {key: tensor.clone() for key, tensor in load_file(file).items()}
            self._held.parts[label] = (part, float(outcome.result["seconds"]))
            file.unlink()
        elif outcome.status is Status.NOT_APPLICABLE:
            self._held.refusals[label] = outcome.reason
        else:
            return outcome
        return None


def _import(modules: Sequence[str]) -> None:
    """Have here what genbench's own measures import as they run, so that later forks need not."""
    for name in modules:
        with contextlib.suppress(Exception):
            import_module(name)


_LIBRARIES = {
    "gekko", "netCDF4", "numpy", "open_clip", "pandas", "scipy", "sklearn", "sympy", "timm", "torch",
    "torchvision", "xarray",
}  # fmt: skip


def import_libraries(modules: Sequence[str]) -> None:
    """As `_import`, of work that may run a plugin's code, of which nothing is wanted here.

    What work imports as it runs may take longer than the work: torch's compiler, which every optimizer and
    every gradient of `torch.func` asks whether it is at work, a second; open_clip and timm two.
    """
    _import([name for name in modules if name.partition(".")[0] in _LIBRARIES])


def _run_step(task: Task, limits: Limits, scratch: Path) -> Outcome:
    def work() -> list[Work]:
        step = step_work(task)

        def with_environment(ask: Ask) -> Result:
            restore_environment(scratch)
            return step(ask)

        return [with_environment]

    ((_, outcome),) = run_work(StepWork(task), work, limits, learn=import_libraries)
    return outcome


def _asked(tasks: Sequence[Task]) -> Asked:
    """Readings of one network and one plugin."""
    first = tasks[0]
    where = msgspec.convert(first.how, ReadingPlace)
    place = NetworkPlace(first.group, where.loader, _NAME, first.parents, where.options)
    readings = [Reading(t.key, str(t.inputs["measure"]), int(t.inputs["seed"])) for t in tasks]
    return Asked(place, where.part_seed, where.source, readings)


def _run_job(host: ReadingHost, job: Job) -> Iterator[tuple[str, Outcome]]:
    for reads, alike in groupby(job.tasks, key=lambda task: task.step == READING.function):
        tasks = list(alike)
        if reads:
            networks = groupby(tasks, key=lambda task: (task.group, task.how))
            yield from host.take([_asked(list(of_one)) for _, of_one in networks], job.limits)
            continue
        for task in tasks:
            try:
                yield task.key, _run_step(task, job.limits, host.scratch.parent)
            except Exception as problem:
                yield task.key, Outcome(Status.FAILED, described(problem), fixable=fixable(problem))


def prepare_torch() -> None:
    """One thread until `compute.begin`, and kernels whose bits depend on neither workers nor load."""
    torch.set_num_threads(1)
    # As `use_deterministic_algorithms(True, warn_only=True)`, which also imports torch's compiler: a second.
    torch.set_deterministic_debug_mode("warn")
    # Of GPUs, whose driver this leaves alone: float32 with all its digits, and no kernel chosen by a race.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def serve(
    channel: int,
    scratch: Path,
    held: TrainedNetwork | None = None,
    part_seed: int = 0,
    builder: Builder | None = None,
) -> None:
    """Serve jobs from the executor at `channel` until it closes."""
    jobs = open(channel, "rb", closefd=False)  # noqa: SIM115
    host = ReadingHost(Path(tempfile.mkdtemp(dir=scratch)), held, part_seed, builder)
    for text in jobs:
        for key, outcome in _run_job(host, parse(text, Job)):
            answer = memoryview(line(Ended(key, outcome)))
            while answer:
                answer = answer[os.write(channel, answer) :]
    host.close()
