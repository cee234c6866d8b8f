"""WeightWatcher's alpha, weighted alpha and log spectral norm as genbench measures.

Martin, Peng, Mahoney: Predicting trends in the quality of state-of-the-art neural networks without access
to training or testing data (2021). For a layer with weight matrix W, alpha is the exponent of a power law
fitted to the tail of the eigenvalues of WᵀW and lambda_max the largest of them. Each measure is the mean
over the layers that WeightWatcher analyses, as its own `get_summary` reports it. Lower is better.
"""

import contextlib
import io
import logging
import math

import genbench


def _mean_over_layers(subject, metric):
    import warnings

    # The package announces itself and its fits on standard output.
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        import weightwatcher

        logging.getLogger("weightwatcher").setLevel(logging.ERROR)
        watcher = weightwatcher.WeightWatcher(model=subject.model)
        details = watcher.analyze()
        summary = watcher.get_summary(details) if len(details) else {}
    value = float(summary.get(metric, math.nan))
    if not math.isfinite(value):
        raise genbench.NotApplicable(f"WeightWatcher finds no layer on which {metric} is defined")
    return value


@genbench.measure(category="spectral", needs={"weights"}, paper="Martin et al. 2021")
def ww_alpha(subject):
    """WeightWatcher's alpha: mean power-law exponent of the layers' eigenvalue spectra."""
    return _mean_over_layers(subject, "alpha")


@genbench.measure(category="spectral", needs={"weights"}, paper="Martin et al. 2021")
def ww_alpha_weighted(subject):
    """WeightWatcher's weighted alpha: mean over layers of alpha · log10 lambda_max."""
    return _mean_over_layers(subject, "alpha_weighted")


@genbench.measure(category="spectral", needs={"weights"}, paper="Martin et al. 2021", logarithm=True)
def ww_log_spectral_norm(subject):
    """WeightWatcher's log spectral norm: mean over layers of log10 lambda_max."""
    return _mean_over_layers(subject, "log_spectral_norm")


@genbench.hookimpl
def genbench_measures():
    """Tell genbench what this package offers."""
    return [ww_alpha, ww_alpha_weighted, ww_log_spectral_norm]
