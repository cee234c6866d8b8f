"""All scores of a record table together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from genbench.errors import UserError
from genbench.scoring.affine import affine_oracle
from genbench.scoring.blas import one_blas_thread
from genbench.scoring.bootstrap import RESAMPLES
from genbench.scoring.independence import conditional_independence
from genbench.scoring.kendall import granulated_kendall
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pgdl import pgdl_score
from genbench.scoring.progress import Tick
from genbench.scoring.robust import MIN_N_EFF, Family, robust_sign_error, sign_error_environments
from genbench.scoring.spread import cms

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCORES", "Options", "ScoreProgress", "TableScores", "score_table"]

SCORES = {
    "sign_error": "robust sign-error (001)",
    "affine_oracle": "affine oracle (001 App. B)",
    "kendall": "granulated Kendall score (002)",
    "independence": "conditional-independence score K (002)",
    "pgdl": "PGDL score (003)",
    "cms": "CMS and eCMS (000)",
}


@dataclass(frozen=True)
class Options:
    """How to score; see the functions of each score."""

    target: str = ""
    family: Family = "strict"
    noise_filter: bool = True
    min_n_eff: float = MIN_N_EFF
    group_by: tuple[str, ...] = ()
    resamples: int = RESAMPLES
    seed: int = 0


class ScoreProgress(Protocol):
    """Someone who is told how far the scores have come."""

    def begin(self, score: str) -> None:
        """A score is about to be computed."""

    def advance(self, score: str, share: float) -> None:
        """So much of it was done since the last call."""

    def end(self, score: str) -> None:
        """It is computed, or skipped."""


class _Nobody:
    def begin(self, score: str) -> None: ...

    def advance(self, score: str, share: float) -> None: ...

    def end(self, score: str) -> None: ...


@dataclass(frozen=True, eq=False)
class TableScores:
    """Every number about a table."""

    networks: NetworkTable
    options: Options
    scores: pd.DataFrame
    """Tidy, one number per row; `genbench.scoring.tidy.COLUMNS`."""
    environments: pd.DataFrame | None
    """One row per measure and environment, worst first; None without the sign-error."""
    skipped: dict[str, str]
    """Scores that the table has no columns for and measures without readings, with the reason."""

    @cached_property
    def by_values(self) -> pd.DataFrame | None:
        """Sign-errors by pairs of values of one hyperparameter; None without the sign-error."""
        from genbench.scoring.ablations import errors_by_values

        return None if self.environments is None else errors_by_values(self.networks, self.environments)

    @cached_property
    def noise(self) -> pd.DataFrame | None:
        """Sign-errors with and without the noise filter; None where it cannot be used."""
        from genbench.scoring.ablations import noise_filter_effect

        if self.environments is None or self.networks.test_size is None:
            return None
        return noise_filter_effect(
            self.networks, target=self.options.target, min_n_eff=self.options.min_n_eff
        )


@one_blas_thread
def score_table(
    networks: NetworkTable,
    scores: Sequence[str] = (),
    options: Options | None = None,
    progress: ScoreProgress | None = None,
    workers: int = 1,
) -> TableScores:
    """Compute scores, all of them by default.

    A score whose columns are missing is skipped with its reason, unless it was asked for by name.

    Parameters
    ----------
    workers : scores that are computed at the same time; it changes no number.
    """
    import pandas as pd

    chosen = options or Options()
    _check(scores, networks, chosen)
    present = np.isfinite(networks.readings).sum(axis=0)
    skipped = {
        name: ("it has one reading" if count else "it has no reading") + ", and scores compare networks"
        for name, count in zip(networks.measures, present, strict=True)
        if count < 2
    }
    networks = networks.select([name for name in networks.measures if name not in skipped])
    listener = progress or _Nobody()
    run = _calls(networks, chosen)

    def compute(name: str) -> pd.DataFrame | UserError:
        listener.begin(name)
        try:
            return run[name](partial(listener.advance, name))
        except UserError as problem:
            return problem
        finally:
            listener.end(name)

    frames: list[pd.DataFrame] = []
    # Threads: the time goes to array code, which lets others run meanwhile.
    with ThreadPoolExecutor(workers) as pool:
        wanted = tuple(scores or SCORES)
        for name, found in zip(wanted, pool.map(compute, wanted), strict=True):
            if isinstance(found, UserError):
                if scores:
                    raise found
                skipped[name] = str(found)
            else:
                frames.append(found)
    if not frames:
        raise UserError(next(iter(skipped.values())))
    environments = None
    if "sign_error" in (scores or SCORES) and "sign_error" not in skipped:
        environments = sign_error_environments(
            networks,
            target=chosen.target,
            family=chosen.family,
            noise_filter=chosen.noise_filter,
            min_n_eff=chosen.min_n_eff,
        )
    return TableScores(networks, chosen, pd.concat(frames, ignore_index=True), environments, skipped)


def _check(scores: Collection[str], networks: NetworkTable, options: Options) -> None:
    for name in scores:
        if name not in SCORES:
            raise UserError(f"unknown score {name!r}; there are {', '.join(SCORES)}")
    networks.target(options.target)


def _calls(networks: NetworkTable, options: Options) -> dict[str, Callable[[Tick], pd.DataFrame]]:
    target, resamples, seed = options.target, options.resamples, options.seed
    return {
        "sign_error": lambda tick: robust_sign_error(
            networks,
            target=target,
            family=options.family,
            noise_filter=options.noise_filter,
            min_n_eff=options.min_n_eff,
            resamples=resamples,
            seed=seed,
            tick=tick,
        ),
        "affine_oracle": lambda tick: affine_oracle(
            networks, target=target, resamples=resamples, seed=seed, tick=tick
        ),
        "kendall": lambda tick: granulated_kendall(networks, resamples=resamples, seed=seed, tick=tick),
        "independence": lambda tick: conditional_independence(
            networks, target=target, resamples=resamples, seed=seed, tick=tick
        ),
        "pgdl": lambda tick: pgdl_score(networks, target=target, resamples=resamples, seed=seed, tick=tick),
        "cms": lambda tick: cms(
            networks, group_by=options.group_by, resamples=resamples, seed=seed, tick=tick
        ),
    }
