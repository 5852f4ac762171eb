"""Fitting the parameters: many starts with one length-scale, then one length-scale a feature.

Both passes of Beck et al. (2016) are made. An exact search makes every descent on the likelihood of all
rows. By default the same passes are made on cheaper stand-ins and only the end on the likelihood: the
starts on a sample of the rows, the best of them on a bound that uses all rows, and the last steps, which
begin with the curvature that the bound has taught, on the likelihood itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from doubtless.errors import InputError
from doubtless.gp.kernels import Kernel
from doubtless.gp.likelihood import Likelihood, Parameters, SingularError
from doubtless.gp.sparse import SparseLikelihood, telling_rows
from doubtless.gp.warping import Warping
from doubtless.warp import Floats

Objective = Callable[[Floats], tuple[float, Floats]]

# A step that gains less (in nats, of the whole likelihood) ends a descent; and one as GPy makes it.
_SMALLEST_GAIN, _SOFTPLUS_GAIN = 1e-4, 2e-6

# The cheap search: rows of the sample, evaluations of a short descent, starts that go on, rows of the bounds.
_SAMPLE, _GLANCE = 256, 30
_FINALISTS = 3
_FEW, _MORE, _TWICE, _MANY = 50, 100, 200, 300
# Its steps on the likelihood (or the best bound) between the passes and at the end; the gain that ends them.
_SOME_STEPS, _LAST_STEPS, _LAST_GAIN = 4, 8, 0.05


@dataclass(frozen=True)
class Problem:
    """Rows, labels and the model that is to be fitted to them."""

    x: Floats
    y: Floats
    kernel: Kernel
    warping: Warping

    def exact(self, lengths: int) -> Likelihood:
        """The exact likelihood."""
        return Likelihood(self.x, self.y, self.kernel, self.warping, lengths)

    def sparse(self, at: Parameters, most: int) -> SparseLikelihood:
        """The bound, with the rows that tell most at the given parameters."""
        rows = telling_rows(self.kernel, self.x, at, most)
        return SparseLikelihood(self.x, self.y, self.kernel, self.warping, len(at.log_lengths), rows)

    def sample(self, most: int, rng: np.random.Generator) -> Problem:
        """A random sample of the rows."""
        rows = rng.permutation(len(self.y))[:most]
        return Problem(self.x[rows], self.y[rows], self.kernel, self.warping)

    def starts(self, count: int, rng: np.random.Generator) -> list[Floats]:
        """Parameters to start from: all 1, then drawn as GPy draws them."""
        starts = [np.concatenate([np.zeros(3), self.warping.initial()])]
        for _ in range(count - 1):
            drawn = np.log(np.logaddexp(0, rng.normal(size=3)))
            starts.append(np.concatenate([drawn, self.warping.draw(rng)]))
        return starts


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended: the parameters, the value there and the inverse of the curvature."""

    vector: Floats
    value: float
    metric: Floats


