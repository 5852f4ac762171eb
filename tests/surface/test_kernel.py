"""The regression against exact Gaussian processes and ridge regression."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from doubtless.surface.kernel import KernelRegression


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [1.0, 5.0, 0.1] + [0.0, 10.0, 0.0]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1] + 0.2 * rng.normal(size=n) + 3.0


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_with_all_rows_as_centres_it_is_the_exact_process(noise):
    x, y = rows(150)
    found = KernelRegression.fit(x, y, centres=150, noise=noise, width=0.5)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    length = np.sqrt(3 / (2 * 0.5))  # exp(-w / d * |a - b|**2) is RBF with this length
    exact = GaussianProcessRegressor(RBF(length), alpha=noise, optimizer=None).fit(scaled, y - y.mean())
    new, _ = rows(60, 1)
    new = np.clip((new - x.mean(axis=0)) / x.std(axis=0), -4, 4)
    expected = exact.predict(new)
    ours = found.predict(new * x.std(axis=0) + x.mean(axis=0))
    # Centres are rounded to bytes.
    assert np.abs(ours - expected).max() < 0.03
    assert np.corrcoef(ours, expected)[0, 1] > 0.9995


def test_fewer_centres_lose_little():
    x, y = rows(600)
    new, truth = rows(400, 1)
    whole, few = (KernelRegression.fit(x, y, centres=n, noise=0.3, width=0.5) for n in (600, 120))
    assert np.corrcoef(whole.predict(new), few.predict(new))[0, 1] > 0.995
    assert np.corrcoef(few.predict(new), truth)[0, 1] > 0.9


def test_far_rows_get_the_mean_and_constants_do_no_harm():
    x, y = rows(100)
    x[:, 2] = 7.0
    found = KernelRegression.fit(x, y, centres=100, noise=0.1, width=50.0)
    assert abs(found.predict(np.array([[4e3, -9e3, 7.0]]))[0]) < 1e-6
    assert np.isfinite(found.predict(x)).all()


def test_scaling():
    x, y = rows(80)
    found = KernelRegression.fit(x, y, centres=40, noise=1.0, width=0.3)
    np.testing.assert_allclose(found.scaled(0.5).predict(x), 0.5 * found.predict(x))
