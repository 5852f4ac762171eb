from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from doubtless.conformal.grouped import Categories
from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.decide.losses import Loss
from doubtless.decide.risk import best_shift, decide
from doubtless.errors import InputError, UndefinedError
from doubtless.forecast import ErrorEstimate, Gaussian, Quantiles, Samples, WarpedGaussian
from doubtless.warp import LogWarp, TanhWarp

TANH = TanhWarp(a=(2.0, 0.5), b=(1.0, 3.0), c=(-1.0, 0.5))
RESIDUALS = np.random.default_rng(3).gumbel(size=40)
FITTED = PredictiveDistribution.fit(Gaussian(np.zeros(40), np.ones(40)), RESIDUALS)
SCORES, SPREADS = np.array([0.4, 2.0, -1.0]), np.array([0.3, 0.8, 0.5])
DRAWN = np.random.default_rng(1).gumbel(size=(3, 7))

# A forecast, how to ask for its decision, and the truth of one row as a function of a normal variable.
Z = stats.norm.ppf


def piecewise(row):
    low, middle, high = QUANTILES[row]
    return lambda z: middle + z * np.where(z < 0, middle - low, high - middle) / Z(0.9)


QUANTILES = np.array([[0.0, 1.0, 1.5], [2.0, 2.2, 4.0], [-1.0, 0.0, 1.0]])
CONTINUOUS = {
    "gaussian": (Gaussian(SCORES, SPREADS), {}, lambda i: lambda z: SCORES[i] + SPREADS[i] * z),
    "moments": (
        Samples(DRAWN),
        {},
        lambda i: lambda z: DRAWN[i].mean() + DRAWN[i].std() * z,
    ),
    "lognormal": (
        WarpedGaussian(SCORES, SPREADS, LogWarp()),
        {},
        lambda i: lambda z: np.exp(SCORES[i] + SPREADS[i] * z),
    ),
    "tanh": (
        WarpedGaussian(SCORES, SPREADS, TANH),
        {},
        lambda i: lambda z: TANH.inverse(SCORES[i] + SPREADS[i] * z),
    ),
    "quantiles": (Quantiles((0.1, 0.5, 0.9), QUANTILES), {"assume": "normal"}, piecewise),
    "error": (
        ErrorEstimate(SCORES, SPREADS),
        {"assume": "normal"},
        lambda i: lambda z: SCORES[i] + SPREADS[i] * np.sqrt(np.pi / 2) * z,
    ),
}
DISCRETE = {
    "samples": (Samples(DRAWN), {"assume": "samples"}, lambda i: DRAWN[i]),
    "conformal": (
        Gaussian(SCORES, SPREADS),
        {"distribution": FITTED},
        # At alpha = 0.1 the unit of a residual is 1.645 standard deviations, in calibration and now.
        lambda i: SCORES[i] + SPREADS[i] * np.sort(RESIDUALS),
    ),
}
LOSSES = [
    Loss(kind, w, side) for kind, w in (("al", 3), ("aq", 3), ("linex", 0.75)) for side in ("under", "over")
]


def heavy(family, loss):
    return family == "lognormal" and loss.kind == "linex" and loss.costly == "under"


def possible(family, row):
    """Many equally likely values, by brute force: the middles of narrow strata."""
    if family in DISCRETE:
        values = DISCRETE[family][2](row)
        return values, np.full(len(values), 1 / len(values))
    z = np.linspace(-9, 9, 6001)
    return CONTINUOUS[family][2](row)((z[:-1] + z[1:]) / 2), np.diff(stats.norm.cdf(z))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{loss.costly}")
@pytest.mark.parametrize("family", [*CONTINUOUS, *DISCRETE])
def test_no_number_on_a_fine_grid_has_a_smaller_expected_loss(family, loss):
    if heavy(family, loss):
        pytest.skip("infinite, see below")
    forecast, options, _ = (CONTINUOUS | DISCRETE)[family]
    decision = decide(forecast, loss, **options)
    for row in range(3):
        values, weights = possible(family, row)
        grid = decision[row] + np.linspace(-1, 1, 401) * (values[-1] - values[0]) / 20
        expected = np.array([weights @ loss(t, values) for t in grid])
        mine = weights @ loss(decision[row], values)
        # A careful conformal quantile may be one rank from the best one.
        slack = 0.03 if family == "conformal" and loss.kind == "al" else 1e-5
        assert mine <= expected.min() * (1 + slack)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{loss.costly}")
