"""Built-in measures, grouped by idea; each is registered through the hook that outsiders use."""

from genbench.measures import baselines, capacity, flatness, margins, norms, paths, spectral

__all__ = ["MEASURES"]

MEASURES = [
    *baselines.MEASURES,
    *capacity.MEASURES,
    *margins.MEASURES,
    *norms.MEASURES,
    *spectral.MEASURES,
    *paths.MEASURES,
    *flatness.MEASURES,
]
