"""genbench tests generalization measures of deep networks against held-out truth.

For whoever tests measures, in a program or a notebook:

- `load_suite`: a suite, with its networks, settings and truths as pandas tables.
- `read`: one measure on one network, in this process.
- `run`: measures on all networks of a suite, with their scores; what `genbench run` does.
- `compare`: two measures on a suite, and the pairs of networks in which they differ.
- `score`: measures in a table of networks that were trained elsewhere.
- `Monitor`: measures of a network of your own while it trains.

For authors of measures:

- `measure`: decorator that turns a function of a subject into a measure.
- `Subject`: one trained network, its initial weights and its training data.
- `Estimate`: a float with its standard error or the contribution of each layer.
- `NotApplicable`: raised by a measure where its mathematics does not apply.
- `hookimpl`: marks the functions through which a package registers what it offers.

What authors of other plugins need is in `genbench.plugin`.

They are imported on first use, so that `genbench --help` loads neither pluggy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import names_from
from genbench._version import __version__

if TYPE_CHECKING:
    from genbench.api.comparison import compare
    from genbench.api.monitor import Monitor
    from genbench.api.readings import read
    from genbench.api.runs import run
    from genbench.api.suites import load_suite
    from genbench.api.tables import score
    from genbench.errors import NotApplicable
    from genbench.plugin.contract import Estimate, Measure, measure
    from genbench.plugin.hookspecs import hookimpl
    from genbench.subject import Subject

__all__ = [
    "Estimate",
    "Measure",
    "Monitor",
    "NotApplicable",
    "Subject",
    "__version__",
    "compare",
    "hookimpl",
    "load_suite",
    "measure",
    "read",
    "run",
    "score",
]

_HOMES = {
    "Estimate": "genbench.plugin.contract",
    "Measure": "genbench.plugin.contract",
    "Monitor": "genbench.api.monitor",
    "NotApplicable": "genbench.errors",
    "Subject": "genbench.subject",
    "compare": "genbench.api.comparison",
    "hookimpl": "genbench.plugin.hookspecs",
    "load_suite": "genbench.api.suites",
    "measure": "genbench.plugin.contract",
    "read": "genbench.api.readings",
    "run": "genbench.api.runs",
    "score": "genbench.api.tables",
}

__getattr__ = names_from(_HOMES, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
