from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from doubtless import ErrorEstimate, Gaussian, SplitConformal
from doubtless.conformal.binned import Bins
from doubtless.conformal.diagnose import agreement, conditional_coverage, coverage, curve, ups, wilson
from doubtless.conformal.grouped import Categories


def rows(n=500, seed=0):
    rng = np.random.default_rng(seed)
    sd = rng.gamma(2, 0.3, n)
    mean = rng.normal(size=n)
    return Gaussian(mean, sd), mean + sd * rng.normal(size=n), rng


def test_agreement_equals_scipy():
    forecast, y, _ = rows()
    figures = agreement(forecast, y)
    assert figures["pearson"] == pytest.approx(stats.pearsonr(forecast.score, y)[0])
    assert figures["spearman"] == pytest.approx(stats.spearmanr(forecast.score, y)[0])
    assert figures["kendall"] == pytest.approx(stats.kendalltau(forecast.score, y)[0])
    assert figures["ups"] == pytest.approx(stats.pearsonr(np.abs(y - forecast.score), forecast.sd)[0])
    assert figures["nlpd"] == pytest.approx(-stats.norm.logpdf(y, forecast.mean, forecast.sd).mean())
    assert figures["sharpness"] == pytest.approx(np.mean(forecast.sd**2))
    assert figures["mae"] == pytest.approx(np.abs(y - forecast.mean).mean())


def test_what_a_family_does_not_define_is_left_out():
    assert set(agreement(ErrorEstimate([0.0, 1], [1, 2]), [0.0, 1])) == {
        "pearson",
        "spearman",
        "kendall",
        "mae",
        "ups",
    }


def test_a_constant_uncertainty_has_no_correlation():
    assert np.isnan(ups(ErrorEstimate([0.0, 1, 2], [1.0, 1, 1]), [0.0, 1, 1]))


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (90, 100), (3, 7)])
def test_error_bars_equal_scipy(hits, n):
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert wilson(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_coverage_by_group_and_by_bin_is_counted_row_by_row():
    forecast, y, rng = rows()
    intervals = SplitConformal(0.2).fit(forecast, y).intervals(forecast)
    groups = rng.choice(["a", "b", "c"], len(y))
    inside = (intervals.lower <= y) & (y <= intervals.upper)
    for found in conditional_coverage(intervals, y, Categories.of(groups), groups):
        assert found.n == (groups == found.name).sum()
        assert found.coverage == pytest.approx(inside[groups == found.name].mean())
        assert found.width == pytest.approx(intervals.width[groups == found.name].mean())
        assert found.low < found.coverage < found.high
    low, high = conditional_coverage(intervals, y, Bins((0.0,)), forecast.score)
    assert low.coverage == pytest.approx(inside[forecast.score <= 0].mean())
    assert high.n == (forecast.score > 0).sum()


def test_the_curve_follows_alpha():
    forecast, y, _ = rows(2_000)
    found = curve((forecast[:1000], y[:1000]), (forecast[1000:], y[1000:]), [0.05, 0.2, 0.5])
    assert [row["alpha"] for row in found] == [0.05, 0.2, 0.5]
    for row in found:
        assert row["coverage"] == pytest.approx(1 - row["alpha"], abs=0.05)
    assert found[0]["width"] > found[1]["width"] > found[2]["width"]
    assert coverage(SplitConformal(0.1).fit(forecast, y).intervals(forecast), y) == pytest.approx(
        0.9, abs=0.01
    )
