from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from doubtless import ErrorEstimate, Gaussian, InputError, Quantiles, Samples, UndefinedError, WarpedGaussian
from doubtless.warp import LogWarp, TanhWarp

RNG = np.random.default_rng(0)
Y = RNG.normal(size=30)


def families():
    mean, sd = RNG.normal(size=30), RNG.gamma(2, 0.3, 30)
    return {
        "gaussian": Gaussian(mean, sd),
        "samples": Samples(RNG.normal(size=(30, 7))),
        "log": WarpedGaussian(mean, sd, LogWarp()),
        "tanh": WarpedGaussian(mean, sd, TanhWarp((1.0,), (2.0,), (0.3,))),
        "quantiles": Quantiles((0.05, 0.25, 0.5, 0.95), np.sort(RNG.normal(size=(30, 4)), axis=1)),
        "error": ErrorEstimate(mean, sd),
    }


@pytest.mark.parametrize("name", families())
def test_rows_can_be_taken_in_every_way(name):
    forecast = families()[name]
    mask = np.arange(30) % 3 == 0
    for rows in (slice(4, 9), mask, np.array([3, 3, 1])):
        part = forecast[rows]
        np.testing.assert_array_equal(part.score, forecast.score[rows])
        for ours, whole in zip(part.spread(0.1), forecast.spread(0.1), strict=True):
            np.testing.assert_array_equal(ours, whole[rows])
    assert len(forecast[:0]) == 0
    assert len(forecast) == 30


@pytest.mark.parametrize("name", families())
def test_forecasts_cannot_be_changed(name):
    forecast = families()[name]
    with pytest.raises(AttributeError):
        forecast.floor = 1.0
    field = forecast._rowwise()[0]
    with pytest.raises(ValueError, match="read-only"):
        getattr(forecast, field)[0] = 1.0


def test_the_arrays_of_the_caller_stay_theirs():
    mean = np.zeros(3)
    Gaussian(mean, np.ones(3))
    mean[0] = 5.0
    assert mean[0] == 5.0


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_gaussian_spread_is_the_probit_of_the_level(alpha):
    below, above = Gaussian([0.0], [2.0]).spread(alpha)
    assert below[0] == above[0] == pytest.approx(2 * stats.norm.ppf(1 - alpha / 2), rel=1e-12)


def test_samples_are_a_gaussian_of_their_moments():
    samples = RNG.normal(size=(30, 100)).astype(np.float32)
    forecast = Samples(samples)
    same = Gaussian(samples.astype(float).mean(1), samples.astype(float).std(1))
    np.testing.assert_allclose(forecast.score, same.score)
    np.testing.assert_allclose(forecast.spread(0.1)[0], same.spread(0.1)[0])
    np.testing.assert_allclose(forecast.log_density(Y), same.log_density(Y))
    np.testing.assert_allclose(forecast.quantile(0.3), same.quantile(0.3))
    np.testing.assert_allclose(forecast.variance, same.variance)


def test_the_log_warping_is_the_lognormal_distribution():
    mu, sd = np.array([0.2, -1.0]), np.array([0.5, 0.8])
    forecast = WarpedGaussian(mu, sd, LogWarp())
    exact = stats.lognorm(s=sd, scale=np.exp(mu))
    np.testing.assert_allclose(forecast.mean, exact.mean(), rtol=1e-8)
    np.testing.assert_allclose(forecast.variance, exact.var(), rtol=1e-5)
    np.testing.assert_allclose(forecast.score, exact.median())
    for p in (0.01, 0.5, 0.95):
        np.testing.assert_allclose(forecast.quantile(p), exact.ppf(p))
    np.testing.assert_allclose(forecast.log_density([0.7, 0.1]), exact.logpdf([0.7, 0.1]))
    assert forecast.log_density([-1.0, 0.0]).tolist() == [-np.inf, -np.inf]
    assert forecast.centrality([-1.0, 0.0]).tolist() == [1.0, 1.0]


