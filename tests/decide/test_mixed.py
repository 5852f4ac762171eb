"""Means from human and metric scores: closed forms, exact inclusion chances, coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from doubtless.decide.mixed import chances, draw, estimate
from doubtless.errors import InputError

RUNS = 1000
SYSTEMS = 4


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 20)), min_size=2, max_size=30),
    st.floats(0.01, 0.99),
    st.floats(0.05, 1),
)
def test_chances_spend_the_budget_and_stay_chances(rows, share, even):
    doubt, cost = map(np.array, zip(*rows, strict=True))
    p = chances(doubt, cost, share * cost.sum(), even=even)
    assert ((p > 0) & (p <= 1)).all()
    assert p @ cost == pytest.approx(share * cost.sum())
    # Below certainty they are proportional to doubt / sqrt(cost).
    wish = ((1 - even) * doubt / doubt.mean() + even if doubt.mean() > 0 else 1.0) / np.sqrt(cost)
    ratio = (p / wish)[p < 1]
    if len(ratio):
        np.testing.assert_allclose(ratio, ratio[0])
        assert (wish[p == 1] * ratio[0] >= 1 - 1e-9).all()


def test_strata_share_the_budget_by_their_costs():
    strata = np.repeat([0, 1], [10, 30])
    p = chances(np.where(strata == 0, 9.0, 1.0), np.ones(40), 8, strata=strata)
    assert [p[strata == s].sum() for s in (0, 1)] == pytest.approx([2, 6])


def test_segments_are_drawn_with_their_chances():
    rng = np.random.default_rng(0)
    p = np.array([0.1, 0.5, 1.0, 0.25, 0.9, 0.6, 0.65, 1.0])
    strata = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    drawn = np.array([draw(p, strata, seed=rng) for _ in range(4000)])
    assert set(drawn[:, :4].sum(axis=1)) <= {1, 2}
    assert set(drawn[:, 4:].sum(axis=1)) <= {3, 4}
    assert drawn[:, [2, 7]].all()
    slack = 4.5 * np.sqrt(p * (1 - p) / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - p) <= slack).all()


def test_when_people_see_everything_nothing_is_uncertain():
    rng = np.random.default_rng(1)
    human, system = rng.normal(size=60), np.repeat(["b", "a"], 30)
    made = estimate(system, rng.normal(size=60), human, np.ones(60))
    assert made.names == ["a", "b"]
    np.testing.assert_allclose(made.found.mean, [human[30:].mean(), human[:30].mean()])
    np.testing.assert_allclose(made.found.lower, made.found.upper)
    assert made.found.chance[0, 1] in (0.0, 1.0)
    np.testing.assert_array_equal(made.corrected, human)


def test_equal_chances_and_a_useless_metric_give_the_textbook_interval():
    """A simple random sample: the mean of the sample, with the finite-population correction."""
    rng = np.random.default_rng(2)
    human = rng.normal(size=200)
    p = np.full(200, 0.2)
    drawn = draw(p, seed=3)
    sample = human[drawn]
    made = estimate(["x"] * 200, np.zeros(200), np.where(drawn, human, np.nan), p)
    error = np.sqrt(0.8 * sample.var(ddof=1) / len(sample))
    assert made.slope == 0
    assert made.found.mean[0] == pytest.approx(sample.mean())
    assert made.error[0] == pytest.approx(error)
    low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), error)
    assert (made.found.lower[0], made.found.upper[0]) == pytest.approx((low, high))


def test_a_metric_that_is_a_linear_function_of_people_leaves_no_doubt():
    rng = np.random.default_rng(4)
    human, system = rng.normal(size=100), np.repeat(["a", "b"], 50)
    score = np.where(system == "a", 3 * human + 1, 3 * human - 4)
    p = chances(rng.random(100), np.ones(100), 20, strata=system)
    made = estimate(system, score, np.where(draw(p, system), human, np.nan), p)
    assert made.slope == pytest.approx(1 / 3)
    np.testing.assert_allclose(made.found.mean, [human[:50].mean(), human[50:].mean()])
    np.testing.assert_allclose(made.error, 0, atol=1e-9)
    np.testing.assert_allclose(made.corrected, human)


def world(rng: np.random.Generator, segments: int, doubt_is_right: bool):
    """Systems whose metric is on another scale, shrunk, and too kind exactly where it is uncertain."""
    system = np.repeat(np.arange(SYSTEMS), segments)
    doubt = rng.gamma(2, 0.3, len(system))
    latent = rng.normal(size=len(system))
    human = 0.2 * system + latent + doubt * rng.normal(size=len(system)) - 0.5 * doubt
    score = 0.6 * latent + 0.3 + 0.1 * system
    return system, score, human, doubt if doubt_is_right else rng.permutation(doubt)


def covered(
    share: float, segments: int, doubt_is_right: bool, seed: int, *, beyond: bool = False, document: int = 0
):
    """How often intervals hold each system's mean, and how often the better system is called better."""
    rng = np.random.default_rng(seed)
    held = np.zeros(SYSTEMS)
    false_alarms = 0
    for _ in range(RUNS):
        system, score, human, doubt = world(rng, segments, doubt_is_right)
        means = human.reshape(SYSTEMS, -1).mean(axis=1)
        cost = rng.integers(5, 40, len(system))
        strata = system * segments + np.arange(len(system)) % segments // document if document else system
        p = chances(doubt, cost, share * cost.sum(), strata=strata)
        drawn = draw(p, strata, seed=rng)
        made = estimate(system, score, np.where(drawn, human, np.nan), p, beyond=beyond)
        truth = 0.2 * np.arange(SYSTEMS) - 0.5 * 0.6 if beyond else means
        held += (made.found.lower <= truth) & (truth <= made.found.upper)
        false_alarms += bool((made.found.better & (means[:, None] < means[None, :])).any())
    return held / RUNS, false_alarms / RUNS


