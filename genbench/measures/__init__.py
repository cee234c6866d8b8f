"""Built-in measures, grouped by idea; each is registered through the hook that outsiders use."""

from genbench.measures import (
    baselines,
    calibration,
    capacity,
    compression,
    curvature,
    flatness,
    function_space,
    gradients,
    information,
    margins,
    norms,
    paths,
    perturbation,
    sharpness,
    spectral,
    transformations,
)

__all__ = ["MEASURES"]

MEASURES = [
    *baselines.MEASURES,
    *capacity.MEASURES,
    *margins.MEASURES,
    *norms.MEASURES,
    *spectral.MEASURES,
    *paths.MEASURES,
    *flatness.MEASURES,
    *sharpness.MEASURES,
    *curvature.MEASURES,
    *gradients.MEASURES,
    *information.MEASURES,
    *calibration.MEASURES,
    *perturbation.MEASURES,
    *transformations.MEASURES,
    *function_space.MEASURES,
    *compression.MEASURES,
]
