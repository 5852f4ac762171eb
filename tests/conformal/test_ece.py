from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from doubtless import EceCalibration, ErrorEstimate, Gaussian
from doubtless.conformal.ece import _least_ece, expected_calibration_error


def brute_ece(mean, sd, y, levels=100):
    gammas = np.linspace(0, 1, levels)
    shares = []
    for gamma in gammas:
        low, high = norm.interval(gamma, mean, sd) if 0 < gamma < 1 else (mean, mean)
        low, high = (low, high) if gamma < 1 else (-np.inf, np.inf)
        shares.append(np.mean((low <= y) & (y <= high)))
    return np.mean(np.abs(np.array(shares) - gammas))


def test_the_error_equals_equation_10():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=400), rng.gamma(2, 0.3, 400)
    y = mean + 2 * sd * rng.normal(size=400)
    assert expected_calibration_error(Gaussian(mean, sd), y) == pytest.approx(
        brute_ece(mean, sd, y), abs=1e-12
    )


def test_a_calibrated_forecast_has_almost_no_error():
    rng = np.random.default_rng(1)
    sd = rng.gamma(2, 0.3, 20_000)
    y = sd * rng.normal(size=20_000)
    assert expected_calibration_error(Gaussian(np.zeros(20_000), sd), y) < 0.006


@pytest.mark.parametrize(("a", "b"), [(4.0, 0.0), (0.5, 1.0), (0.0, 2.0)])
def test_the_affine_map_of_the_variance_is_recovered(a, b):
    rng = np.random.default_rng(2)
    variance = rng.gamma(1, 1, 10_000)
    y = np.sqrt(a * variance + b) * rng.normal(size=10_000)
    fitted = EceCalibration(0.1).fit(Gaussian(np.zeros(10_000), np.sqrt(variance)), y)
    calibrated = Gaussian(np.zeros(10_000), np.sqrt(fitted.scale * variance + fitted.offset))
    assert expected_calibration_error(calibrated, y) < 0.01
    middle = 1.0
    assert fitted.scale * middle + fitted.offset == pytest.approx(a * middle + b, rel=0.15)


def test_the_search_beats_a_fine_grid():
    """As good as a brute-force grid over (a, b), up to the grid of the search itself."""
    rng = np.random.default_rng(3)
    sd = rng.gamma(2, 0.2, 300)
    y = np.where(rng.random(300) < 0.3, 6, 1) * rng.standard_t(3, 300) * sd + rng.normal(0, 0.2, 300)
    scale, offset = _least_ece(y**2, sd**2)
    found = brute_ece(0, np.sqrt(scale * sd**2 + offset), y)
    grid = min(
        brute_ece(0, np.sqrt(a * sd**2 + b), y)
        for a in np.geomspace(0.1, 30, 13)
        for b in np.append(0, np.geomspace(0.001, 3, 8))
    )
    assert found <= grid + 0.002


def test_intervals_of_the_baseline_use_the_calibrated_variance():
    forecast = Gaussian([1.0], [0.5])
    fitted = EceCalibration(0.1).fit(
        Gaussian(np.zeros(500), np.ones(500)), 2 * np.random.default_rng(4).normal(size=500)
    )
    upper = norm.ppf(0.95, 1.0, np.sqrt(fitted.scale * 0.25 + fitted.offset))
    assert fitted.intervals(forecast).upper[0] == pytest.approx(upper)


def test_other_families_enter_by_their_spread():
    rng = np.random.default_rng(5)
    y = rng.normal(size=3_000)
    fitted = EceCalibration(0.1).fit(ErrorEstimate(np.zeros(3_000), np.full(3_000, 0.1)), y)
    covered = fitted.intervals(ErrorEstimate(np.zeros(3_000), np.full(3_000, 0.1))).covers(y).mean()
    assert covered == pytest.approx(0.9, abs=0.02)
