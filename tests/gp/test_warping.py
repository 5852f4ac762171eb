from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.gp.warping import LabelScale, ScaledWarp, Warping
from doubtless.warp import LogWarp

Y = np.array([0.1, 0.7, 2.0, 5.0])


@given(st.integers(1, 3), st.integers(0, 1000))
def test_every_vector_is_a_rising_warping_and_agrees_with_it(terms, seed):
    family = Warping.parse(f"tanh{terms}")
    parameters = 3 * np.random.default_rng(seed).normal(size=family.size)
    warp = family.warp(parameters)
    grid = np.linspace(-20, 20, 500)
    assert (np.diff(warp.forward(grid)) > 0).all()
    warped = family.apply(parameters, Y)
    np.testing.assert_allclose(warped.z, warp.forward(Y))
    assert warped.log_slope == pytest.approx(warp.log_derivative(Y).sum(), rel=1e-9, abs=1e-9)


@given(st.integers(1, 3), st.integers(0, 100))
def test_gradients_equal_difference_quotients(terms, seed):
    family = Warping.parse(f"tanh{terms}")
    parameters = np.random.default_rng(seed).normal(size=family.size)
    warped = family.apply(parameters, Y)
    for i, step in enumerate(1e-6 * np.eye(family.size)):
        up, down = family.apply(parameters + step, Y), family.apply(parameters - step, Y)
        np.testing.assert_allclose(warped.dz[i], (up.z - down.z) / 2e-6, rtol=1e-5, atol=1e-6)
        slope = (up.log_slope - down.log_slope) / 2e-6
        assert warped.dlog_slope[i] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_starts_are_those_of_the_paper():
    np.testing.assert_array_equal(Warping.parse("tanh3").initial().reshape(3, 3)[:, 2], [-1, -2, -3])
    assert Warping.parse("log").initial().size == 0
    drawn = Warping.parse("tanh2").draw(np.random.default_rng(0)).reshape(2, 3)
    free = np.random.default_rng(0).normal(size=(2, 3))
    np.testing.assert_allclose(np.exp(drawn[:, 0]), np.log1p(np.exp(free[:, 0])))
    np.testing.assert_allclose(drawn[:, 2], free[:, 2])


def test_a_scaled_warping_is_the_warping_of_scaled_labels():
    warp = ScaledWarp(LogWarp(), LabelScale(0.0, 4.0))
    np.testing.assert_allclose(warp.forward(Y), np.log(Y / 4))
    np.testing.assert_allclose(warp.inverse(warp.forward(Y)), Y)
    np.testing.assert_allclose(warp.log_derivative(Y), -np.log(Y))
