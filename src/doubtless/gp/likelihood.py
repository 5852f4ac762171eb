"""The marginal likelihood of a (warped) Gaussian process and its gradient.

Written for speed: only the lower triangle is ever filled, in blocks of rows that stay in the processor's
cache. The covariance becomes its factor and then its inverse in place. The gradient by all length-scales
together is one matrix product, since the sum of ``G_ij (x_i - x_j)^2`` needs only ``G x`` and the sums of
G's rows and columns. No array is larger than n x n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from doubtless.gp.kernels import Kernel
from doubtless.gp.warping import Warping
from doubtless.warp import Floats

JITTER = 1e-8
# Further out a parameter changes nothing any more, and sums of its exponential overflow.
FARTHEST = 15.0
_CELLS_AT_ONCE = 1 << 16
LOG_2PI = float(np.log(2 * np.pi))


class SingularError(ArithmeticError):
    """The covariance is numerically singular, or a parameter too far out to make one."""


@dataclass(frozen=True)
class Parameters:
    """What is learned, all but ``warp`` as logarithms: any real vector is valid.

    Parameters
    ----------
    log_variance, log_noise
        Of the kernel, and of the Gaussian noise.
    log_lengths
        One length-scale, or one a feature.
    warp
        The free parameters of the warping.

    Examples
    --------
    >>> start = Parameters(0.0, np.zeros(1), 0.0, np.zeros(0))
    >>> start.spread_over(3).vector
    array([0., 0., 0., 0., 0.])
    """

    log_variance: float
    log_lengths: Floats
    log_noise: float
    warp: Floats

    @property
    def variance(self) -> float:
        """Variance of the kernel."""
        return float(np.exp(self.log_variance))

    @property
    def noise(self) -> float:
        """Variance of the noise, with the jitter that keeps covariances invertible."""
        return float(np.exp(self.log_noise)) + JITTER

    @property
    def noise_share(self) -> float:
        """The share of the noise that is not jitter: what ``log_noise`` acts on."""
        return 1 - JITTER / self.noise

    @property
    def vector(self) -> Floats:
        """All of them in a row, for optimisers."""
        return np.concatenate([[self.log_variance], self.log_lengths, [self.log_noise], self.warp])

    @classmethod
    def of(cls, vector: Floats, lengths: int) -> Parameters:
        """Make parameters from a vector with so many length-scales."""
        if np.abs(vector).max() > FARTHEST:
            raise SingularError
        return cls(
            float(vector[0]), vector[1 : 1 + lengths], float(vector[1 + lengths]), vector[2 + lengths :]
        )

    def spread_over(self, features: int) -> Parameters:
        """Give every feature the one length-scale."""
        return Parameters(self.log_variance, np.resize(self.log_lengths, features), self.log_noise, self.warp)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log marginal likelihood of labels, as a function of the parameters.

    Parameters
    ----------
    x
        Features, one row a segment.
    y
        Labels.
    kernel, warping
        The model.
    lengths
        How many length-scales: 1, or one a feature.

    Examples
    --------
    >>> from doubtless.gp.kernels import find_kernel
    >>> x, y = np.array([[0.0], [1.0]]), np.array([0.5, -0.5])
    >>> likelihood = Likelihood(x, y, find_kernel("rbf"), Warping.parse("none"), lengths=1)
    >>> value, gradient = likelihood(np.zeros(3))
    >>> round(value, 4), gradient.round(4)
    (2.6622, array([ 0.3987, -0.0232,  0.4219]))
    """

    x: Floats
    y: Floats
    kernel: Kernel
    warping: Warping
    lengths: int

    @cached_property
    def _centred(self) -> Floats:
        # Distances do not depend on the origin, but their rounding errors do.
        return self.x - self.x.mean(axis=0)

    @cached_property
    def _memory(self) -> tuple[Floats, Floats]:
        """Covariance and slopes: kept between calls, for to clear new pages costs as much as to fill them."""
        n = len(self.y)
        return np.zeros((n, n)), np.empty((n, n))

    def __call__(self, vector: Floats) -> tuple[float, Floats]:
        """Return the negative log likelihood and its gradient at a parameter vector."""
        theta = Parameters.of(vector, self.lengths)
        n = len(self.y)
        labels = self.warping.apply(theta.warp, self.y)
        points = scaled(self.kernel, self._centred, theta)
        covariance, slopes = self._memory
        self._fill(points, theta, covariance, slopes)
        factor = factored(covariance)
        log_determinant = 2 * float(np.log(factor.diagonal()).sum())
        weights = solved(factor, labels.z)
        inverse = inverted(factor)
        fit = float(weights @ labels.z)
        value = 0.5 * (fit + log_determinant + n * LOG_2PI) - labels.log_slope
        # The traces with the covariance itself come from K^-1 K = I, without touching K again.
        trace = float(weights @ weights) - float(inverse.diagonal().sum())
        gradient = np.concatenate(
            [
                [-0.5 * (fit - n - theta.noise * trace)],
                self._by_lengths(points, weights, inverse, slopes),
                [-0.5 * theta.noise * theta.noise_share * trace],
                labels.dz @ weights - labels.dlog_slope,
            ]
        )
        return value, gradient

    def _fill(self, points: Floats, theta: Parameters, covariance: Floats, slopes: Floats) -> None:
        left, right = _for_distances(points, points)
        for rows, columns in _blocks(len(points)):
            squares = left[rows] @ right[:, columns]
            np.maximum(squares, 0, out=squares)
            value, slope = self.kernel.value_and_slope(squares)
            np.multiply(value, theta.variance, out=covariance[rows, columns])
            np.multiply(slope, theta.variance, out=slopes[rows, columns])
        covariance.flat[:: len(points) + 1] = theta.variance + theta.noise

    def _by_lengths(self, points: Floats, weights: Floats, inverse: Floats, slopes: Floats) -> Floats:
        n, d = points.shape
        products = np.empty((n, d))
        sums = np.zeros(n)
        for rows, columns in _blocks(n):
            pull = np.multiply.outer(weights[rows], weights[columns])
            pull -= inverse[rows, columns]
            pull *= slopes[rows, columns]
            # A pair counts once: what lies above the diagonal was never filled.
            corner = pull[:, rows.start :]
            corner[np.triu_indices(len(corner))] = 0
            np.matmul(pull, points[columns], out=products[rows])
            sums[rows] += pull.sum(axis=1)
            sums[columns] += pull.sum(axis=0)
        by_feature = 2 * (sums @ points**2 - 2 * np.einsum("ij,ij->j", points, products))
        return by_feature if self.lengths > 1 else by_feature.sum(keepdims=True)


