from __future__ import annotations

import warnings
from fractions import Fraction
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import Rows, simulate

from doubtless import ErrorEstimate, Gaussian, InputError, Quantiles, SplitConformal, p_values
from doubtless.conformal.split import exact, nonconformity, rank, smallest_calibration

SIZES = [19, 50, 199]


def split(alpha=0.1, **options):
    return lambda known, new: (
        SplitConformal(alpha, **options).fit(known.forecast, known.human).intervals(new.forecast)
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_coverage_lies_within_the_theorem(n, symmetric):
    coverage = simulate(split(), n, symmetric=symmetric)
    assert coverage.lies_within(0.9, 0.9 + 1 / (n + 1))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_sided_coverage_lies_within_the_theorem(n, side):
    coverage = simulate(split(side=side), n)
    assert coverage.lies_within(0.9, 0.9 + 1 / (n + 1))


def test_the_simulation_notices_a_rank_that_is_one_too_low():
    def careless(known, new):
        fitted = SplitConformal(0.1).fit(known.forecast, known.human)
        scores = np.sort(nonconformity(known.forecast, known.human, 0.1))
        return type(fitted)(0.1, float(scores[rank(19, exact(0.1)) - 2]), 19).intervals(new.forecast)

    assert not simulate(careless, 19).lies_within(0.9, 0.9 + 1 / 20)


@given(st.integers(0, 3000), st.integers(1, 999))
def test_the_rank_is_exact_for_decimal_alphas(n, thousandths):
    alpha = thousandths / 1000
    expected = -((-(n + 1) * (1000 - thousandths)) // 1000)
    assert rank(n, exact(alpha)) == expected


def test_nine_rows_are_enough_for_one_tenth():
    assert smallest_calibration(0.1) == 9
    assert rank(9, Fraction(1, 10)) == 9
    assert SplitConformal(0.1).fit(Gaussian(np.zeros(9), np.ones(9)), np.arange(9.0)).factor < inf
    assert SplitConformal(0.1).fit(Gaussian(np.zeros(8), np.ones(8)), np.arange(8.0)).factor == inf


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.9])
def test_the_smallest_calibration_is_the_first_bounded_one(alpha):
    n = smallest_calibration(alpha)
    assert rank(n, exact(alpha)) <= n
    assert n == 0 or rank(n - 1, exact(alpha)) > n - 1


def test_too_few_rows_give_the_declared_range_and_a_flag():
    forecast = Gaussian([0.5], [0.1])
    intervals = SplitConformal(0.1, bounds=(0.0, 1.0)).fit(forecast, [0.4]).intervals(forecast)
    assert (intervals.lower[0], intervals.upper[0]) == (0.0, 1.0)
    assert intervals.unbounded.all()
    intervals = SplitConformal(0.1).fit(forecast, [0.4]).intervals(forecast)
    assert (intervals.lower[0], intervals.upper[0]) == (-inf, inf)


def test_no_rows_at_all_give_an_unbounded_interval():
    forecast = Gaussian([0.5], [0.1])
    assert SplitConformal(0.1).fit(forecast[:0], []).intervals(forecast).unbounded.all()


def test_the_factor_is_the_brute_force_quantile_of_equation_5():
    rng = np.random.default_rng(0)
    rows = Rows.draw(rng, 101, symmetric=False)
    below, above = rows.forecast.spread(0.1)
    scores = sorted(
        (y - s) / up if y >= s else (s - y) / down
        for y, s, down, up in zip(rows.human, rows.forecast.score, below, above, strict=True)
    )
    fitted = SplitConformal(0.1).fit(rows.forecast, rows.human)
    assert fitted.factor == scores[ceil(102 * 0.9) - 1]
    intervals = fitted.intervals(rows.forecast)
    np.testing.assert_allclose(intervals.lower, rows.forecast.score - fitted.factor * below, rtol=1e-12)
    np.testing.assert_allclose(intervals.upper, rows.forecast.score + fitted.factor * above, rtol=1e-12)


numbers = st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
spreads = st.floats(1e-5, 1e5)


@given(
    st.lists(st.tuples(numbers, spreads, spreads, numbers), min_size=9, max_size=60),
    st.sampled_from([0.1, 0.3, 0.5]),
)
def test_rounding_never_puts_a_calibration_row_outside(rows, alpha):
    score, down, up, human = (np.array(column) for column in zip(*rows, strict=True))
    forecast = Quantiles((alpha / 2, 0.5, 1 - alpha / 2), np.stack([score - down, score, score + up], axis=1))
    for side in ("both", "lower", "upper"):
        fitted = SplitConformal(alpha, side=side).fit(forecast, human)
        inside = nonconformity(forecast, human, alpha, side) <= fitted.factor
        assert inside.sum() >= rank(len(rows), exact(alpha))
        assert fitted.intervals(forecast).covers(human)[inside].all()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.sampled_from([0.1, 0.2, 0.5]))
