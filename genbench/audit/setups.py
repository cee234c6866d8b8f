"""What the audit trains: the set-ups of every stressor, as data (000 in small, on 8 × 8 digits)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from genbench.audit.step_types import (
    BEST_ACCURACY,
    BEST_LOSS,
    END,
    INTERPOLATION,
    AuditImages,
    AuditShape,
)
from genbench.engine.cells import Setting
from genbench.population.step_types import BlockRecipe

__all__ = [
    "SCHEDULES",
    "STRESSORS",
    "ExponentialSetup",
    "StackSetup",
    "Stressor",
    "quick_setups",
    "small",
    "stacks_of",
]


@dataclass(frozen=True)
class Stressor:
    """One way to change what should not matter, or what should."""

    name: str
    title: str
    question: str
    """What a verdict answers."""
    where: str
    """In 000."""


STRESSORS: Mapping[str, Stressor] = {
    one.name: one
    for one in (
        Stressor(
            "slope", "learning-curve slope", "Does its learning curve keep slope, shape and level "
            "whatever the optimizer?", "section 3, Fig. 1",
        ),
        Stressor(
            "drift", "drift after interpolation", "Does it stay when training goes on at equal error?",
            "section 4, Fig. 2",
        ),
        Stressor(
            "hysteresis", "hysteresis", "Does it go the same way whichever optimizer goes on from a network?",
            "section 4",
        ),
        Stressor(
            "labels", "label noise", "Does it grow with the share of wrong labels, under every optimizer?",
            "section 5, Fig. 3",
        ),
        Stressor(
            "tasks", "data-set swap", "Does it order tasks by their difficulty?", "section 5, Fig. 4",
        ),
        Stressor(
            "pixels", "pixel permutation", "Does destroying images move it more than training choices do?",
            "App. G, Tables 4 and 5",
        ),
        Stressor(
            "exp", "Exp++", "Does it stay when weights grow and the function does not change?",
            "section 6, Figs. S18 and S19",
        ),
        Stressor(
            "spread", "spread at equal error", "Does it stay at equal error, whatever the recipe?",
            "section 7, App. E: CMS and eCMS",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class StackSetup:
    """A stack of networks: all pairs of learning rate and seed."""

    stressor: str
    name: str
    shape: AuditShape
    images: AuditImages
    recipe: BlockRecipe
    rates: Sequence[float]
    seeds: Sequence[int]
    keep: Sequence[int | str] = (END,)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What its networks have in common, as statistics group them."""
    continues: str = ""
    """The stack whose interpolating networks of rate `continues_rate` it goes on from."""
    continues_rate: float = 0.0

    @property
    def networks(self) -> list[tuple[float, int]]:
        """Learning rate and seed of each."""
        return [(rate, seed) for rate in self.rates for seed in self.seeds]


@dataclass(frozen=True)
class ExponentialSetup:
    """The runs of Exp++: (alpha, weight decay) of each."""

    schedules: Sequence[tuple[float, float]]
    shape: AuditShape
    images: AuditImages
    rate: float = 0.1
    momentum: float = 0.9
    batch_size: int = 100
    steps: int = 100


# With weight decay lambda, lambda~ is 0 at alpha_± = (b ± sqrt(b² − 4 gamma)) / 2, b = 1 + gamma −
# eta_0 lambda. They exist up to lambda = .026, and of .01 they are .989 and .910: .99 is of the upper branch
# of the interval in Eq. 7, .88 of the lower one, and .95 of neither.
SCHEDULES = ExponentialSetup(
    (
        *((alpha, 0.0) for alpha in (1.0, 0.9, 0.86, 0.8)),
        *((alpha, 0.01) for alpha in (1.0, 0.99, 0.95, 0.88)),
    ),
    AuditShape("fcn", 2, 48, "layer"),
    AuditImages("digits", 600),
)

_MOMENTUM_RATES: Mapping[str, Sequence[float]] = {"sgd": (0.01,), "adam": (0.01, 0.001)}
"""The recipes of 000's figures, by optimizer."""
_FCN, _FCN_NORM, _NIN = (
    AuditShape("fcn", 2, 64),
    AuditShape("fcn", 2, 64, "batch"),
    AuditShape("nin", 2, 16),
)
_DRIFT_EPOCHS = 240
_QUICK_EPOCHS = 3


def stacks_of(stressor: str) -> list[StackSetup]:
    """The stacks that a stressor looks at, its own last; none for `exp`, which is not trained in stacks."""
    found = list(_MAKERS[stressor]()) if stressor in _MAKERS else []
    needed = {one.continues for one in found if one.continues}
    return [*(one for one in _drift() if one.name in needed), *found] if needed else found


def quick_setups(stressors: Iterable[str]) -> list[StackSetup]:
    """Of every stack, one network of each rate after few epochs: to see whether everything works."""
    found = {setup.name: setup for name in stressors for setup in stacks_of(name)}
    return [replace(small(setup, _QUICK_EPOCHS), seeds=setup.seeds[:1]) for setup in found.values()]


