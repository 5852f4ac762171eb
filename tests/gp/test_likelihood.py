"""The likelihood and its bound: against difference quotients, a dense solve and GPy's recorded figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from doubtless.gp.kernels import KERNELS, find_kernel
from doubtless.gp.likelihood import JITTER, Likelihood, Parameters
from doubtless.gp.sparse import SparseLikelihood, telling_rows
from doubtless.gp.warping import Warping

GOLDEN = json.loads((Path(__file__).parent / "golden" / "gpy.json").read_text())
CASES = [
    pytest.param(case, id=f"{case['kernel']}-{case['warp']}-{len(case['lengths'])}")
    for case in GOLDEN["cases"]
]
WARPS = ("none", "log", "tanh1", "tanh2", "tanh3")


def rows(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.exp(0.5 * x[:, 0] + 0.4 * rng.normal(size=n))


def start(d, warp, seed=0):
    return 0.5 * np.random.default_rng(seed).normal(size=2 + d + Warping.parse(warp).size)


def quotient(function, vector, step=1e-5):
    steps = step * np.eye(len(vector))
    return np.array([(function(vector + h)[0] - function(vector - h)[0]) / (2 * step) for h in steps])


def textbook(kernel, x, theta):
    """The covariance by the formulas of the paper, row by row."""
    scaled = x / np.exp(theta.log_lengths)
    r2 = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=-1)
    r = np.sqrt(r2)
    values = {
        "rbf": np.exp(-r2 / 2),
        "mat32": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "mat52": (1 + np.sqrt(5) * r + 5 * r2 / 3) * np.exp(-np.sqrt(5) * r),
    }
    return theta.variance * values[kernel]


@pytest.mark.parametrize("lengths", [1, 4])
@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_equal_difference_quotients(kernel, warp, lengths):
    x, y = rows()
    likelihood = Likelihood(x, y, find_kernel(kernel), Warping.parse(warp), lengths)
    vector = start(lengths, warp)
    np.testing.assert_allclose(likelihood(vector)[1], quotient(likelihood, vector), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [1, 4])
@pytest.mark.parametrize("warp", ["none", "log", "tanh2"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_of_the_bound_equal_difference_quotients(kernel, warp, lengths):
    x, y = rows()
    bound = SparseLikelihood(x, y, find_kernel(kernel), Warping.parse(warp), lengths, np.arange(0, 60, 4))
    vector = start(lengths, warp)
    np.testing.assert_allclose(bound(vector)[1], quotient(bound, vector), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [2, 15, 16, 17, 300])
def test_the_value_is_the_textbook_density_of_the_labels(kernel, n):
    x, y = rows(n)
    likelihood = Likelihood(x, y, find_kernel(kernel), Warping.parse("none"), 4)
    vector = start(4, "none")
    theta = Parameters.of(vector, 4)
    covariance = textbook(kernel, x, theta) + theta.noise * np.eye(n)
    expected = -multivariate_normal(np.zeros(n), covariance).logpdf(y)
    assert likelihood(vector)[0] == pytest.approx(expected, rel=1e-10)
    assert likelihood(vector)[0] == likelihood(vector)[0]  # memory that is used again changes nothing


@pytest.mark.parametrize("case", CASES)
def test_the_value_equals_gpys(case):
    x, y = (np.array(part) for part in GOLDEN["x"])
    psi = np.array(case["psi"]).reshape(-1, 3)
    warp = np.column_stack([np.log(psi[:, :2]), psi[:, 2]]).ravel()
    theta = Parameters(np.log(case["variance"]), np.log(case["lengths"]), np.log(case["noise"]), warp)
    likelihood = Likelihood(
        x, y, find_kernel(case["kernel"]), Warping.parse(case["warp"]), len(case["lengths"])
    )
    assert likelihood(theta.vector)[0] == pytest.approx(-case["log_likelihood"], rel=1e-9)


@given(st.integers(1, 60), st.integers(0, 20))
def test_the_bound_is_a_bound_and_exact_with_all_rows(m, seed):
    x, y = rows()
    vector = start(4, "tanh1", seed)
    model = x, y, find_kernel("mat52"), Warping.parse("tanh1"), 4
    exact = Likelihood(*model)(vector)[0]
    few = np.random.default_rng(seed).permutation(60)[:m]
    bound = SparseLikelihood(*model, few)(vector)[0]
    assert bound >= exact - 1e-6 * abs(exact)
    if m == 60:
        assert bound == pytest.approx(exact, rel=1e-4)


def test_telling_rows_leave_no_row_unsaid():
    x, _ = rows(200)
    kernel = find_kernel("rbf")
    theta = Parameters(0.0, np.array([0.5]), 0.0, np.zeros(0))
    covariance = textbook("rbf", x, theta)

    def unsaid(few):
        cross = covariance[few]
        said = cross.T @ np.linalg.solve(covariance[np.ix_(few, few)] + 1e-9 * np.eye(len(few)), cross)
        return float(np.diag(covariance - said).max())

    chosen = telling_rows(kernel, x, theta, most=20)
    assert len(set(chosen)) == 20
    rng = np.random.default_rng(0)
    assert unsaid(chosen) < min(unsaid(rng.permutation(200)[:20]) for _ in range(20))
    assert len(telling_rows(kernel, x, theta, most=200, left=0.5)) < 200


def test_equal_rows_do_no_harm():
    x, y = rows(30)
    x, y = np.vstack([x, x]), np.concatenate([y, y + 0.1])
    for kernel in KERNELS:
        value, gradient = Likelihood(x, y, find_kernel(kernel), Warping.parse("none"), 4)(start(4, "none"))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_the_jitter_is_part_of_the_noise():
    theta = Parameters(0.0, np.zeros(1), -40.0, np.zeros(0))
    assert theta.noise == pytest.approx(JITTER)
    assert theta.noise_share == pytest.approx(0.0, abs=1e-6)
