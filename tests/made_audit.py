"""Networks of an audit that nobody trained: the settings of the audit's own, with made-up errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from genbench.audit.observed import AuditReading, AuditTruth, Observed
from genbench.audit.plan import plan_audit
from genbench.audit.setups import STRESSORS
from genbench.audit.step_types import KeptNetwork

__all__ = ["made_audit", "truths"]

_INTERPOLATION = 20
_TASK_ERROR = {"digits 0/1": 0.01, "digits": 0.06, "noisy digits": 0.2, "glyphs": 0.4}


@cache
def truths() -> dict[str, AuditTruth]:
    """Of every network, by name."""
    found = {}
    for network in plan_audit(list(STRESSORS)).networks:
        settings = network.settings
        kept = settings.get("kept")
        epoch = kept if isinstance(kept, int) else _INTERPOLATION
        if network.stressor == "hysteresis":
            epoch += _INTERPOLATION
        error = 0.06
        if network.stressor == "slope":
            error = 0.06 * (float(settings["n"]) / 1200) ** -0.5
        elif network.stressor == "labels":
            error = 0.06 + 0.84 * float(settings["share"])
        elif network.stressor == "tasks":
            error = _TASK_ERROR[str(settings["task"])]
        elif settings.get("pixels") == "own orders":
            error = 0.8
        found[network.label] = AuditTruth(
            network.stressor,
            settings,
            error,
            497,
            "the same",
            KeptNetwork(
                network=0,
                mark=str(kept),
                epoch=epoch,
                reached=True,
                train_loss=0.01,
                train_accuracy=1.0,
                function_change=1e-11 if network.stressor == "exp" else None,
            ),
        )
    return found


def made_audit(
    value: Callable[[AuditTruth], float | None],
    *,
    error: float | None = None,
    logarithm: bool = False,
    changed: dict[str, AuditTruth] | None = None,
) -> Observed:
    """Readings that are a function of what is known of a network; `error` is what the measure states."""
    known = {**truths(), **(changed or {})}
    readings = {label: AuditReading(value(truth), error, [], "no value") for label, truth in known.items()}
    return Observed.of(known, readings, logarithm, "worse")
