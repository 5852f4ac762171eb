"""Fitted processes: posterior, densities, search, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from doubtless import Gaussian, InputError, WarpedGaussian
from doubtless.gp import model as gp_model
from doubtless.gp.kernels import KERNELS, find_kernel
from doubtless.gp.likelihood import Parameters, SingularError
from doubtless.gp.model import FittedGP, GaussianProcess, exact_posterior, sparse_posterior
from doubtless.gp.optimise import Problem, Search
from doubtless.gp.warping import LabelScale, Warping

GOLDEN = json.loads((Path(__file__).parent / "golden" / "gpy.json").read_text())
QUICK = Search(restarts=3)


def rows(n=120, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.exp(np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.3 * rng.normal(size=n))


def fitted_at(case) -> FittedGP:
    """A process with given parameters, on GPy's rows."""
    x, y = (np.array(part) for part in GOLDEN["x"])
    psi = np.array(case["psi"]).reshape(-1, 3)
    warp = np.column_stack([np.log(psi[:, :2]), psi[:, 2]]).ravel()
    theta = Parameters(np.log(case["variance"]), np.log(case["lengths"]), np.log(case["noise"]), warp)
    posterior = exact_posterior(
        Problem(x, y, find_kernel(case["kernel"]), Warping.parse(case["warp"])), theta
    )
    zero, one, names = np.zeros(3), np.ones(3), ("a", "b", "c")
    return FittedGP(
        case["kernel"], case["warp"], names, zero, one, LabelScale(), theta, posterior, 0.0, 40, True
    )


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_predictions_equal_gpys(case):
    new, truth = (np.array(part) for part in GOLDEN["new"])
    forecast = fitted_at(case).forecast(new)
    np.testing.assert_allclose(forecast.log_density(truth), case["log_density"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(forecast.score, case["median"], rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_posterior_equals_a_dense_solve(kernel):
    x, y = rows(50)
    new, _ = rows(7, seed=1)
    theta = Parameters(0.3, np.array([0.1, 0.4, 1.0]), -1.0, np.zeros(0))
    points = np.vstack([x, new]) / np.exp(theta.log_lengths)
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    kernel_function = find_kernel(kernel)
    covariance = theta.variance * kernel_function.value_and_slope(kernel_function.scale * squares)[0]
    inverse = np.linalg.inv(covariance[:50, :50] + theta.noise * np.eye(50))
    cross = covariance[50:, :50]
    mean = cross @ inverse @ y
    variance = theta.variance - np.diag(cross @ inverse @ cross.T) + theta.noise
    posterior = exact_posterior(Problem(x, y, kernel_function, Warping.parse("none")), theta)
    zero, one, names = np.zeros(3), np.ones(3), ("a", "b", "c")
    fitted = FittedGP(kernel, "none", names, zero, one, LabelScale(), theta, posterior, 0.0, 50, True)
    forecast = fitted.forecast(new)
    np.testing.assert_allclose(forecast.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(forecast.variance, variance, rtol=1e-9)


@pytest.mark.parametrize("warp", ["none", "log", "tanh1", "tanh3"])
def test_densities_integrate_to_one_and_their_mean_and_quantiles_agree(warp):
    x, y = rows()
    forecast = GaussianProcess(warp=warp, search=QUICK).fit(x, y).forecast(x[:3])
    for i in range(3):
        one = forecast[i : i + 1]
        # Nodes where the mass is, for a steep warping makes narrow peaks; and where it is not.
        likely = [one.quantile(float(p))[0] for p in norm.cdf(np.linspace(-6, 6, 1501))]
        grid = np.sort(np.concatenate([likely, np.linspace(min(likely), max(likely), 40_001)]))
        density = np.exp(forecast[np.full(len(grid), i)].log_density(grid))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
        assert np.trapezoid(density * grid, grid) == pytest.approx(one.mean[0], rel=0.1)  # by 20 nodes
        lower = grid <= one.score[0]
        assert np.trapezoid(density[lower], grid[lower]) == pytest.approx(0.5, abs=3e-3)


@pytest.mark.parametrize("ard", [False, True])
def test_the_cheap_search_ends_where_the_exact_one_does(ard):
    x, y = rows(400, d=5, seed=2)
    results = [
        GaussianProcess("rbf", "log", ard=ard, search=Search(restarts=3, exact=exact)).fit(x, y)
        for exact in (False, True)
    ]
    assert results[0].nll == pytest.approx(results[1].nll, abs=0.5)
    new, _ = rows(20, d=5, seed=3)
    np.testing.assert_allclose(results[0].forecast(new).score, results[1].forecast(new).score, rtol=0.05)


def test_relevance_tells_features_from_noise():
    x, y = rows(300)
    relevance = GaussianProcess(warp="log", ard=True, search=QUICK).fit(x, y, ["a", "b", "c"]).relevance
    assert list(relevance) == ["a", "b", "c"]
    assert relevance["a"] > relevance["b"] > relevance["c"]


def test_a_warping_finds_what_a_plain_process_cannot():
    x, y = rows(300)
    new, truth = rows(500, seed=1)
    density = {
        warp: GaussianProcess(warp=warp, search=QUICK).fit(x, y).forecast(new).log_density(truth).mean()
        for warp in ("none", "log", "tanh2")
    }
    assert density["log"] > density["tanh2"] > density["none"]


def test_families_of_forecasts():
    x, y = rows(40)
    assert type(GaussianProcess(search=QUICK).fit(x, y).forecast(x)) is Gaussian
    forecast = GaussianProcess(warp="log", search=QUICK).fit(x, y).forecast(x)
    assert type(forecast) is WarpedGaussian
    assert (forecast.quantile(0.001) > 0).all()
    assert len(GaussianProcess(search=QUICK).fit(x, y).forecast(np.zeros((0, 3)))) == 0


@pytest.mark.parametrize(("scale", "shift"), [(100.0, 0.0), (0.01, 3.0), (5.0, -70.0)])
def test_scale_and_origin_of_labels_do_not_matter(scale, shift):
    x, y = rows(40)
    one = GaussianProcess(warp="tanh1", search=Search(restarts=1)).fit(x, y).forecast(x[:5])
    other = GaussianProcess(warp="tanh1", search=Search(restarts=1)).fit(x, scale * y + shift).forecast(x[:5])
    np.testing.assert_allclose((other.score - shift) / scale, one.score, rtol=1e-2, atol=1e-2)


def test_the_same_seed_gives_the_same_model():
    x, y = rows(60)
    one, other = (GaussianProcess(warp="tanh2", search=QUICK).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(one.theta.vector, other.theta.vector)


def test_equal_rows_are_fitted():
    x, y = rows(40)
    fitted = GaussianProcess("rbf", search=QUICK).fit(np.vstack([x, x]), np.concatenate([y, y]))
    assert np.isfinite(fitted.forecast(x).log_density(y)).all()


def test_many_rows_rest_on_few(monkeypatch):
    x, y = rows(400)
    exact = GaussianProcess(search=QUICK).fit(x, y)
    monkeypatch.setattr(gp_model, "MOST_ROWS", 300)
    sparse = GaussianProcess(search=QUICK).fit(x, y)
    assert exact.exact
    assert not sparse.exact
    assert len(sparse.posterior.rows) < 400
    new, _ = rows(100, seed=1)
    np.testing.assert_allclose(sparse.forecast(new).mean, exact.forecast(new).mean, atol=0.1)
    np.testing.assert_allclose(sparse.forecast(new).sd, exact.forecast(new).sd, rtol=0.1)
    with pytest.raises(InputError, match=r"^an exact search takes at most 300 rows, found 400$"):
        GaussianProcess(search=Search(exact=True)).fit(x, y)


def test_a_summary_without_a_positive_covariance_is_said(monkeypatch):
    def singular(*_):
        raise SingularError

    monkeypatch.setattr(gp_model, "MOST_ROWS", 30)
    monkeypatch.setattr(gp_model, "sparse_posterior", singular)
    x, y = rows(40)
    with pytest.raises(InputError, match=r"^the search found no positive covariance of the rows"):
        GaussianProcess(search=Search(restarts=1)).fit(x, y)


def test_a_summary_by_all_rows_is_the_posterior():
    x, y = rows(60)
    problem = Problem(x, y, find_kernel("mat32"), Warping.parse("none"))
    theta = Parameters(0.2, np.array([0.3]), -1.0, np.zeros(0))
    made = []
    for posterior in (exact_posterior(problem, theta), sparse_posterior(problem, theta)):
        zero, one, names = np.zeros(3), np.ones(3), ("a", "b", "c")
        made.append(
            FittedGP("mat32", "none", names, zero, one, LabelScale(), theta, posterior, 0.0, 60, True)
        )
    new, _ = rows(20, seed=1)
    np.testing.assert_allclose(made[0].forecast(new).mean, made[1].forecast(new).mean, atol=1e-3)
    np.testing.assert_allclose(made[0].forecast(new).sd, made[1].forecast(new).sd, rtol=1e-3)


X, Y = rows(20)
ODD = X.copy()
ODD[3, 1] = np.nan
LARGE = X.copy()
LARGE[4, 2] = 1e200


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (
            lambda: GaussianProcess(warp="log").fit(X, Y - 1.0),
            "the label is -.* in row .*, but a log warp needs positive labels",
        ),
        (
            lambda: GaussianProcess().fit(np.column_stack([X, np.ones(20)]), Y),
            "feature '4' is constant: it says nothing, leave it out",
        ),
        (lambda: GaussianProcess().fit(X[:1], Y[:1]), "a Gaussian process needs at least 2 rows, found 1"),
        (lambda: GaussianProcess().fit(ODD, Y, ["a", "b", "c"]), "feature 'b' is not finite in row 4"),
        (lambda: GaussianProcess().fit(X, np.full(20, np.nan)), "the label is not finite in row 1"),
        (
            lambda: GaussianProcess().fit(LARGE, Y, ["a", "b", "c"]),
            r"feature 'c' is 1e\+200 in row 5: too large",
        ),
        (lambda: GaussianProcess().fit(X, LARGE[:, 2]), r"the label is 1e\+200 in row 5: too large"),
        (
            lambda: GaussianProcess().fit(np.column_stack([X, 1e-200 * Y]), Y),
            "feature '4' is constant: it says nothing, leave it out",
        ),
        (lambda: GaussianProcess().fit(X, 1e-200 * Y), "all labels are nearly .*: they differ by too little"),
        (lambda: GaussianProcess().fit(X, np.ones(20)), "all labels are 1: there is nothing to learn"),
        (lambda: GaussianProcess().fit(X, Y[:5]), "expected one label a row, found .*"),
        (lambda: GaussianProcess().fit(X[:, :0], Y), "a Gaussian process needs at least one feature"),
        (lambda: GaussianProcess("cubic"), "there is no kernel 'cubic', expected one of: rbf, mat32, mat52"),
        (lambda: GaussianProcess(warp="tanh0"), "there is no warping 'tanh0', expected none, log, or .*"),
        (lambda: Search(restarts=0), "a search needs at least one start and one iteration"),
        (
            lambda: GaussianProcess(search=QUICK).fit(X, Y).forecast(X[:, :2]),
            r"expected rows of 3 features, found an array of shape \(20, 2\)",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(work, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        work()