@dataclass(frozen=True)
class Search:
    """How parameters are sought.

    Parameters
    ----------
    restarts, iterations
        Starts of the first pass, and evaluations of each descent.
    seed
        Of the starts and the sample.
    exact
        Whether all descents are on the exact likelihood, or most of them on cheaper stand-ins.
    softplus
        Whether the second pass moves variances and length-scales as GPy does, as the softplus of a free
        number and not as its exponential. Long length-scales then hardly move, as in the published tables.

    Examples
    --------
    >>> from doubtless.gp.kernels import find_kernel
    >>> x = np.linspace(0, 6, 30)[:, None]
    >>> problem = Problem(x, np.sin(x[:, 0]), find_kernel("rbf"), Warping.parse("none"))
    >>> theta, value = Search(restarts=2).run(problem, ard=False)
    >>> bool(theta.noise < 1e-3)
    True
    """

    restarts: int = 10
    iterations: int = 100
    seed: int = 0
    exact: bool = False
    softplus: bool = False

    def __post_init__(self) -> None:
        if self.restarts < 1 or self.iterations < 1:
            raise InputError("a search needs at least one start and one iteration")

    def run(self, problem: Problem, *, ard: bool, finish: bool = True) -> tuple[Parameters, float]:
        """Find the parameters that make the labels most likely.

        Parameters
        ----------
        problem
            What to fit.
        ard
            Whether features get length-scales of their own, in a second pass.
        finish
            Whether a search on stand-ins ends on the exact likelihood; very many rows leave it on a bound.

        Returns
        -------
        The parameters and their negative log likelihood (or its bound).
        """
        best = self._first_pass(problem, np.random.default_rng(self.seed))
        if not ard:
            return _end(best if self.exact else _last_steps(problem, best, 1, finish), 1)
        if self.softplus and not self.exact:
            best = _sharpened(problem, best, finish)
        theta = Parameters.of(best.vector, 1).spread_over(problem.x.shape[1])
        lengths = len(theta.log_lengths)
        positive = _positive(theta, problem.warping) if self.softplus else None
        gain = _SOFTPLUS_GAIN if self.softplus else _SMALLEST_GAIN
        second = problem.exact(lengths) if self.exact else problem.sparse(theta, _MORE)
        best = descend(second, theta.vector, self.iterations, positive=positive, gain=gain)
        if not self.exact:
            best = _last_steps(problem, best, lengths, finish, positive)
        return _end(best, lengths)

    def _first_pass(self, problem: Problem, rng: np.random.Generator) -> Descent:
        if self.exact:
            likelihood, starts = problem.exact(1), problem.starts(self.restarts, rng)
            positive = _positive(Parameters.of(starts[0], 1), problem.warping) if self.softplus else None
            gain = _SOFTPLUS_GAIN if self.softplus else _SMALLEST_GAIN
            return _descents(likelihood, starts, self.iterations, positive, gain)[0]
        sample = problem.sample(_SAMPLE, rng)
        starts = sample.starts(self.restarts, rng)
        glances = _descents(sample.exact(1), starts, min(self.iterations, _GLANCE))
        finalists = [
            descend(problem.sparse(Parameters.of(glance.vector, 1), _FEW), glance.vector, self.iterations)
            for glance in _distinct(glances)[:_FINALISTS]
        ]
        return min(finalists, key=lambda descent: descent.value)


def _sharpened(problem: Problem, best: Descent, finish: bool) -> Descent:
    """Bring the first pass nearer to the likelihood's optimum, for a second pass that will hardly move.

    A bound that would need more rows than it may have is loose, and prefers processes that are too smooth:
    then a few steps on the likelihood follow.
    """
    better = problem.sparse(Parameters.of(best.vector, 1), _TWICE)
    best = descend(better, best.vector, _GLANCE, metric=best.metric, gain=_LAST_GAIN)
    if finish and len(better.rows) == _TWICE:
        best = descend(problem.exact(1), best.vector, _SOME_STEPS, metric=best.metric, gain=_LAST_GAIN)
    return best


def _last_steps(
    problem: Problem, best: Descent, lengths: int, finish: bool, positive: np.ndarray | None = None
) -> Descent:
    """From the optimum of a bound to that of the likelihood, or of a better bound."""
    theta = Parameters.of(best.vector, lengths)
    last = problem.exact(lengths) if finish else problem.sparse(theta, _MANY)
    return descend(last, best.vector, _LAST_STEPS, metric=best.metric, positive=positive, gain=_LAST_GAIN)


def _end(descent: Descent, lengths: int) -> tuple[Parameters, float]:
    return Parameters.of(descent.vector, lengths), descent.value


def _positive(theta: Parameters, warping: Warping) -> np.ndarray:
    """Which parameters are logarithms: all but the shifts of a warping."""
    shifts = np.tile([True, True, False], warping.terms)
    return np.concatenate([np.ones(len(theta.log_lengths) + 2, dtype=bool), shifts])


def _descents(
    objective: Objective,
    starts: list[Floats],
    evaluations: int,
    positive: np.ndarray | None = None,
    gain: float = _SMALLEST_GAIN,
) -> list[Descent]:
    """Descents from all starts at which there is a value, the best first."""
    found = [descend(objective, start, evaluations, positive=positive, gain=gain) for start in starts]
    usable = [descent for descent in found if np.isfinite(descent.value)]
    if not usable:
        raise SingularError
    return sorted(usable, key=lambda descent: descent.value)


