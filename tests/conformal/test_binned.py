from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import simulate

from doubtless import BinnedConformal, ErrorEstimate, InputError, SplitConformal
from doubtless.conformal.binned import Bins, equal_count_edges


@pytest.mark.parametrize("n", [19, 50, 199])
@pytest.mark.parametrize("half", ["low", "high"])
def test_coverage_lies_within_the_theorem_in_bins_with_given_edges(n, half):
    """Rows of a bin vary in number: the upper end is that of the mean of 1/(n + 1)."""
    sizes = []

    def make(known, new):
        fitted = BinnedConformal(0.1, edges=(0.5,)).fit(known.forecast, known.human, known.x)
        sizes.append(fitted.counts[half == "high"])
        return fitted.intervals(new.forecast, new.x)

    coverage = simulate(make, n, within=lambda new: (new.x > 0.5) == (half == "high"))
    assert coverage.lies_within(0.9, 0.9 + float(np.mean(1 / (np.array(sizes) + 1.0))))


@pytest.mark.parametrize("n", [39, 101, 199])
def test_coverage_lies_within_the_theorem_in_bins_with_chosen_edges(n):
    """Without the rows that are edges themselves, chosen bins promise what given ones do."""
    fitted = {}

    def make(known, new):
        fitted["last"] = BinnedConformal(0.1, bins=3).fit(known.forecast, known.human, known.x)
        return fitted["last"].intervals(new.forecast, new.x)

    def lowest(new):
        return fitted["last"].cells.codes(new.x) == 0

    coverage = simulate(make, n, within=lowest, tests=200)
    assert coverage.lies_within(0.9, 0.9 + 1 / (fitted["last"].counts[0] + 1))


def test_binning_equalises_what_one_factor_does_not():
    def one_factor(known, new):
        return SplitConformal(0.1).fit(known.forecast, known.human).intervals(new.forecast)

    assert simulate(one_factor, 199, within=lambda new: new.x > 0.8, draws=300).mean < 0.87


values = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=120)


@given(values, st.integers(1, 12), st.integers(1, 9))
def test_every_chosen_bin_is_large_enough_and_keeps_ties_together(numbers, bins, smallest):
    x = np.array(numbers)
    edges = equal_count_edges(x, bins, smallest)
    assert len(edges) < bins
    assert list(edges) == sorted(set(edges))
    assert set(edges) <= set(numbers)
    codes = Bins(edges).codes(x)
    sizes = np.bincount(codes, minlength=len(edges) + 1)
    if edges:
        assert (sizes[:-1] - 1 >= smallest).all()  # the edge itself is not used
        assert sizes[-1] >= smallest


@given(st.integers(2, 8))
def test_distinct_values_are_cut_into_equal_parts(bins):
    edges = equal_count_edges(np.arange(1000.0), bins, 9)
    sizes = np.bincount(Bins(edges).codes(np.arange(1000.0)))
    assert len(sizes) == bins
    assert sizes.max() - sizes.min() <= 1


def test_a_given_edge_that_leaves_a_bin_empty_is_flagged_not_guessed():
    forecast = ErrorEstimate(np.zeros(20), np.ones(20))
    fitted = BinnedConformal(0.1, edges=(100.0,)).fit(forecast, np.ones(20), np.arange(20))
    intervals = fitted.intervals(forecast[:2], [5, 500])
    assert intervals.upper[1] == inf
    assert intervals.unbounded.tolist() == [False, True]


def test_there_are_fewer_bins_where_alpha_needs_larger_ones():
    forecast = ErrorEstimate(np.zeros(60), np.ones(60))
    fitted = BinnedConformal(0.1, bins=50).fit(forecast, np.ones(60), np.arange(60))
    assert len(fitted.counts) > 1
    assert min(fitted.counts) >= 9


@pytest.mark.parametrize(
    ("options", "numbers", "sentence"),
    [
        ({"bins": 0}, [1.0, 2.0], "the number of bins must be positive, found 0"),
        ({"edges": (2.0, 1.0)}, [1.0, 2.0], "the edges of bins must increase"),
        ({}, [1.0], "1 numbers to bin by for 2 forecasts"),
        ({}, [1.0, np.nan], "the number to bin by is missing in row 2"),
    ],
)
def test_wrong_bins_are_refused(options, numbers, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        BinnedConformal(**options).fit(ErrorEstimate([0.0, 0], [1, 1]), [0.0, 0], numbers)
