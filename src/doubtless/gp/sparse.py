"""A lower bound of the marginal likelihood that costs n m^2 instead of n^3 (Titsias 2009).

The process is summarised by its values at m of the rows. Labels of translations are noisy and depend
smoothly on few features, so that a hundred rows often say all: then the bound equals the likelihood for all
purposes of an optimiser, at a small part of its price.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from doubtless.gp.kernels import Kernel
from doubtless.gp.likelihood import LOG_2PI, Parameters, SingularError, between, scaled
from doubtless.gp.warping import Warping
from doubtless.warp import Floats

# Beside the kernel's variance; the summary of a smooth process is nearly singular.
_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class SparseLikelihood:
    """The bound, as a function of the parameters, called like :class:`doubtless.gp.likelihood.Likelihood`.

    Parameters
    ----------
    x, y, kernel, warping, lengths
        As for the exact likelihood.
    rows
        The rows that stand for all: their numbers.

    Examples
    --------
    >>> from doubtless.gp.kernels import find_kernel
    >>> x, y = np.array([[0.0], [1.0]]), np.array([0.5, -0.5])
    >>> bound = SparseLikelihood(x, y, find_kernel("rbf"), Warping.parse("none"), 1, np.array([0, 1]))
    >>> round(bound(np.zeros(3))[0], 4)  # all rows: the likelihood itself
    2.6622
    """

    x: Floats
    y: Floats
    kernel: Kernel
    warping: Warping
    lengths: int
    rows: np.ndarray

    def __call__(self, vector: Floats) -> tuple[float, Floats]:
        """Return minus the bound and its gradient at a parameter vector."""
        theta = Parameters.of(vector, self.lengths)
        n, m = len(self.y), len(self.rows)
        labels = self.warping.apply(theta.warp, self.y)
        every = scaled(self.kernel, self._centred, theta)
        few = every[self.rows]
        cross, cross_slope = between(self.kernel, few, every)
        inner, inner_slope = between(self.kernel, few, few)
        for block in (cross, cross_slope, inner, inner_slope):
            block *= theta.variance
        summary = Summary.of(inner, cross, labels.z, theta)
        half, gain, gain_inverse = summary.half, summary.gain, summary.gain_inverse
        noise, one = theta.noise, np.eye(m)
        explained = summary.seen @ gain_inverse @ summary.seen
        lost = n * theta.variance / noise - (float(np.trace(gain)) - m)
        log_determinant = summary.log_determinant + n * float(np.log(noise))
        energy = float(labels.z @ labels.z - explained)
        value = 0.5 * (n * LOG_2PI + log_determinant + energy / noise + lost) - labels.log_slope

        # Derivatives by both blocks of covariances, then by what these hang on.
        weights = (labels.z - (gain_inverse @ summary.seen) @ half) / noise
        back = summary.back
        pulled = np.sqrt(noise) * (back @ (half @ weights))
        by_cross = (back @ (gain_inverse - one) / np.sqrt(noise)) @ half
        by_cross -= np.multiply.outer(pulled, weights)
        by_inner = back @ (gain - 2 * one + gain_inverse) @ back.T + np.multiply.outer(pulled, pulled)
        by_inner *= 0.5
        by_variance = np.vdot(by_cross, cross) + np.vdot(by_inner, inner) + 0.5 * n * theta.variance / noise
        by_noise = n - m + float(np.trace(gain_inverse)) - noise * float(weights @ weights) - lost
        by_cross *= cross_slope
        by_inner *= inner_slope
        by_lengths = _pairs(by_cross, few, every) + _pairs(by_inner, few, few)
        gradient = np.concatenate(
            [
                [by_variance],
                by_lengths if self.lengths > 1 else by_lengths.sum(keepdims=True),
                [0.5 * by_noise * theta.noise_share],
                labels.dz @ weights - labels.dlog_slope,
            ]
        )
        return value, gradient

    @cached_property
    def _centred(self) -> Floats:
        return self.x - self.x.mean(axis=0)


@dataclass(frozen=True, eq=False)
class Summary:
    """What all rows say about the few, in the basis in which the few are independent.

    With ``L L' = K_uu``: ``back`` is L^-T, ``half`` is L^-1 K_uf / sd, ``gain`` is I + half half' and
    ``seen`` is half z.
    """

    back: Floats
    half: Floats
    gain: Floats
    gain_inverse: Floats
    log_determinant: float
    seen: Floats

    @classmethod
    def of(cls, inner: Floats, cross: Floats, z: Floats, theta: Parameters) -> Summary:
        """Summarise from the covariances among the few, and between them and all."""
        m = len(inner)
        inner.flat[:: m + 1] = theta.variance * (1 + _SLACK)
        # The inverse of a small factor once, then products only: they are what processors do best.
        back = _inverse_factor(inner)[0].T
        half = (back.T / np.sqrt(theta.noise)) @ cross
        gain = half @ half.T
        gain.flat[:: m + 1] += 1
        inverse_root, log_determinant = _inverse_factor(gain)
        return cls(back, half, gain, inverse_root.T @ inverse_root, log_determinant, half @ z)


def _inverse_factor(matrix: Floats) -> tuple[Floats, float]:
    """The inverse of a Cholesky factor, and the log determinant of what was factored."""
    try:
        factor = cholesky(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise SingularError from None
    inverse = solve_triangular(factor, np.eye(len(matrix)), lower=True, check_finite=False)
    return inverse, 2 * float(np.log(factor.diagonal()).sum())


def _pairs(weight: Floats, a: Floats, b: Floats) -> Floats:
    """Minus twice the sum of ``weight_ij (a_i - b_j)^2``, feature by feature."""
    cross = np.einsum("ij,ij->j", a, weight @ b)
    return -2 * (weight.sum(axis=1) @ a**2 + weight.sum(axis=0) @ b**2 - 2 * cross)


def telling_rows(kernel: Kernel, x: Floats, theta: Parameters, most: int, left: float = 1e-4) -> np.ndarray:
    """Choose rows, each time the one that the rows before it say least about (pivoted Cholesky).

    Stops when the variance that is left is, on average, a share ``left`` of the noise: half of that times
    the number of rows is what the bound can be off by.

    >>> from doubtless.gp.kernels import find_kernel
    >>> theta = Parameters(0.0, np.zeros(1), 0.0, np.zeros(0))
    >>> telling_rows(find_kernel("rbf"), np.array([[0.0], [0.1], [9.0]]), theta, most=2)
    array([0, 2])
    """
    points = scaled(kernel, x - x.mean(axis=0), theta)
    n = len(points)
    most = min(most, n)
    unsaid = np.full(n, theta.variance)
    basis = np.empty((most, n))
    chosen = np.empty(most, dtype=np.int64)
    for i in range(most):
        if unsaid.sum() < left * n * theta.noise:
            return np.sort(chosen[:i])
        row = chosen[i] = int(unsaid.argmax())
        column = between(kernel, points[row : row + 1], points)[0][0] * theta.variance
        column -= basis[:i, row] @ basis[:i]
        basis[i] = column / np.sqrt(unsaid[row])
        unsaid -= basis[i] ** 2
        np.maximum(unsaid, 0, out=unsaid)
        unsaid[row] = 0
    return np.sort(chosen)
