"""Calibration: empty measures fail, intervals cover, differences are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from made_networks import made_population, made_testbed

from genbench.scoring.calibrate import Calibration, calibrate
from genbench.scoring.empty_measures import EMPTY, random_function, signal
from genbench.scoring.known_networks import KnownNetworks

MEASURES = 160


@pytest.fixture(scope="module", params=[made_population, made_testbed], ids=["population", "testbed"])
def known(request: pytest.FixtureRequest) -> KnownNetworks:
    made: KnownNetworks = request.param()
    return made


@pytest.fixture(scope="module")
def found(known: KnownNetworks) -> Calibration:
    return calibrate(known, MEASURES, permutations=1000, resamples=300)


def test_empty_measures_pass_no_more_often_than_they_may(found: Calibration) -> None:
    """7 % of 160, and three standard deviations of so few."""
    asked = {(one.empty, one.question): one.share for one in found.false_passes}
    assert asked.keys() == {(kind.name, name) for kind in EMPTY for name in kind.must_fail}
    most = 0.07 + 3 * np.sqrt(0.07 * 0.93 / MEASURES)
    assert all(share is not None and share <= most for share in asked.values()), asked


def test_what_is_the_same_within_an_architecture_never_passes_at_equal_size(found: Calibration) -> None:
    constant = {"function of weight count", "random per architecture"}
    assert {one.share for one in found.false_passes if one.empty in constant} == {0.0}


def test_intervals_of_known_sign_errors_cover(found: Calibration) -> None:
    assert found.covered is not None
    assert found.covered >= 0.92 - 3 * np.sqrt(0.08 * 0.92 / MEASURES)
    assert found.coverage[-1].sign_error == pytest.approx(0.48, abs=0.01)


def test_power_grows_with_the_difference_and_equal_measures_are_not_told_apart(found: Calibration) -> None:
    assert found.power[0].difference == 0
    assert found.power[0].share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / MEASURES)
    shares = [one.share for one in found.power]
    assert shares[-1] >= 0.8
    assert shares[-1] > shares[1]
    assert found.smallest_difference is not None
    before = max(one.difference for one in found.power if one.share < 0.8)
    assert (
        before
        < found.smallest_difference
        <= min(one.difference for one in found.power if one.share >= 0.8 and one.difference > before)
    )


def test_a_random_function_is_the_same_for_equal_arguments_and_differs_from_draw_to_draw() -> None:
    x = np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]])
    drawn = random_function(x, 50, np.random.default_rng(0))
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.allclose(drawn[:, 0], drawn[:, 1])


def test_noise_makes_a_signal_worse(known: KnownNetworks) -> None:
    drawn = signal(known, np.array([0.0, 1.0, 100.0]), np.random.default_rng(0))
    errors = known.headline.sign_errors(drawn)
    assert errors[0] < errors[1] < errors[2]
    assert errors[2] == pytest.approx(0.5, abs=0.1)
