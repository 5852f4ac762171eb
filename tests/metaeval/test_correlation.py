from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from doubtless.metaeval.correlation import kendall, pearson, spearman, williams
from doubtless.metaeval.statistics import by_group

pairs = st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=2, max_size=60)


@given(pairs)
def test_correlations_equal_scipy_with_ties(rows):
    x, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    assume(np.ptp(x) and np.ptp(y))
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-12)


@given(pairs)
def test_tau_c_equals_scipy(rows):
    x, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    ours = by_group("tau_c", x[:, None], y[:, None])[0]
    if np.ptp(x) and np.ptp(y):
        assert ours == pytest.approx(stats.kendalltau(x, y, variant="c")[0], abs=1e-12)
    else:
        assert np.isnan(ours)


def test_williams_test_keeps_its_level():
    """Two metrics that follow the same quality with equal noise are equally good."""
    rng = np.random.default_rng(0)
    p = []
    for _ in range(1000):
        quality = rng.normal(size=12)
        human, first, second = quality + 0.7 * rng.normal(size=(3, 12))
        correlations = pearson(human, first), pearson(human, second), pearson(first, second)
        p.append(williams(*correlations, 12))
    for level in (0.05, 0.2):
        # The test is an approximation: a fifth is allowed on top of chance.
        assert np.mean(np.array(p) <= level) <= 1.2 * level + 3 * np.sqrt(level * (1 - level) / 1000)
        assert np.mean(np.array(p) <= level) >= 0.8 * level - 3 * np.sqrt(level * (1 - level) / 1000)


def test_williams_test_of_the_same_metric_and_of_too_few_scores():
    assert williams(0.8, 0.8, 1.0, 10) == 0.5
    assert np.isnan(williams(0.8, 0.7, 0.5, 3))
    assert williams(0.9, 0.7, 0.6, 20) == pytest.approx(1 - williams(0.7, 0.9, 0.6, 20))


@pytest.mark.parametrize("measure", [pearson, spearman, kendall])
def test_a_constant_has_no_correlation(measure):
    assert np.isnan(measure([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert np.isnan(measure([0.1] * 7, np.arange(7)))
    assert np.isnan(measure([1.0], [2.0]))


def test_tiny_and_huge_numbers_are_no_trouble():
    x = np.array([1.0, 2.0, 4.0])
    assert pearson(x * 1e-200, x * 1e200) == pytest.approx(1.0)
