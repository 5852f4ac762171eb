from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.decide.losses import Loss
from doubtless.errors import InputError

KINDS = ["al", "aq", "linex"]
numbers = st.floats(-50, 50)


@pytest.mark.parametrize("kind", KINDS)
@given(prediction=numbers, truth=numbers, w=st.floats(0.01, 5))
def test_a_loss_is_never_negative_and_swapping_the_costly_side_mirrors_it(kind, prediction, truth, w):
    under, over = Loss(kind, w, "under"), Loss(kind, w, "over")
    assert under(prediction, truth) >= 0
    assert under(truth, truth) == 0
    assert under(prediction, truth) == over(-prediction, -truth)


@pytest.mark.parametrize("kind", KINDS)
def test_the_costly_side_costs_more(kind):
    assert Loss(kind, 3)(1.0, 2.0) > Loss(kind, 3)(3.0, 2.0)
    assert Loss(kind, 3, "over")(1.0, 2.0) < Loss(kind, 3, "over")(3.0, 2.0)


def test_losses_by_hand():
    assert Loss("al", 3)([1.0, 4.0], [2.0, 2.0]).tolist() == [3, 2]
    assert Loss("aq", 3)([1.0, 4.0], [2.0, 2.0]).tolist() == [3, 4]
    # Figure 3 of the paper: pessimists are punished exponentially for predictions that are too low.
    assert Loss("linex", 0.75)(1.0, 3.0) == pytest.approx(np.exp(1.5) - 1.5 - 1)
    assert Loss("linex", 0.75)(3.0, 1.0) == pytest.approx(np.exp(-1.5) + 1.5 - 1)


def test_linex_is_half_the_squared_error_for_a_small_weight():
    w = 1e-4
    assert 2 / w**2 * Loss("linex", w)(1.0, 3.0) == pytest.approx(4, rel=1e-3)


def test_linex_too_large_to_be_written_is_infinite():
    assert Loss("linex", 2)([0.0], [1e6])[0] == np.inf


def test_who_fears_what():
    # A project manager fears that the work takes longer than quoted; a quality score fears the other side.
    assert Loss.in_scenario("al", 3).costly == "under"
    assert Loss.in_scenario("al", 3, "optimistic").costly == "over"
    assert Loss.in_scenario("al", 3, "pessimistic", "higher").costly == "over"
    assert Loss.in_scenario("al", 3, "optimistic", "higher").costly == "under"


def test_levels_are_exact():
    assert Loss("al", 3).level == Fraction(3, 4)
    assert Loss("al", 3, "over").level == Fraction(1, 4)
    assert Loss("al", 0.1).level == Fraction(1, 11)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Loss("huber", 1), "there is no loss 'huber', expected one of: al, aq, linex"),
        (lambda: Loss("linex", -0.75), "a weight is a positive number, found -0.75"),
        (lambda: Loss("al", float("nan")), "a weight is a positive number"),
        (lambda: Loss("al", 1, "left"), "under or over, found 'left'"),
        (lambda: Loss.in_scenario("al", 1, "gloomy"), "expected pessimistic or optimistic, found 'gloomy'"),
        (lambda: Loss.in_scenario("al", 1, better="worse"), "expected lower or higher, found 'worse'"),
    ],
)
def test_what_is_no_loss_is_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
