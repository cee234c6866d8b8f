"""The measure example for genbench.

Import torch inside functions only: genbench loads this module for every listing.
"""

import genbench


@genbench.measure(category="norm", needs={"weights"}, higher_means="worse", version="1")
def example(subject):
    """Root mean square of the weights.

    sqrt(sum_i ||W_i||_F² / omega), omega = number of weights. Replace this by your formula.
    """
    weights = subject.weights()
    squares = sum(w.cpu().double().square().sum().item() for w in weights)
    return (squares / sum(w.numel() for w in weights)) ** 0.5


@genbench.hookimpl
def genbench_measures():
    """Tell genbench what this package offers."""
    return [example]
