from __future__ import annotations

import warnings
from math import inf

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from simulate import Rows, simulate

from doubtless import ErrorEstimate, Gaussian, GroupedConformal, InputError
from doubtless.conformal.grouped import Categories, by_cell, cell_quantiles
from doubtless.conformal.split import conformal_quantile


@pytest.mark.parametrize("n", [19, 50, 199])
@pytest.mark.parametrize("group", [0, 1])
def test_coverage_lies_within_the_theorem_in_every_group(n, group):
    """n rows of either group: the bounds are those of n, whatever the other group does."""

    def make(known, new):
        rows = np.concatenate([np.flatnonzero(known.group == g)[:n] for g in (0, 1)])
        method = GroupedConformal(0.1, small="unbounded", unseen="unbounded")
        fitted = method.fit(known.forecast[rows], known.human[rows], known.group[rows])
        assert fitted.counts == (n, n)
        return fitted.intervals(new.forecast, new.group)

    coverage = simulate(make, 3 * n + 60, within=lambda new: new.group == group)
    assert coverage.lies_within(0.9, 0.9 + 1 / (n + 1))


@given(
    st.lists(st.tuples(st.integers(-1, 4), st.floats(0, 10)), max_size=120),
    st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.8]),
)
def test_quantiles_by_cell_equal_those_of_each_cell_alone(rows, alpha):
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    scores = np.array([score for _, score in rows], dtype=float)
    factors, counts, pooled = cell_quantiles(scores, codes, 5, alpha)
    assert factors == [conformal_quantile(scores[codes == cell], alpha) for cell in range(5)]
    assert counts == [(codes == cell).sum() for cell in range(5)]
    assert pooled == conformal_quantile(scores.copy(), alpha)


def test_a_group_whose_scores_are_all_small_is_still_exact():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.uniform(0, 1, 50), rng.uniform(100, 200, 1000)])
    codes = np.repeat([0, 1], [50, 1000])
    factors, _, _ = cell_quantiles(scores, codes, 2, 0.1)
    assert factors[0] == np.sort(scores[:50])[46 - 1]


@pytest.mark.parametrize("cells", [3, 300, 70_000])
def test_values_are_split_by_cell_in_order(cells):
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, cells, 500)
    values = np.arange(500.0)
    parts = by_cell(values, codes, cells)
    assert len(parts) == cells
    for cell in {*codes[codes >= 0].tolist()}:
        np.testing.assert_array_equal(parts[cell], values[codes == cell])


labels = st.lists(st.one_of(st.integers(-5, 5)), min_size=1, max_size=30)


@given(labels, labels)
def test_codes_are_positions_among_the_sorted_labels(known, new):
    distinct = sorted(set(known))
    expected = [distinct.index(x) if x in distinct else -1 for x in new]
    assert Categories.of(np.array(known)).codes(np.array(new)).tolist() == expected
    assert Categories.of(known).codes(new).tolist() == expected
    words = [str(x) for x in known]
    by_name = sorted(set(words))
    assert Categories.of(words).codes([str(x) for x in new]).tolist() == [
        by_name.index(str(x)) if str(x) in by_name else -1 for x in new
    ]


def test_labels_may_be_categorical_boolean_or_far_apart():
    assert Categories.of(pl.Series(["b", "a"], dtype=pl.Categorical)).names == ("a", "b")
    assert Categories.of([True, False]).names == ("false", "true")
    far = np.array([0, 10**12])
    assert Categories.of(far).codes(np.array([10**12, 5])).tolist() == [1, -1]
    assert Categories.of(np.array([3, 5], dtype=np.uint8)).codes(
        np.array([5, 4, 200], dtype=np.uint8)
    ).tolist() == [1, -1, -1]


def test_a_missing_group_is_refused():
    with pytest.raises(InputError, match="^the group in row 2 is missing$"):
        Categories.of(pl.Series(["a", None]))


def fit(**policies):
    rng = np.random.default_rng(2)
    human = rng.normal(size=25)
    groups = ["big"] * 20 + ["small"] * 5
    forecast = ErrorEstimate(np.zeros(25), np.ones(25))
    return GroupedConformal(0.1, **policies).fit(forecast, human, groups), human


def test_small_groups_are_refused_unless_a_policy_says_otherwise():
    with pytest.raises(InputError, match="^group 'small' has 5 calibration rows, but alpha 0.1 needs 9 "):
        fit()