def scaled(kernel: Kernel, x: Floats, theta: Parameters) -> Floats:
    """Features divided by their length-scales, such that squared distances are what the kernel takes."""
    return np.ascontiguousarray(x * (np.sqrt(kernel.scale) * np.exp(-theta.log_lengths)))


def between(kernel: Kernel, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Kernel and slope between two sets of scaled points, each row of a with each row of b."""
    left, right = _for_distances(a, b)
    squares = left @ right
    return kernel.value_and_slope(np.maximum(squares, 0, out=squares))


def _for_distances(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Two factors whose product holds all squared distances: |a|^2 + |b|^2 - 2ab in one product."""
    left = np.hstack([-2 * a, _squares(a), np.ones((len(a), 1))])
    right = np.hstack([b, np.ones((len(b), 1)), _squares(b)])
    return left, np.ascontiguousarray(right.T)


def _squares(points: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", points, points)[:, None]
    return squares


def _blocks(n: int) -> list[tuple[slice, slice]]:
    """Blocks of rows and the columns up to their diagonal; about 65,000 cells each."""
    height = max(16, _CELLS_AT_ONCE // n)
    return [(slice(i, min(i + height, n)), slice(0, min(i + height, n))) for i in range(0, n, height)]


def factored(covariance: Floats) -> Floats:
    """Replace the lower triangle of a covariance by its Cholesky factor."""
    # LAPACK reads columns: the lower triangle in rows is the upper one to it. So nothing is copied.
    _, info = dpotrf(covariance.T, lower=False, clean=False, overwrite_a=True)
    if info:
        raise SingularError
    return covariance


def solved(factor: Floats, right: Floats) -> Floats:
    """Solve the system that was factored."""
    solution: Floats = dpotrs(factor.T, right, lower=False)[0]
    return solution


def inverted(factor: Floats) -> Floats:
    """Replace a factor by the lower triangle of the inverse."""
    dpotri(factor.T, lower=False, overwrite_c=True)
    return factor