def test_ties_never_cost_coverage(values, alpha):
    human = np.array(values, dtype=float)
    forecast = ErrorEstimate(np.zeros(len(human)), np.ones(len(human)))
    fitted = SplitConformal(alpha).fit(forecast, human)
    assert fitted.intervals(forecast).covers(human).sum() >= min(rank(len(human), exact(alpha)), len(human))


@given(st.lists(st.integers(0, 6), max_size=30), st.lists(st.integers(-1, 7), min_size=1, max_size=30))
def test_p_values_equal_the_definition(known, new):
    expected = [(1 + sum(k >= x for k in known)) / (len(known) + 1) for x in new]
    np.testing.assert_array_equal(p_values(known, new), expected)


def test_smoothed_p_values_are_uniform_despite_ties():
    rng = np.random.default_rng(3)
    shares = [
        np.mean(p_values(rng.integers(0, 4, 20), rng.integers(0, 4, 50), seed=seed) <= 0.25)
        for seed in range(2_000)
    ]
    assert abs(np.mean(shares) - 0.25) < 3 * np.std(shares) / np.sqrt(len(shares))


def test_a_p_value_above_alpha_means_inside_the_interval():
    rng = np.random.default_rng(4)
    known, new = Rows.draw(rng, 137), Rows.draw(rng, 500)
    p = p_values(nonconformity(known.forecast, known.human, 0.1), nonconformity(new.forecast, new.human, 0.1))
    covered = SplitConformal(0.1).fit(known.forecast, known.human).intervals(new.forecast).covers(new.human)
    np.testing.assert_array_equal(covered, p > 0.1)


def test_intervals_equal_those_of_crepes():
    """Away from sizes such as 199, at which crepes' rank, computed in floating point, is one too high."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from crepes import ConformalRegressor

        rng = np.random.default_rng(5)
        known, new = Rows.draw(rng, 150), Rows.draw(rng, 50)
        spread, new_spread = known.forecast.spread(0.1)[0], new.forecast.spread(0.1)[0]
        theirs = ConformalRegressor().fit(known.human - known.forecast.score, sigmas=spread)
        expected = theirs.predict_int(new.forecast.score, sigmas=new_spread, confidence=0.9)
    ours = SplitConformal(0.1).fit(known.forecast, known.human).intervals(new.forecast)
    np.testing.assert_allclose(np.stack([ours.lower, ours.upper], axis=1), expected, rtol=1e-12)


def test_intervals_equal_those_of_mapie():
    pytest.importorskip("mapie")
    from sklearn.dummy import DummyRegressor

    rng = np.random.default_rng(6)
    human = rng.normal(size=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mapie.regression import SplitConformalRegressor

        model = DummyRegressor(strategy="constant", constant=0.0).fit(np.zeros((2, 1)), [0, 0])
        regressor = SplitConformalRegressor(model, confidence_level=0.8, prefit=True)
        regressor.conformalize(np.zeros((150, 1)), human)
        expected = regressor.predict_interval(np.zeros((1, 1)))[1][0, :, 0]
    fitted = SplitConformal(0.2).fit(ErrorEstimate(np.zeros(150), np.ones(150)), human)
    ours = fitted.intervals(ErrorEstimate([0.0], [1.0]))
    np.testing.assert_allclose([ours.lower[0], ours.upper[0]], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alpha": 0}, "alpha must lie between 0 and 1, found 0"),
        ({"alpha": 1.0}, "alpha must lie between 0 and 1, found 1.0"),
        ({"side": "left"}, "side must be both, lower or upper, found 'left'"),
        ({"bounds": (1.0, 1.0)}, "the score range 1.0 to 1.0 is empty"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        SplitConformal(**options)


def test_human_scores_must_be_complete():
    forecast = Gaussian([0.0, 1.0], [1.0, 1.0])
    with pytest.raises(InputError, match="^the human score in row 2 is missing or not finite$"):
        SplitConformal().fit(forecast, [0.0, np.nan])
    with pytest.raises(InputError, match="^3 human scores for 2 forecasts$"):
        SplitConformal().fit(forecast, [0.0, 1.0, 2.0])
