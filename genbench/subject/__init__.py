"""One trained network as a measure sees it: weights, initial weights, training data; no held-out data."""

from genbench.subject.subject import Subject

__all__ = ["Subject"]