def test_a_warped_density_integrates_to_one():
    grid = np.linspace(-12, 12, 20_001)
    forecast = WarpedGaussian([0.4], [0.9], TanhWarp((1.5, 0.5), (2.0, 1.0), (0.3, -1.0)))
    density = np.exp([forecast.log_density([y])[0] for y in grid])
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(density * grid, grid) == pytest.approx(forecast.mean[0], abs=1e-3)


@pytest.mark.parametrize("name", ["gaussian", "samples", "log", "tanh"])
def test_centrality_is_the_level_of_the_interval_that_ends_there(name):
    forecast = families()[name]
    for alpha in (0.1, 0.5):
        np.testing.assert_allclose(
            forecast.centrality(forecast.quantile(1 - alpha / 2)), 1 - alpha, atol=1e-9
        )
        np.testing.assert_allclose(forecast.centrality(forecast.quantile(alpha / 2)), 1 - alpha, atol=1e-9)
        below, above = forecast.spread(alpha)
        np.testing.assert_allclose(forecast.score - below, forecast.quantile(alpha / 2))
        np.testing.assert_allclose(forecast.score + above, forecast.quantile(1 - alpha / 2))


@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=1, max_size=10))
def test_crossing_quantiles_are_sorted_and_counted(values):
    forecast = Quantiles((0.05, 0.5, 0.95), values)
    assert (np.diff(forecast.values, axis=1) >= 0).all()
    assert forecast.crossings == sum(row != sorted(row) for row in values)
    below, above = forecast.raw_spread(0.1)
    assert (below >= 0).all()
    assert (above >= 0).all()


def test_quantiles_are_interpolated_and_end_at_the_outermost():
    forecast = Quantiles((0.1, 0.5, 0.9), [[0.0, 4.0, 5.0]])
    assert forecast.quantile(0.3)[0] == pytest.approx(2.0)
    assert forecast.spread(0.2)[0][0] == pytest.approx(4.0)
    assert forecast.spread(0.01)[1][0] == pytest.approx(1.0)  # all that is known
    with pytest.raises(UndefinedError, match=r"^quantile 0.01 lies outside the known levels 0.1 to 0.9$"):
        forecast.quantile(0.01)


def test_symmetric_quantiles_take_the_middle_as_the_score():
    forecast = Quantiles((0.05, 0.95), [[1.0, 4.0]], symmetric=True)
    assert forecast.score[0] == 2.5
    assert [side[0] for side in forecast.spread(0.1)] == [1.5, 1.5]


def test_the_floor_keeps_spreads_positive_and_counts():
    forecast = Gaussian([0.0, 0.0, 0.0], [0.0, 1e-9, 1.0], floor=0.01)
    assert forecast.spread(0.1)[0].tolist() == pytest.approx([0.01, 0.01, 1.6448536])
    assert forecast.floored(0.1) == 2
    assert np.isfinite(forecast.log_density([0.0, 1.0, 1.0])).all()
    assert ErrorEstimate([0.0], [-3.0]).floored(0.1) == 1  # an unclamped error head may go below zero


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Gaussian([0.0, np.nan], [1, 1]), "mean of a forecast is not finite in row 2"),
        (lambda: Gaussian([0.0], [-1.0]), "the standard deviation of a forecast is negative in row 1"),
        (lambda: Gaussian([0.0], [1.0, 1.0]), r"the arrays of a forecast have different lengths: \[1, 2\]"),
        (lambda: Samples([[0.0, 1.0], [np.inf, 0.0]]), "samples of a forecast is not finite in row 2"),
        (lambda: Samples([0.0, 1.0]), "samples need one row a segment and at least one column"),
        (
            lambda: Quantiles((0.5, 0.1), [[0.0, 1.0]]),
            "quantile levels must increase and lie between 0 and 1.*",
        ),
        (lambda: Quantiles((0.1, 0.5), [[0.0]]), "2 levels need as many columns of quantiles"),
    ],
)
def test_impossible_forecasts_are_refused(make, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        make()


def test_very_large_but_finite_numbers_are_accepted():
    assert Gaussian([1e300, 1.0], [1e200, 1.0]).score[0] == 1e300
