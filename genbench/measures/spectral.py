"""Spectral norms of the folded layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure
from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="spectral", paper="001 (15)", logarithm=True)
def log_prod_of_spec(subject: Subject) -> float:
    """Logarithm of the product of the layers' spectral norms.

    ½ (log C − log m) with C = prod_i ||W_i||_2², the norms by FFT, summed in the log domain.
    """
    norms = subject.spectral_norms()
    if min(norms) == 0:
        raise NotApplicable("a layer's spectral norm is 0, so its logarithm is not defined")
    return 0.5 * (2 * sum(map(math.log, norms)) - math.log(subject.m))


@measure(category="spectral", needs={"weights", "initial_weights"}, paper="001 (24)")
def dist_spec_init(subject: Subject) -> float:
    """Spectral norms of the layers' change in training.

    sqrt(C / m) with C = sum_i ||W_i − W⁰_i||_2², the norms by FFT.
    """
    return math.sqrt(sum(norm**2 for norm in subject.spectral_norms(of="change")) / subject.m)


MEASURES = [log_prod_of_spec, dist_spec_init]