def test_unseen_groups_are_refused_unless_a_policy_says_otherwise():
    fitted, _ = fit(small="pooled")
    with pytest.raises(InputError, match="^group 'new' in row 2 was not calibrated "):
        fitted.intervals(ErrorEstimate([0.0, 0], [1, 1]), ["big", "new"])


@pytest.mark.parametrize(("policy", "upper"), [("pooled", "pooled"), ("unbounded", inf)])
def test_policies_are_applied_and_flagged(policy, upper):
    fitted, human = fit(small=policy, unseen=policy)
    expected = np.sort(np.abs(human))[23] if upper == "pooled" else inf
    intervals = fitted.intervals(ErrorEstimate([0.0] * 3, [1.0] * 3), ["big", "small", "new"])
    np.testing.assert_allclose(intervals.upper[1:], expected, rtol=1e-12)
    np.testing.assert_allclose(intervals.upper[0], np.sort(np.abs(human[:20]))[18], rtol=1e-12)
    assert intervals.small.tolist() == [False, True, False]
    assert intervals.unseen.tolist() == [False, False, True]
    assert intervals.unbounded.tolist() == [False, policy == "unbounded", policy == "unbounded"]


def test_an_unknown_policy_is_refused():
    with pytest.raises(InputError, match="^a policy is one of error, pooled, unbounded, found 'zero'$"):
        GroupedConformal(unseen="zero")


def test_grouped_intervals_equal_those_of_crepes():
    rng = np.random.default_rng(7)
    known, new = Rows.draw(rng, 398), Rows.draw(rng, 60)
    rows = np.concatenate([np.flatnonzero(known.group == g)[:95] for g in (0, 1)])
    forecast, human, group = known.forecast[rows], known.human[rows], known.group[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from crepes import ConformalRegressor

        theirs = ConformalRegressor().fit(human - forecast.score, sigmas=forecast.spread(0.1)[0], bins=group)
        expected = theirs.predict_int(
            new.forecast.score, sigmas=new.forecast.spread(0.1)[0], bins=new.group, confidence=0.9
        )
    ours = GroupedConformal(0.1).fit(forecast, human, group).intervals(new.forecast, new.group)
    np.testing.assert_allclose(np.stack([ours.lower, ours.upper], axis=1), expected, rtol=1e-12)


def test_groups_must_be_one_a_row():
    forecast = Gaussian([0.0, 0], [1, 1])
    with pytest.raises(InputError, match="^1 groups for 2 forecasts$"):
        GroupedConformal().fit(forecast, [0.0, 0], ["a"])


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]))
def test_groups_that_borrow_have_a_factor_between_their_own_and_the_pooled_one(seed, borrow):
    rng = np.random.default_rng(seed)
    groups, human = rng.integers(0, 3, 200), rng.normal(size=200)
    forecast = Gaussian(np.zeros(200), np.exp(rng.normal(size=200)))
    own, mixed = (GroupedConformal(0.1, borrow=b).fit(forecast, human, groups) for b in (0.0, borrow))
    assert mixed.factors == pytest.approx([(1 - borrow) * f + borrow * own.pooled for f in own.factors])
    assert (mixed.pooled, mixed.borrow) == (own.pooled, borrow)


def test_borrowing_brings_groups_of_one_kind_nearer_to_the_rate():
    """Ten groups of 40 rows with the same spread: a quantile of 400 rows errs less than one of 40."""
    rng, far = np.random.default_rng(3), {0.0: [], 0.7: []}
    groups = np.repeat(np.arange(10), 40)
    for _ in range(60):
        known = rng.normal(size=400)
        forecast = Gaussian(np.zeros(400), np.ones(400))
        for borrow, found in far.items():
            fitted = GroupedConformal(0.1, borrow=borrow).fit(forecast, known, groups)
            ends = fitted.intervals(forecast[::40], groups[::40]).upper
            found += (2 * norm.cdf(ends) - 1 - 0.9).tolist()
    alone, borrowed = (float(np.sqrt(np.mean(np.square(found)))) for found in far.values())
    assert borrowed < 0.6 * alone


def test_a_group_without_enough_rows_borrows_by_policy_only():
    human, groups = np.arange(30.0), ["a"] * 28 + ["b"] * 2
    fitted = GroupedConformal(0.1, small="unbounded", borrow=0.5).fit(
        ErrorEstimate(0 * human, human + 1), human, groups
    )
    assert fitted.factors[1] == inf


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_cannot_be_borrowed_is_refused(share):
    with pytest.raises(InputError, match="^what groups borrow lies between 0 and 1, found"):
        GroupedConformal(borrow=share)
