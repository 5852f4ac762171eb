from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doubtless.warp import LogWarp, TanhWarp

terms = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(-5, 5)), min_size=1, max_size=3)
values = st.lists(st.floats(-50, 50), min_size=1, max_size=20)


@given(terms, values)
@example([(13.3359375, 0.90234375, 1.84375)], [9.96875])
def test_the_inverse_undoes_the_warping(parameters, y):
    warp = TanhWarp(*(tuple(column) for column in zip(*parameters, strict=True)))
    z = np.array(y)
    np.testing.assert_allclose(warp.forward(warp.inverse(z)), z, atol=1e-9)


@given(terms, values)
def test_the_derivative_equals_a_difference_quotient(parameters, y):
    warp = TanhWarp(*(tuple(column) for column in zip(*parameters, strict=True)))
    y, h = np.array(y), 1e-6
    slope = (warp.forward(y + h) - warp.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(warp.log_derivative(y)), slope, rtol=1e-3, atol=1e-3)


def test_the_logarithm_knows_its_domain():
    assert np.isnan(LogWarp().forward(np.array([-1.0, 0.0]))).all()
    np.testing.assert_allclose(LogWarp().inverse(LogWarp().forward(np.array([0.3, 7.0]))), [0.3, 7.0])


@pytest.mark.parametrize("arguments", [((1.0,), (1.0, 2.0), (0.0,)), ((-1.0,), (1.0,), (0.0,))])
def test_a_warping_that_is_not_monotone_is_refused(arguments):
    with pytest.raises(ValueError, match=r"same number of terms|not be negative"):
        TanhWarp(*arguments)
