"""Scores are those of the readings, not of the processor: BLAS has other sums on each kind of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_networks import made_population
from threadpoolctl import threadpool_info

from genbench.audit.statistics import fit_line
from genbench.scoring.adjust import adjustment
from genbench.scoring.grid import on_grid
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.verdicts import judge
from genbench.suites.evidence_packs import shipped_evidence
from genbench.testbed.evidence import TestbedEvidence

pytestmark = pytest.mark.xdist_group("test_leaderboard")  # which knows the evidence of `mini`

OPENBLAS = {one.get("internal_api"): one.get("architecture") for one in threadpool_info()}.get("openblas")


def scores() -> dict[str, object]:
    """Of random numbers, and of some that say much of the truth: all that a board shows, to ten digits."""
    evidence = shipped_evidence("mini")
    assert isinstance(evidence, TestbedEvidence)
    bed = evidence.known_networks()
    found: dict[str, object] = {"mini": answers(bed), "made": answers(made_population())}
    for name, values in readings(bed).items():
        score = evidence.truth.score(dict(zip(bed.names, values, strict=True)))
        assert score is not None
        found[f"images, {name}"] = [ten(score.low), ten(score.high)]
    return found


def readings(known: KnownNetworks) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0).normal(size=(6, len(known)))
    truth = (known.truths.mean(axis=0) - known.truths.mean()) / known.truths.std()
    return {f"{n} of the truth": row + n / 4 * truth for n, row in enumerate(noise)}


def answers(known: KnownNetworks) -> list[list[float]]:
    board = judge(known, readings(known), permutations=5_000, resamples=200)
    return [
        [ten(number) for number in vars(answer).values() if number is not None]
        for one in board.measures.values()
        for answer in one.questions.values()
    ]


def ten(number: float) -> float:
    return float(f"{number:.10g}")


@pytest.mark.skipif(
    OPENBLAS is None or platform.machine() != "x86_64",
    reason="these are kernels of OpenBLAS for x86; this NumPy has others",
)
@pytest.mark.parametrize("kernel", ["Nehalem", "SkylakeX"])
def test_scores_are_the_same_on_another_processor(kernel: str) -> None:
    if kernel == "SkylakeX" and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor cannot run these kernels")
    code = f"import json, {__name__} as tests; print(tests.OPENBLAS, json.dumps(tests.scores()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENBLAS_CORETYPE": kernel, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    ran, said = done.stdout.split(" ", 1)
    assert ran == kernel
    assert json.loads(said) == json.loads(json.dumps(scores()))


def test_numbers_that_differ_by_rounding_are_one_and_others_are_not() -> None:
    shares = np.arange(1, 401) / 400
    noisy = np.nextafter(shares, 2)
    assert (noisy != shares).all()
    assert (on_grid(noisy, 40) == on_grid(shares, 40)).all()
    assert len(np.unique(on_grid(shares, 40))) == 400
    # Halfway between decimals, where rounding to so many of them would go either way.
    assert on_grid(0.125 * (1 + 1e-15), 20) == on_grid(0.125 * (1 - 1e-15), 20) == 0.125


def test_residuals_are_compared_more_coarsely_where_covariates_nearly_depend_on_each_other() -> None:
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(2, 60))
    zeros = np.zeros(60, dtype=np.int64)
    apart = adjustment(np.column_stack([x, noise]), zeros, zeros)
    alike = adjustment(np.column_stack([x, x + 1e-6 * noise]), zeros, zeros)
    assert alike.freedom == apart.freedom == 57
    assert apart.bits == 20
    # Rounding grows to some 60 · 2e-16 · 2e6; a grid 256 times as wide has steps of 2^-17 or so.
    assert 15 <= alike.bits <= 18
    ranks = alike.residuals(generator.normal(size=(60, 3)))
    assert (ranks * 2.0**alike.bits == np.rint(ranks * 2.0**alike.bits)).all()


def test_a_measure_that_never_moves_has_no_slope() -> None:
    x = np.log([75, 150, 300, 610])
    line = fit_line(x, np.full(4, np.log(7e5)), np.zeros(4))
    assert (line.slope, line.curvature) == (0.0, 0.0)
    assert f"{line.slope:+.2f}" == "+0.00"