def small(setup: StackSetup, epochs: int) -> StackSetup:
    """The same with few epochs."""
    keep = [mark for mark in setup.keep if isinstance(mark, str) or mark <= epochs]
    return replace(
        setup, recipe=_with_epochs(setup.recipe, min(epochs, setup.recipe.max_epochs)), keep=keep or (END,)
    )


def _with_epochs(recipe: BlockRecipe, epochs: int) -> BlockRecipe:
    from msgspec import structs

    return structs.replace(recipe, max_epochs=epochs)


def _recipe(optimizer: str, epochs: int, stop: str = "epochs") -> BlockRecipe:
    return BlockRecipe(optimizer, 32, stop, 0.01, epochs)


def _slope() -> Iterator[StackSetup]:
    for net, shape in (("fcn", _FCN), ("nin", _NIN)):
        for n in (75, 150, 300, 600, 1200):
            for optimizer, rates in _MOMENTUM_RATES.items():
                yield StackSetup(
                    "slope",
                    f"slope {net} n={n} {optimizer}",
                    shape,
                    AuditImages("digits", n),
                    _recipe(optimizer, max(20, 24_000 // n)),
                    rates,
                    (0, 1, 2),
                    settings={"net": net, "n": n, "optimizer": optimizer},
                )


def _drift() -> Iterator[StackSetup]:
    # Dense enough: of a run of 240 epochs that interpolates by 80, a third of it, four are left at least.
    epochs = sorted({round(1.6**k) for k in range(20) if 1.6**k < _DRIFT_EPOCHS} | {_DRIFT_EPOCHS})
    for net, shape in (("fcn", _FCN), ("fcn batch norm", _FCN_NORM)):
        for optimizer, rates in _MOMENTUM_RATES.items():
            yield StackSetup(
                "drift",
                f"drift {net} {optimizer}",
                shape,
                AuditImages("digits", 600),
                _recipe(optimizer, _DRIFT_EPOCHS),
                rates,
                (0, 1),
                (*epochs, INTERPOLATION),
                {"net": net, "optimizer": optimizer},
            )


def _hysteresis() -> Iterator[StackSetup]:
    for optimizer, rate in (("adam", 0.01), ("sgd", 0.01), ("adam", 0.001)):
        yield StackSetup(
            "hysteresis",
            f"hysteresis {optimizer} {rate:g}",
            _FCN,
            AuditImages("digits", 600),
            _recipe(optimizer, 120),
            (rate,),
            (0, 1),
            (10, 40, 120),
            {"net": "fcn", "optimizer": optimizer},
            "drift fcn adam",
            0.01,
        )


def _labels() -> Iterator[StackSetup]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        for optimizer, rates in (("adam", (0.01, 0.001)), ("sgd", (0.1, 0.01))):
            yield StackSetup(
                "labels",
                f"labels {share} {optimizer}",
                AuditShape("fcn", 2, 128),
                AuditImages("digits", 300, share),
                _recipe(optimizer, 250, "cross_entropy"),
                rates,
                (0, 1),
                settings={"share": share, "optimizer": optimizer},
            )


def _tasks() -> Iterator[StackSetup]:
    for task in ("digits 0/1", "digits", "noisy digits", "glyphs"):
        for n in (75, 150, 300, 600):
            # The pool has some 260 zeros and ones.
            if task == "digits 0/1" and n > 150:
                continue
            yield StackSetup(
                "tasks",
                f"tasks {task} n={n}",
                AuditShape("fcn", 2, 32),
                AuditImages(task, n),
                _recipe("adam", 250, "cross_entropy"),
                (0.001,),
                (0, 1, 2),
                settings={"task": task, "n": n},
            )


def _pixels() -> Iterator[StackSetup]:
    for net, shape in (("fcn", _FCN), ("nin", _NIN)):
        for data, permutation in (("as they are", ""), ("one order", "shared"), ("own orders", "own")):
            for optimizer in ("sgd", "adam"):
                yield StackSetup(
                    "pixels",
                    f"pixels {net} {data} {optimizer}",
                    shape,
                    AuditImages("digits", 600, permutation=permutation, validation=100),
                    _recipe(optimizer, 60),
                    (0.01,),
                    (0,),
                    (BEST_LOSS, BEST_ACCURACY),
                    {"net": net, "pixels": data, "optimizer": optimizer},
                )


def _spread() -> Iterator[StackSetup]:
    for net, shape in (("fcn", AuditShape("fcn", 2, 32)), ("nin", AuditShape("nin", 2, 12))):
        for optimizer in ("sgd", "adam"):
            for stop in ("accuracy", "cross_entropy"):
                yield StackSetup(
                    "spread",
                    f"spread {net} {optimizer} {stop}",
                    shape,
                    AuditImages("digits", 600),
                    _recipe(optimizer, 200, stop),
                    (0.001, 0.0032, 0.0063, 0.01, 0.0158, 0.05, 0.1),
                    (0, 1, 2),
                    settings={"net": net, "optimizer": optimizer, "stop": stop},
                )


_MAKERS = {
    "slope": _slope,
    "drift": _drift,
    "hysteresis": _hysteresis,
    "labels": _labels,
    "tasks": _tasks,
    "pixels": _pixels,
    "spread": _spread,
}