def _distinct(descents: list[Descent]) -> list[Descent]:
    """Leave out those that ended where a better one did, as far as their values tell."""
    kept: list[Descent] = []
    for descent in descents:
        if not kept or descent.value - kept[-1].value > 0.01:
            kept.append(descent)
    return kept


def descend(
    objective: Objective,
    start: Floats,
    evaluations: int,
    *,
    metric: Floats | None = None,
    positive: np.ndarray | None = None,
    gain: float = _SMALLEST_GAIN,
) -> Descent:
    """Minimise by L-BFGS, with at most so many evaluations.

    Parameters
    ----------
    objective
        Gives value and gradient.
    start
        Where to begin.
    evaluations
        How often the objective may be asked.
    metric
        Inverse of the curvature, as far as it is known: the first step is then nearly right.
    positive
        Which parameters are logarithms that should be moved as softplus of a free number.
    gain
        A step that gains less ends the descent.

    Examples
    --------
    >>> bowl = lambda v: (float(v @ v), 2 * v)
    >>> descend(bowl, np.array([3.0, -1.0]), 20).vector.round(4) + 0.0
    array([0., 0.])
    """
    if positive is not None:
        soft = _softplus_of(objective, positive)
        inner = descend(soft, _to_softplus(start, positive), evaluations, metric=metric, gain=gain)
        return Descent(_from_softplus(inner.vector, positive), inner.value, inner.metric)
    stretch = np.linalg.cholesky(np.eye(len(start)) if metric is None else metric)
    best = start, *_walled(objective, start)
    if not np.isfinite(best[1]):
        return Descent(start, np.inf, np.eye(len(start)))
    wall = best[1] + 1e4

    def stretched(u: Floats) -> tuple[float, Floats]:
        nonlocal best
        if not u.any():
            return best[1], stretch.T @ best[2]  # known already: the optimiser begins by asking for it
        vector = start + stretch @ u
        value, gradient = _walled(objective, vector)
        if value < best[1]:
            best = vector, value, gradient
        return min(value, wall), stretch.T @ gradient

    found = minimize(
        stretched,
        np.zeros_like(start),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxfun": evaluations,
            "maxiter": evaluations,
            "ftol": gain / max(1.0, abs(best[1])),
            "maxcor": 20,
        },
    )
    metric = np.asarray(stretch @ (found.hess_inv @ stretch.T), dtype=np.float64)
    return Descent(best[0], best[1], _surely_positive(metric))


def _walled(objective: Objective, vector: Floats) -> tuple[float, Floats]:
    """Value and gradient; infinite and flat where there are none, so that a line search turns back."""
    try:
        return objective(vector)
    except SingularError:
        return np.inf, np.zeros_like(vector)


def _surely_positive(inverse: Floats) -> Floats:
    """The symmetric part, its eigenvalues kept away from zero and infinity."""
    values, vectors = np.linalg.eigh((inverse + inverse.T) / 2)
    highest = values.max()
    return (vectors * np.clip(values, 1e-8 * highest, highest)) @ vectors.T


def _to_softplus(vector: Floats, positive: np.ndarray) -> Floats:
    """Free numbers whose softplus is the exponential of the logarithms given."""
    value = np.exp(vector[positive])
    found = vector.copy()
    found[positive] = value + np.log(-np.expm1(-value))
    return found


def _from_softplus(free: Floats, positive: np.ndarray) -> Floats:
    vector = free.copy()
    values = free[positive]
    # Below -30 softplus is the exponential itself.
    vector[positive] = np.where(values < -30, values, np.log(np.logaddexp(0, np.maximum(values, -30))))
    return vector


def _softplus_of(objective: Objective, positive: np.ndarray) -> Objective:
    def soft(free: Floats) -> tuple[float, Floats]:
        vector = _from_softplus(free, positive)
        value, gradient = objective(vector)
        slope = np.exp(-np.logaddexp(0, -free) - vector)  # of the logarithm of softplus
        return value, np.where(positive, gradient * slope, gradient)

    return soft
