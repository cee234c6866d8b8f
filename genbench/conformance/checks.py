"""The checks. Each runs in a process of its own, and returns what it found or raises `Broken`."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from genbench.conformance.kit import INVARIANCE
from genbench.conformance.networks import DEGENERATE, SAME_FUNCTION, convolutional
from genbench.engine.value import finite_number
from genbench.errors import NotApplicable
from genbench.plugin.contract import Measure
from genbench.subject import Subject

__all__ = ["Broken", "checks"]

_STABLE = 1e-5
"""Largest relative change of a deterministic reading by batch size or thread count."""

_SAME = 1e-4
"""A relative change below this is rounding."""


class Broken(Exception):
    """A promise of the contract that the measure does not keep, in one sentence."""


Check = Callable[[Measure], str]
"""Returns a short finding; raises `Broken` or `NotApplicable`."""


def checks() -> Iterator[tuple[str, str, Check]]:
    """(name, kind, check); kind is "contract" for promises, "science" for findings that cannot fail."""
    yield "gives a finite number on an ordinary network", "contract", _finite
    yield "same seed, same bits", "contract", _repeatable
    yield "says whether it is random", "contract", _honest_about_randomness
    yield "declares what it needs", "contract", _declares_needs
    yield "leaves the network and its data as they were", "contract", _leaves_originals
    yield "leaves global random generators alone", "contract", _leaves_generators
    yield "leaves torch's global settings alone", "contract", _leaves_settings
    yield "does not depend on the batch size", "contract", _batch_size
    yield "does not depend on the number of threads", "contract", _threads
    yield "prints nothing", "contract", _silent
    for name in DEGENERATE:
        yield f"finite or not applicable: {name}", "contract", partial(_degenerate, name)
    yield "time and memory on a small network", "science", _cost
    for name in SAME_FUNCTION:
        yield f"{INVARIANCE}, {name}", "science", partial(_same_function, name)


def _value(measure: Measure, subject: Subject) -> float:
    return finite_number(measure(subject))


def _finite(measure: Measure) -> str:
    return f"{_value(measure, convolutional()):.6g}"


def _repeatable(measure: Measure) -> str:
    first, second = (_value(measure, convolutional(seed=7)) for _ in range(2))
    if first != second:
        raise Broken(
            f"two readings with one seed differ: {first!r} and {second!r}; draw from subject.generator"
        )
    return ""


def _honest_about_randomness(measure: Measure) -> str:
    values = {_value(measure, convolutional(seed=seed)) for seed in range(3)}
    if measure.randomness == "none" and len(values) > 1:
        raise Broken("the reading depends on the seed; declare randomness='seeded'")
    return "deterministic" if len(values) == 1 else f"spread over 3 seeds {max(values) - min(values):.2g}"


def _declares_needs(measure: Measure) -> str:
    subject = convolutional()
    _value(measure, subject)
    hidden = subject.used - measure.needs
    if hidden:
        raise Broken(f"it uses {', '.join(sorted(hidden))} without declaring it in needs=")
    return ", ".join(sorted(measure.needs)) or "nothing"


def _leaves_originals(measure: Measure) -> str:
    subject = convolutional()
    before = _fingerprint(subject)
    _value(measure, subject)
    if _fingerprint(subject) != before:
        raise Broken("it changed the original network or its data, past the private copies of the subject")
    return ""


def _fingerprint(subject: Subject) -> str:
    network = subject._network
    assert network.initial_model is not None
    digest = hashlib.sha256()
    for tensor in (
        *network.inputs.split(256),
        network.labels,
        *network.model.state_dict().values(),
        *network.initial_model.state_dict().values(),
    ):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _leaves_generators(measure: Measure) -> str:
    subject = convolutional()
    before = _generator_states()
    _value(measure, subject)
    moved = [name for name, state in _generator_states().items() if state != before[name]]
    if moved:
        raise Broken(
            f"it drew from or seeded the global generator of {', '.join(moved)}; use subject.generator"
        )
    return ""


def _generator_states() -> dict[str, str]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
        "numpy": repr(np.random.get_state()),
        "random": repr(random.getstate()),
    }


def _leaves_settings(measure: Measure) -> str:
    subject = convolutional()
    before = _settings()
    _value(measure, subject)
    changed = [name for name, value in _settings().items() if value != before[name]]
    if changed:
        raise Broken(f"it changed {', '.join(changed)} and did not put it back")
    return ""


def _settings() -> dict[str, object]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the number of threads": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def _batch_size(measure: Measure) -> str:
    return _stable(
        measure, _value(measure, convolutional(batch_size=256)), _value(measure, convolutional(batch_size=7))
    )


def _threads(measure: Measure) -> str:
    one = _value(measure, convolutional())
    torch.set_num_threads(2)
    return _stable(measure, one, _value(measure, convolutional()))


def _stable(measure: Measure, first: float, second: float) -> str:
    change = _relative_change(first, second)
    if change > _STABLE and measure.randomness == "none":
        raise Broken(f"the reading moves by {change:.1e} of its value, from {first!r} to {second!r}")
    return f"changes by {change:.1e}"


def _relative_change(first: float, second: float) -> float:
    scale = max(abs(first), abs(second))
    return abs(first - second) / scale if scale else 0.0


def _silent(measure: Measure) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        _value(measure, convolutional())
    if out.getvalue():
        raise Broken(f"it printed {len(out.getvalue())} characters; genbench keeps only the last 4096")
    return ""


def _degenerate(name: str, measure: Measure) -> str:
    try:
        value = measure(DEGENERATE[name]())
    except NotApplicable as refusal:
        return f"not applicable: {refusal}"
    return f"{finite_number(value):.6g}"


def _cost(measure: Measure) -> str:
    subject = convolutional()
    began = time.perf_counter()
    _value(measure, subject)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"{seconds:.3f} s, {peak / 2**20:.0f} MiB in all"


def _same_function(name: str, measure: Measure) -> str:
    original, changed = SAME_FUNCTION[name]()
    before, after = _value(measure, original), _value(measure, changed)
    change = _relative_change(before, after)
    if not math.isfinite(change) or change > _SAME:
        return f"changes by {change:.1%}: {before:.6g} to {after:.6g}"
    return "unchanged"
