"""Gaussian process regression, plain and warped: fit on features and labels, forecast new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dtrtri
from threadpoolctl import threadpool_limits

from doubtless.errors import InputError
from doubtless.forecast import Gaussian, WarpedGaussian, first_not_finite
from doubtless.gp.kernels import Kernel, find_kernel
from doubtless.gp.likelihood import Parameters, SingularError, between, factored, scaled, solved
from doubtless.gp.optimise import Problem, Search
from doubtless.gp.sparse import Summary, telling_rows
from doubtless.gp.warping import LabelScale, Warping
from doubtless.warp import Floats

MOST_ROWS = 5_000
# Squares of larger numbers, and sums of them, would overflow.
_LARGEST = 1e100
_MOST_SUMMARY = 500
_ROWS_AT_ONCE = 2_048
_TRIES = 8


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of the process after the labels, at the rows that it rests on.

    A new row with covariances k to those rows has mean ``k weights`` and variance ``prior - |root k|^2``.
    """

    rows: Floats
    weights: Floats
    root: Floats


@dataclass(frozen=True, eq=False)
class FittedGP:
    """A fitted process: plain data, made by :meth:`GaussianProcess.fit`.

    Attributes
    ----------
    kernel, warp
        Names of the kernel and the family of warpings.
    features
        Names of the features.
    centre, spread
        What features are standardised by.
    labels
        What labels are standardised by.
    theta
        The parameters.
    nll
        Negative log marginal likelihood of the training labels (or its bound if not exact).
    n
        How many rows it was fitted on.
    exact
        Whether the posterior rests on all of them, or on a summary.
    """

    kernel: str
    warp: str
    features: tuple[str, ...]
    centre: Floats
    spread: Floats
    labels: LabelScale
    theta: Parameters
    posterior: Posterior
    nll: float
    n: int
    exact: bool

    def forecast(self, x: ArrayLike) -> Gaussian | WarpedGaussian:
        """Forecast the labels of new rows: score and uncertainty of each.

        Parameters
        ----------
        x
            Features, one row a segment, in the order of :attr:`features`.

        Returns
        -------
        A normal distribution a row, on the scale of the labels; warped if the model is. The score of a
        warped one is the median.
        """
        x = checked_features(x, self.features)
        mean, sd = self._latent((x - self.centre) / self.spread)
        warp = self._warping.warp(self.theta.warp)
        if warp is None:
            return Gaussian(self.labels.centre + self.labels.scale * mean, self.labels.scale * sd)
        return WarpedGaussian(mean, sd, self.labels.before(warp))

    @property
    def _warping(self) -> Warping:
        return Warping.parse(self.warp)

    def _latent(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of new labels on the Gaussian scale."""
        kernel = find_kernel(self.kernel)
        known = scaled(kernel, self.posterior.rows, self.theta)
        means, variances = [np.zeros(0)], [np.zeros(0)]
        for start in range(0, len(x), _ROWS_AT_ONCE):
            new = scaled(kernel, x[start : start + _ROWS_AT_ONCE], self.theta)
            shared = between(kernel, new, known)[0] * self.theta.variance
            means.append(shared @ self.posterior.weights)
            told = np.einsum("ij,ij->i", *[shared @ self.posterior.root.T] * 2)
            # Rounding may take a little more than there is, beside rows that were seen.
            variances.append(np.maximum(self.theta.variance - told, 0.0) + self.theta.noise)
        return np.concatenate(means), np.sqrt(np.concatenate(variances))

    @cached_property
    def relevance(self) -> dict[str, float]:
        """The inverse of each feature's length-scale, in its standard deviations: 0 is irrelevant."""
        inverse = np.exp(-np.resize(self.theta.log_lengths, len(self.features)))
        return dict(zip(self.features, inverse.tolist(), strict=True))


@dataclass(frozen=True)
class GaussianProcess:
    """Gaussian process regression with Gaussian noise, and a warping of the labels if wished.

    Parameters
    ----------
    kernel
        ``rbf``, ``mat32`` or ``mat52``.
    warp
        ``none``, ``log`` (positive labels), or ``tanh1``, ``tanh2``, ``tanh3``, learned from the labels.
    ard
        Whether each feature has a length-scale of its own.
    search
        How parameters are sought: :class:`doubtless.gp.optimise.Search`, with the seed.
    standardise
        Whether features and labels are brought to a common scale first. The published tables do that for
        features alone, beforehand.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> time = np.exp(x[:, 0] + 0.1 * rng.normal(size=60))
    >>> model = GaussianProcess(warp="log").fit(x, time)
    >>> bool(abs(model.forecast([[1.0, 0.0]]).score[0] - np.e) < 0.3)
    True
    """

    kernel: str = "mat52"
    warp: str = "none"
    ard: bool = False
    search: Search = field(default_factory=Search)
    standardise: bool = True

    def __post_init__(self) -> None:
        find_kernel(self.kernel)
        Warping.parse(self.warp)

    def fit(self, x: ArrayLike, y: ArrayLike, features: Sequence[str] = ()) -> FittedGP:
        """Fit parameters to features and labels.

        Parameters
        ----------
        x
            Features, one row a segment.
        y
            Labels.
        features
            Names of the features, for messages; by default their numbers.
        """
        x, y, names = checked(x, y, features, self.warp)
        centre, spread = np.zeros(x.shape[1]), np.ones(x.shape[1])
        labels = LabelScale()
        if self.standardise:
            centre, spread = x.mean(axis=0), x.std(axis=0)
            labels = LabelScale.of(y, self.warp)
        x, y = (x - centre) / spread, labels.apply(y)
        exact = len(y) <= MOST_ROWS
        if not exact and self.search.exact:
            raise InputError(f"an exact search takes at most {MOST_ROWS:,} rows, found {len(y):,}")
        problem = Problem(x, y, find_kernel(self.kernel), Warping.parse(self.warp))
        try:
            # The products are small: threads that wait for each other cost more than they bring.
            with threadpool_limits(1, user_api="blas"):
                theta, nll = self.search.run(problem, ard=self.ard, finish=exact)
            posterior = (exact_posterior if exact else sparse_posterior)(problem, theta)
        except SingularError:
            raise InputError(
                "the search found no positive covariance of the rows: are the features usable?"
            ) from None
        nll += len(y) * float(np.log(labels.scale))
        return FittedGP(
            self.kernel, self.warp, names, centre, spread, labels, theta, posterior, nll, len(y), exact
        )


def exact_posterior(problem: Problem, theta: Parameters) -> Posterior:
    """Rest on all rows."""
    z = problem.warping.apply(theta.warp, problem.y).z
    factor = _surely_factored(problem.kernel, problem.x, theta)
    return Posterior(problem.x, solved(factor, z), _inverse(factor))


def root_of(kernel: Kernel, rows: Floats, theta: Parameters) -> Floats:
    """The root of an exact posterior, from its rows."""
    return _inverse(_surely_factored(kernel, rows, theta))


def _inverse(factor: Floats) -> Floats:
    inverse: Floats = dtrtri(factor.T, lower=False)[0].T
    return np.tril(inverse)


def _surely_factored(kernel: Kernel, rows: Floats, theta: Parameters) -> Floats:
    """Factor the covariance of rows; where rounding makes it singular, with more and more jitter."""
    points = scaled(kernel, rows, theta)
    jitter = 0.0
    for _ in range(_TRIES):
        covariance = between(kernel, points, points)[0]
        covariance *= theta.variance
        covariance.flat[:: len(points) + 1] = theta.variance + theta.noise + jitter
        try:
            return factored(covariance)
        except SingularError:
            jitter = max(10 * jitter, 1e-10 * theta.variance)
    raise InputError("the covariance of the rows is singular, even with jitter")


def sparse_posterior(problem: Problem, theta: Parameters) -> Posterior:
    """Rest on the few rows that tell most."""
    kernel = problem.kernel
    few = telling_rows(kernel, problem.x, theta, _MOST_SUMMARY)
    points = scaled(kernel, problem.x, theta)
    inner = between(kernel, points[few], points[few])[0] * theta.variance
    cross = between(kernel, points[few], points)[0] * theta.variance
    z = problem.warping.apply(theta.warp, problem.y).z
    summary = Summary.of(inner, cross, z, theta)
    weights = summary.back @ (summary.gain_inverse @ summary.seen) / np.sqrt(theta.noise)
    values, vectors = np.linalg.eigh(summary.gain)
    root = np.sqrt(np.maximum(1 - 1 / values, 0.0))[:, None] * (vectors.T @ summary.back.T)
    return Posterior(problem.x[few], weights, root)


def most_frequent(labels: Floats) -> tuple[float, float]:
    """The label that occurs most often, and its share of all.

    A learned warping can gain without end by becoming steep at a label that many rows share: from a share of
    some per cent on, its likelihood and densities say nothing.

    >>> most_frequent(np.array([0.0, 0.0, 0.3, 0.7]))
    (0.0, 0.5)
    """
    values, counts = np.unique(labels, return_counts=True)
    return float(values[counts.argmax()]), float(counts.max() / len(labels))


def checked_features(x: ArrayLike, names: Sequence[str]) -> Floats:
    """Features as finite numbers, as many as are known by name."""
    found = np.asarray(x, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != len(names):
        raise InputError(f"expected rows of {len(names)} features, found an array of shape {found.shape}")
    row = first_not_finite(found)
    if row is not None:
        column = names[int((~np.isfinite(found[row])).argmax())]
        raise InputError(f"feature '{column}' is not finite in row {row + 1}")
    large = np.abs(found) > _LARGEST
    if large.any():
        row, number = (int(i) for i in np.argwhere(large)[0])
        raise InputError(f"feature '{names[number]}' is {found[row, number]:g} in row {row + 1}: too large")
    return found


def checked(
    x: ArrayLike, y: ArrayLike, features: Sequence[str], warp: str
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Features, labels and names that a process can be fitted to."""
    found, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if found.ndim != 2 or labels.shape != found.shape[:1]:
        raise InputError(f"expected one label a row, found {labels.shape} labels for {found.shape} features")
    names = tuple(features) or tuple(str(i + 1) for i in range(found.shape[1]))
    found = checked_features(found, names)
    row = first_not_finite(labels)
    if row is not None:
        raise InputError(f"the label is not finite in row {row + 1}")
    if (np.abs(labels) > _LARGEST).any():
        row = int(np.abs(labels).argmax())
        raise InputError(f"the label is {labels[row]:g} in row {row + 1}: too large")
    if len(labels) < 2:
        raise InputError(f"a Gaussian process needs at least 2 rows, found {len(labels)}")
    if not names:
        raise InputError("a Gaussian process needs at least one feature")
    # Differences may be too small to have a square.
    constant = (found.min(axis=0) == found.max(axis=0)) | (found.std(axis=0) == 0)
    if constant.any():
        raise InputError(
            f"feature '{names[int(constant.argmax())]}' is constant: it says nothing, leave it out"
        )
    if labels.min() == labels.max():
        raise InputError(f"all labels are {labels[0]:g}: there is nothing to learn")
    if warp != "log" and labels.std() == 0:
        raise InputError(f"all labels are nearly {labels[0]:g}: they differ by too little")
    if warp == "log" and labels.min() <= 0:
        row = int((labels <= 0).argmax())
        raise InputError(
            f"the label is {labels[row]:g} in row {row + 1}, but a log warp needs positive labels"
        )
    return found, labels, names
