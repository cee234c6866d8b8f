"""WeightWatcher's alpha, weighted alpha and log spectral norm as genbench measures.

Martin, Peng, Mahoney: Predicting trends in the quality of state-of-the-art neural networks without access
to training or testing data (2021). For a layer with weight matrix W, alpha is the exponent of a power law
fitted to the tail of the eigenvalues of WᵀW and lambda_max the largest of them. Each measure is the mean
over the layers that WeightWatcher analyses and can fit. Lower is better.
"""

import contextlib
import copy
import io
import logging
import random
import warnings

import genbench

_METRICS = ("alpha", "alpha_weighted", "log_spectral_norm")


def _means_over_layers(subject):
    """Mean of each column of WeightWatcher's table over the layers for which it has a value."""
    with _quiet():
        import weightwatcher

        logging.getLogger("weightwatcher").setLevel(logging.ERROR)
        details = weightwatcher.WeightWatcher(model=_without_empty_norms(subject.model.cpu())).analyze()
    if "alpha" not in details:
        return {}
    # WeightWatcher writes alpha = -1 where its power-law fit failed; that is no exponent.
    fitted = details[details["alpha"] > 0]
    values = {metric: fitted[metric].dropna() for metric in _METRICS}
    return {metric: float(column.mean()) for metric, column in values.items() if len(column)}


def _without_empty_norms(model):
    """A copy without norm layers that have no weights, over which WeightWatcher stumbles."""
    from torch import nn

    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if "weight" in child._parameters and child.weight is None:
                setattr(module, name, nn.Identity())
    return model


def _mean_over_layers(subject, metric):
    """One of them; the analysis is the same for all, so it is done once for a network."""
    means = subject.shared(_means_over_layers)
    if metric not in means:
        raise genbench.NotApplicable(f"WeightWatcher finds no layer on which {metric} is defined")
    return means[metric]


@contextlib.contextmanager
def _quiet():
    """Keep the package's announcements to itself, and the global random generator as it was."""
    state = random.getstate()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(state)


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


@genbench.hookimpl
def genbench_prepare():
    """Import WeightWatcher, which takes a second or two, once for all readings."""
    with _quiet():
        import weightwatcher  # noqa: F401
