from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from doubtless.metaeval.correlation import kendall, pearson, spearman

pairs = st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=2, max_size=60)


@given(pairs)
def test_correlations_equal_scipy_with_ties(rows):
    x, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    assume(np.ptp(x) and np.ptp(y))
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-12)


@pytest.mark.parametrize("measure", [pearson, spearman, kendall])
def test_a_constant_has_no_correlation(measure):
    assert np.isnan(measure([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert np.isnan(measure([0.1] * 7, np.arange(7)))
    assert np.isnan(measure([1.0], [2.0]))


def test_tiny_and_huge_numbers_are_no_trouble():
    x = np.array([1.0, 2.0, 4.0])
    assert pearson(x * 1e-200, x * 1e200) == pytest.approx(1.0)
