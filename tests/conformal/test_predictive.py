from __future__ import annotations

import warnings

import numpy as np
import pytest
from simulate import Coverage, Rows

from doubtless import InputError, PredictiveDistribution, SplitConformal
from doubtless.conformal.grouped import Categories


@pytest.mark.parametrize("n", [19, 50, 199])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_quantiles_hold_within_the_theorem(n, p):
    rng = np.random.default_rng(n)
    shares = []
    for _ in range(1_000):
        known, new = Rows.draw(rng, n), Rows.draw(rng, 50)
        distribution = PredictiveDistribution.fit(known.forecast, known.human)
        shares.append((new.human <= distribution.quantile(new.forecast, p)).mean())
    assert Coverage.of(shares).lies_within(p, p + 1 / (n + 1))


def test_the_chance_equals_that_of_crepes():
    rng = np.random.default_rng(0)
    known, new = Rows.draw(rng, 99), Rows.draw(rng, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from crepes import ConformalPredictiveSystem

        sigma, new_sigma = known.forecast.spread(0.1)[0], new.forecast.spread(0.1)[0]
        theirs = ConformalPredictiveSystem().fit(known.human - known.forecast.score, sigmas=sigma)
        high = theirs.predict_p(new.forecast.score, np.full(40, 0.7), sigmas=new_sigma, smoothing=False)
    low, ours = PredictiveDistribution.fit(known.forecast, known.human).chance_bounds(new.forecast, 0.7)
    np.testing.assert_allclose(ours, np.asarray(high).ravel(), atol=1e-12)
    np.testing.assert_allclose(ours - low, 1 / 100, atol=1e-12)


def test_the_chance_is_calibrated():
    """Among segments given a chance of about c to be below t, a share c is."""
    rng = np.random.default_rng(1)
    known, new = Rows.draw(rng, 2_000), Rows.draw(rng, 20_000)
    chance = PredictiveDistribution.fit(known.forecast, known.human).chance_below(new.forecast, 1.0)
    below = new.human < 1.0
    assert chance.mean() == pytest.approx(below.mean(), abs=0.02)


def test_the_chance_grows_with_the_threshold_and_agrees_with_quantiles():
    rng = np.random.default_rng(2)
    known, new = Rows.draw(rng, 60, symmetric=False), Rows.draw(rng, 5, symmetric=False)
    distribution = PredictiveDistribution.fit(known.forecast, known.human)
    chances = np.stack([distribution.chance_below(new.forecast, t) for t in np.linspace(-5, 9, 80)])
    assert (np.diff(chances, axis=0) >= 0).all()
    for row in range(5):
        t = float(distribution.quantile(new.forecast, 0.75)[row])
        low, high = distribution.chance_bounds(new.forecast[row : row + 1], t)
        assert low[0] <= 0.75 <= high[0] + 1e-12


def test_groups_have_distributions_of_their_own():
    rng = np.random.default_rng(3)
    rows = Rows.draw(rng, 400)
    cells = Categories.of(rows.group)
    whole = PredictiveDistribution.fit(
        rows.forecast, rows.human, groups=rows.group, cells=cells, unseen="pooled"
    )
    alone = PredictiveDistribution.fit(rows.forecast[rows.group == 1], rows.human[rows.group == 1])
    one = rows.forecast[:1]
    assert whole.chance_below(one, 2.0, np.array([1])) == alone.chance_below(one, 2.0)
    pooled = PredictiveDistribution.fit(rows.forecast, rows.human)
    assert whole.chance_below(one, 2.0, np.array([7])) == pooled.chance_below(one, 2.0)


def test_an_unseen_group_is_an_error_or_means_knowing_nothing():
    rng = np.random.default_rng(4)
    rows = Rows.draw(rng, 100)
    cells = Categories.of(rows.group)
    options = {"groups": rows.group, "cells": cells}
    with pytest.raises(InputError, match="^the group in row 1 was not calibrated$"):
        PredictiveDistribution.fit(rows.forecast, rows.human, **options).chance_below(
            rows.forecast[:1], 0, np.array([9])
        )
    nothing = PredictiveDistribution.fit(rows.forecast, rows.human, **options, unseen="unbounded")
    assert nothing.chance_bounds(rows.forecast[:1], 0, np.array([9])) == (0.0, 1.0)
    assert SplitConformal(0.1).fit(rows.forecast, rows.human).n == 100