@pytest.mark.parametrize("family", [*CONTINUOUS, "samples"])
def test_the_search_for_any_loss_finds_the_known_optimum(family, loss):
    if heavy(family, loss):
        pytest.skip("infinite, see below")
    forecast, options, _ = (CONTINUOUS | DISCRETE)[family]
    sought = decide(forecast, lambda prediction, truth: loss(prediction, truth), **options)
    np.testing.assert_allclose(sought, decide(forecast, loss, **options), atol=2e-4)


def test_closed_forms_of_the_normal_distribution():
    forecast = Gaussian(SCORES, SPREADS)
    np.testing.assert_allclose(decide(forecast, Loss("al", 3)), SCORES + Z(0.75) * SPREADS)
    np.testing.assert_allclose(decide(forecast, Loss("al", 3, "over")), SCORES + Z(0.25) * SPREADS)
    np.testing.assert_allclose(decide(forecast, Loss("linex", 0.75)), SCORES + 0.375 * SPREADS**2)
    np.testing.assert_allclose(decide(forecast, Loss("linex", 0.75, "over")), SCORES - 0.375 * SPREADS**2)
    # The expectile e solves w (phi - e (1 - Phi)) = phi + e Phi.
    e = (decide(forecast, Loss("aq", 4)) - SCORES) / SPREADS
    np.testing.assert_allclose(
        4 * (stats.norm.pdf(e) - e * stats.norm.sf(e)), stats.norm.pdf(e) + e * stats.norm.cdf(e), rtol=1e-10
    )


def test_closed_forms_of_the_lognormal_distribution():
    forecast = WarpedGaussian(SCORES, SPREADS, LogWarp())
    np.testing.assert_allclose(decide(forecast, Loss("al", 9)), np.exp(SCORES + Z(0.9) * SPREADS))
    mean = np.exp(SCORES + SPREADS**2 / 2)
    np.testing.assert_allclose(decide(forecast, Loss("aq", 1)), mean, rtol=1e-12)
    np.testing.assert_allclose(decide(forecast, Loss("linex", 1e-7, "over")), mean, rtol=1e-6)
    variance = mean**2 * np.expm1(SPREADS**2)
    paper = decide(forecast, Loss("linex", 0.75), method="paper")
    np.testing.assert_allclose(paper, mean + 0.375 * variance, rtol=1e-10)


class ExponentialWarp:
    """Exponential labels with mean 1: y = -log(1 - Phi(z))."""

    def forward(self, y):
        return stats.norm.isf(np.exp(-y))

    def inverse(self, z):
        return -stats.norm.logsf(z)

    def log_derivative(self, y):
        return -y - stats.norm.logpdf(self.forward(y))


def test_closed_forms_of_the_exponential_distribution():
    forecast = WarpedGaussian([0.0], [1.0], ExponentialWarp())
    assert decide(forecast, Loss("al", 3))[0] == pytest.approx(np.log(4))
    # E[exp(cY)] = 1 / (1 - c), finite for c < 1 only.
    for w in (0.25, 0.5, 0.75):
        assert decide(forecast, Loss("linex", w))[0] == pytest.approx(-np.log(1 - w) / w, rel=1e-3)
        assert decide(forecast, Loss("linex", w, "over"))[0] == pytest.approx(np.log(1 + w) / w, rel=1e-7)
    with pytest.raises(UndefinedError, match="infinite whatever is decided"):
        decide(forecast, Loss("linex", 1.5))


@pytest.mark.parametrize("sd", [1e-4, 0.1, 0.7, 3.0])
def test_pessimistic_linex_is_infinite_for_lognormal_times(sd):
    forecast = WarpedGaussian([0.0, 1.0], [0.0, sd], LogWarp())
    with pytest.raises(UndefinedError, match="the expected linex loss of row 2 is infinite"):
        decide(forecast, Loss("linex", 0.75))
    assert np.isfinite(decide(forecast, Loss("linex", 0.75), bounds=(0, 50))).all()
    assert np.isfinite(decide(forecast, Loss("linex", 0.75, "over"))).all()


def test_a_warped_decision_is_not_the_gaussian_formula():
    forecast = WarpedGaussian([1.0], [0.8], LogWarp())
    exact = decide(forecast, Loss("linex", 1.0, "over"))[0]
    paper = decide(forecast, Loss("linex", 1.0, "over"), method="paper")[0]
    y = np.exp(np.random.default_rng(0).normal(1.0, 0.8, 400_000))
    loss = Loss("linex", 1.0, "over")
    assert exact == pytest.approx(-np.log(np.exp(-y).mean()), rel=1e-2)
    assert loss(exact, y).mean() < 0.9 * loss(paper, y).mean()


