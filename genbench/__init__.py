"""genbench tests generalization measures of deep networks against held-out truth.

The public names, all an author of a measure needs:

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

if TYPE_CHECKING:
    from genbench.errors import NotApplicable
    from genbench.plugin.contract import Estimate, Measure, measure
    from genbench.plugin.hookspecs import hookimpl
    from genbench.subject import Subject

__all__ = ["Estimate", "Measure", "NotApplicable", "Subject", "__version__", "hookimpl", "measure"]

__version__ = "0.1.0"

_HOMES = {
    "Estimate": "genbench.plugin.contract",
    "Measure": "genbench.plugin.contract",
    "NotApplicable": "genbench.errors",
    "Subject": "genbench.subject",
    "hookimpl": "genbench.plugin.hookspecs",
    "measure": "genbench.plugin.contract",
}

__getattr__ = names_from(_HOMES, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