@pytest.mark.parametrize(
    ("share", "segments", "doubt_is_right"), [(0.2, 150, True), (0.4, 80, True), (0.2, 150, False)]
)
def test_intervals_of_system_means_hold_under_deferral(share, segments, doubt_is_right):
    held, false_alarms = covered(share, segments, doubt_is_right, seed=7)
    assert 0.93 <= held.mean() <= 0.97
    # Each system alone, within what 1,000 runs can tell.
    low, high = stats.binom.interval(0.999, RUNS, 0.95)
    assert (held >= low / RUNS - 0.01).all()
    assert (held <= high / RUNS + 0.01).all()
    assert false_alarms <= 0.05


def test_intervals_hold_if_each_document_of_a_system_gets_its_share():
    """Of documents as short as three segments often none is drawn: a system's number is left to chance."""
    held, false_alarms = covered(0.2, 120, doubt_is_right=True, seed=11, document=3)
    assert 0.93 <= held.mean() <= 0.97
    assert false_alarms <= 0.05


def test_intervals_hold_for_segments_beyond_these():
    held, _ = covered(0.3, 120, doubt_is_right=True, seed=8, beyond=True)
    assert 0.93 <= held.mean() <= 0.97


def test_taking_the_least_confident_and_trusting_the_rest_is_wrong():
    """What drawing is for: the plain mixture is biased, by far more than chance could explain."""
    rng = np.random.default_rng(9)
    off = []
    for _ in range(50):
        _, score, human, doubt = world(rng, 150, doubt_is_right=True)
        mixed = np.where(doubt > np.quantile(doubt, 0.8), human, score)
        off.append((mixed - human).reshape(SYSTEMS, -1).mean(axis=1))
    bias, noise = np.mean(off, axis=0), np.std(off, axis=0)
    assert (np.abs(bias) > 10 * noise / np.sqrt(len(off))).all()


def test_doubt_that_is_right_makes_intervals_narrower_than_equal_chances():
    rng = np.random.default_rng(10)
    errors = []
    for _ in range(60):
        system, score, human, doubt = world(rng, 200, doubt_is_right=True)
        for even in (0.3, 1.0):
            p = chances(doubt, np.ones(len(doubt)), 0.3 * len(doubt), even=even, strata=system)
            made = estimate(system, score, np.where(draw(p, system, seed=rng), human, np.nan), p)
            errors.append(made.error.mean())
    by_doubt, equal = np.reshape(errors, (-1, 2)).mean(axis=0)
    assert by_doubt < 0.95 * equal


def test_what_makes_no_sense_is_refused():
    human = np.full(40, np.nan)
    human[:10] = 1.0
    score, p = np.zeros(40), np.full(40, 0.25)
    with pytest.raises(InputError, match="40 segments have a human score, but the chances let expect 10"):
        estimate(["a"] * 40, score, np.ones(40), p)
    with pytest.raises(InputError, match="could not be drawn"):
        estimate(["a"] * 40, score, human, np.where(np.arange(40) < 20, 0.5, 0.0))
    with pytest.raises(InputError, match="certain to be drawn"):
        estimate(["a"] * 40, score, human, np.where(np.arange(40) == 39, 1.0, p))
    with pytest.raises(InputError, match="fewer than two drawn"):
        estimate(["a"] * 30 + ["b"] * 10, score, human, p)
    with pytest.raises(InputError, match="between 0 and 1"):
        draw([0.5, 1.5])
    with pytest.raises(InputError, match="even part"):
        chances([1.0], [1.0], 0.5, even=0)
    with pytest.raises(InputError, match="finite and not negative"):
        chances([-1.0], [1.0], 0.5)