def test_linex_of_large_spreads_does_not_overflow():
    flat = TanhWarp(a=(0.0,), b=(0.0,), c=(0.0,))  # a normal distribution, by way of quadrature
    mu, sd = np.array([0.0, 500.0, -500.0]), np.array([100.0, 1e3, 1e-3])
    for side, sign in (("under", 1), ("over", -1)):
        found = decide(WarpedGaussian(mu, sd, flat), Loss("linex", 2.0, side))
        np.testing.assert_allclose(found, mu + sign * sd**2, rtol=1e-9)
    far = decide(Samples([[0.0, 1e6]]), Loss("linex", 5.0), assume="samples")
    assert far[0] == pytest.approx(1e6 - np.log(2) / 5)


@pytest.mark.parametrize("family", [*CONTINUOUS, *DISCRETE])
def test_symmetric_weights_give_the_median_and_the_mean(family):
    forecast, options, _ = (CONTINUOUS | DISCRETE)[family]
    for row in range(3):
        values, weights = possible(family, row)
        middle = np.median(values) if family in DISCRETE else CONTINUOUS[family][2](row)(np.zeros(1))[0]
        assert decide(forecast, Loss("al", 1), **options)[row] == pytest.approx(middle)
        assert decide(forecast, Loss("aq", 1), **options)[row] == pytest.approx(weights @ values, rel=1e-4)
        if not heavy(family, Loss("linex", 1e-6)):
            near = decide(forecast, Loss("linex", 1e-6), **options)[row]
            assert near == pytest.approx(weights @ values, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", ["al", "aq", "linex"])
def test_the_other_scenario_is_the_mirror_image(kind):
    under, over = Loss(kind, 3), Loss(kind, 3, "over")
    for forecast, mirrored, options in [
        (Gaussian(SCORES, SPREADS), Gaussian(-SCORES, SPREADS), {}),
        (Samples(DRAWN), Samples(-DRAWN), {"assume": "samples"}),
        (
            Quantiles((0.1, 0.5, 0.9), QUANTILES),
            Quantiles((0.1, 0.5, 0.9), -QUANTILES[:, ::-1]),
            {"assume": "normal"},
        ),
    ]:
        here, there = decide(forecast, under, **options), decide(mirrored, over, **options)
        np.testing.assert_allclose(here, -there, rtol=1e-9)
    zero, one = np.zeros(40), np.ones(40)
    mirror = PredictiveDistribution.fit(Gaussian(zero, one), -RESIDUALS)
    here = decide(Gaussian(SCORES, SPREADS), under, distribution=FITTED)
    there = decide(Gaussian(-SCORES, SPREADS), over, distribution=mirror)
    np.testing.assert_allclose(here, -there, rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{loss.costly}")
@given(shift=st.floats(-100, 100))
@settings(max_examples=10, deadline=None)
def test_decisions_move_with_the_forecast(loss, shift):
    for here, there, options in [
        (Gaussian(SCORES, SPREADS), Gaussian(SCORES + shift, SPREADS), {}),
        (Samples(DRAWN), Samples(DRAWN + shift), {"assume": "samples"}),
    ]:
        moved = decide(there, loss, **options) - decide(here, loss, **options)
        np.testing.assert_allclose(moved, shift, atol=1e-9)


@pytest.mark.parametrize("kind", ["al", "aq", "linex"])
@given(weights=st.lists(st.floats(0.01, 20), min_size=2, max_size=3, unique=True))
@settings(max_examples=4, deadline=None)
def test_a_larger_weight_moves_further_from_the_costly_side(kind, weights):
    for name, (forecast, options, _) in (CONTINUOUS | DISCRETE).items():
        sides = ["over"] if name == "lognormal" and kind == "linex" else ["under", "over"]
        for side in sides:
            found = [
                decide(forecast, Loss(kind, w, side), bounds=(-30, 30), **options) for w in sorted(weights)
            ]
            step = np.diff(found, axis=0) * (1 if side == "under" else -1)
            assert (step >= -1e-9).all()


def test_bounds_cut_what_is_possible():
    forecast = Gaussian([0.9], [0.5])
    assert decide(forecast, Loss("al", 99), bounds=(0, 1))[0] == 1
    y = np.clip(np.random.default_rng(0).normal(0.9, 0.5, 200_000), 0, 1)
    assert decide(forecast, Loss("aq", 1), bounds=(0, 1))[0] == pytest.approx(y.mean(), abs=2e-3)
    exact = np.log(np.exp(2 * y).mean()) / 2
    assert decide(forecast, Loss("linex", 2), bounds=(0, 1))[0] == pytest.approx(exact, abs=2e-3)


def test_forecasts_without_spread_are_decided_by_their_score():
    for loss in LOSSES:
        assert decide(Gaussian([2.0], [0.0]), loss)[0] == 2
        assert decide(WarpedGaussian([0.0], [0.0], TANH), loss)[0] == pytest.approx(
            TANH.inverse(np.zeros(1))[0]
        )
        assert decide(Samples([[2.0, 2.0]]), loss, assume="samples")[0] == 2
    assert decide(Gaussian([2.0], [0.0]), lambda p, y: np.abs(p - y))[0] == 2
    assert len(decide(Gaussian([], []), Loss("aq", 2))) == 0


def test_many_rows_are_the_same_as_few():
    rng = np.random.default_rng(0)
    forecast = WarpedGaussian(rng.normal(size=9_000), rng.uniform(0.1, 1, 9_000), LogWarp())
    for loss in (Loss("aq", 3), Loss("linex", 1, "over")):
        whole = decide(forecast, loss)
        np.testing.assert_array_equal(whole[-3:], decide(forecast[-3:], loss))


def test_a_conformal_quantile_keeps_its_promise_in_each_group():
    rng = np.random.default_rng(5)
    names = np.array(["a", "b"])[rng.integers(0, 2, 4_000)]
    y = rng.gumbel(size=4_000) * np.where(names == "a", 1, 5)
    forecast = Gaussian(np.zeros(4_000), np.ones(4_000))
    known, new = np.arange(2_000), np.arange(2_000, 4_000)
    fitted = PredictiveDistribution.fit(
        forecast[known], y[known], groups=names[known], cells=Categories(("a", "b"))
    )
    found = decide(forecast[new], Loss("al", 9), distribution=fitted, groups=names[new])
    for name in ("a", "b"):
        rows = names[new] == name
        assert (y[new][rows] <= found[rows]).mean() == pytest.approx(0.9, abs=0.03)
    assert len(np.unique(found)) == 2


def test_too_few_calibration_rows_are_said():
    few = PredictiveDistribution.fit(Gaussian(np.zeros(5), np.ones(5)), np.arange(5.0))
    forecast = Gaussian([0.0, 0.0], [1.0, 1.0])
    assert decide(forecast, Loss("al", 5), distribution=few)[0] == pytest.approx(4)
    for loss in (Loss("al", 6), Loss("al", 6, "over")):
        with pytest.raises(UndefinedError, match="too few calibration rows for weight 6"):
            decide(forecast, loss, distribution=few)
    assert decide(forecast, Loss("al", 6), distribution=few, bounds=(0, 7))[0] == 7


@pytest.mark.parametrize("costly", ["under", "over"])
@pytest.mark.parametrize("kind", ["al", "aq"])
def test_the_most_extreme_weights_are_answered_and_those_beyond_refused(kind, costly):
    forecast = Gaussian([0.0], [1.0])
    sign = 1 if costly == "under" else -1
    found = decide(forecast, Loss(kind, 1e12, costly))[0]
    if kind == "al":
        assert sign * found == pytest.approx(stats.norm.isf(1 / (1e12 + 1)), abs=1e-4)
    else:
        # The mean excess over the expectile, times the weight, is the mean shortfall.
        excess = stats.norm.pdf(found) - sign * found * stats.norm.sf(sign * found)
        assert 1e12 * excess == pytest.approx(sign * found + excess, rel=1e-2)
    assert decide(forecast, Loss(kind, 1e-12, costly))[0] == pytest.approx(-found, abs=1e-3)
    for w, said in ((1e300, "weight 1e\\+300 is too large"), (1e-300, "weight 1e-300 is too small")):
        with pytest.raises(InputError, match=said):
            decide(forecast, Loss(kind, w, costly))


def test_decisions_beyond_numbers_are_said_to_be_so():
    """And not to lack calibration rows, where there is no calibration."""
    for loss in (Loss("al", 1e12), Loss("linex", 1e12)):
        with pytest.raises(InputError, match="the decision of row 2 is too large for a number"):
            decide(Gaussian([0.0, 0.0], [1.0, 1e308]), loss)


def test_groups_without_calibration_rows_are_said():
    forecast = Gaussian([0.0, 0.0], [1.0, 1.0])
    fitted = PredictiveDistribution.fit(
        forecast, [0.0, 1.0], groups=np.array(["a", "a"]), cells=Categories(("a",)), unseen="unbounded"
    )
    with pytest.raises(UndefinedError, match="row 2 belongs to a group without calibration rows"):
        decide(forecast, Loss("aq", 2), distribution=fitted, groups=np.array(["a", "b"]))


def test_quantiles_answer_only_within_their_levels():
    forecast = Quantiles((0.1, 0.5, 0.9), QUANTILES)
    np.testing.assert_array_equal(decide(forecast, Loss("al", 9)), QUANTILES[:, 2])
    np.testing.assert_array_equal(decide(forecast, Loss("al", 9, "over")), QUANTILES[:, 0])
    # Between two of them on the normal scale: a normal distribution's ends give its quartile.
    quartile = QUANTILES[:, 1] + Z(0.75) / Z(0.9) * (QUANTILES[:, 2] - QUANTILES[:, 1])
    np.testing.assert_allclose(decide(forecast, Loss("al", 3)), quartile)
    # (1 - 0.95) / 2 is not quite 1/40.
    tail = (1 - 0.95) / 2
    ends = Quantiles((tail, 1 - tail), QUANTILES[:, [0, 2]])
    np.testing.assert_array_equal(decide(ends, Loss("al", 39, "over")), QUANTILES[:, 0])
    np.testing.assert_array_equal(decide(ends, Loss("al", 39)), QUANTILES[:, 2])
    np.testing.assert_array_equal(decide(Quantiles((0.5,), [[1.0]]), Loss("al", 1)), [1.0])
    with pytest.raises(
        UndefinedError, match="weight 19: quantile 0.95 lies outside the known levels 0.1 to 0.9"
    ):
        decide(forecast, Loss("al", 19))
    with pytest.raises(UndefinedError, match="quantiles do not tell their tails"):
        decide(forecast, Loss("linex", 1))
    with pytest.raises(UndefinedError, match="one quantile does not say"):
        decide(Quantiles((0.5,), [[1.0]]), Loss("aq", 2), assume="normal")


def test_two_quantiles_taken_as_normal_are_that_normal_distribution():
    ends = np.stack([SCORES - Z(0.9) * SPREADS, SCORES + Z(0.9) * SPREADS], axis=1)
    forecast = Quantiles((0.1, 0.9), ends, symmetric=True)
    for loss in LOSSES:
        expected = decide(Gaussian(SCORES, SPREADS), loss)
        np.testing.assert_allclose(decide(forecast, loss, assume="normal"), expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda f: decide(f, Loss("al", 3), method="guess"), "there is no method 'guess'"),
        (
            lambda f: decide(f, Loss("aq", 3), method="paper"),
            "the paper has estimators for al and linex only",
        ),
        (lambda f: decide(f, np.subtract, method="paper"), "the paper has estimators for al and linex only"),
        (lambda f: decide(f, Loss("al", 3), assume="cauchy"), "there is no assumption 'cauchy'"),
        (lambda f: decide(f, Loss("al", 3), assume="samples"), "only samples can be taken"),
        (lambda f: decide(f, Loss("al", 3), bounds=(1, 0)), "from a lower to a higher number"),
        (lambda f: decide(f, lambda p, y: p - y), "keeps falling beyond"),
        (lambda f: decide(f, lambda p, y: np.full_like(p, np.nan)), "is not a number"),
        (lambda f: decide(f, lambda p, y: np.full_like(p, np.inf)), "infinite whatever is decided"),
        (lambda f: decide(f, lambda p, y: 1.0), "a loss returns one number a pair"),
        (
            lambda f: decide(ErrorEstimate([1.0], [1.0]), Loss("al", 3)),
            "an estimated error is not a distribution",
        ),
        (lambda f: decide(WarpedGaussian([0.0], [9.0], LogWarp()), Loss("aq", 3)), "tail is too heavy"),
    ],
)
def test_what_cannot_be_decided_is_said_in_a_sentence(ask, sentence):
    with pytest.raises((InputError, UndefinedError), match=sentence):
        ask(Gaussian([0.0], [1.0]))


def test_the_best_shift_is_the_best_constant():
    rng = np.random.default_rng(0)
    score = rng.normal(size=50)
    truth = score + rng.gumbel(size=50)
    for loss in LOSSES:
        best = loss(score + best_shift(score, truth, loss), truth).mean()
        others = [loss(score + shift, truth).mean() for shift in np.linspace(-5, 5, 401)]
        assert best <= min(others) + 1e-9
