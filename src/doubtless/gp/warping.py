"""Warpings with parameters that are learned: their values, slopes and gradients (Snelson et al. 2004)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from doubtless.errors import InputError
from doubtless.warp import Floats, LogWarp, TanhWarp, Warp


@dataclass(frozen=True)
class Warped:
    """Labels on the Gaussian scale, with what the marginal likelihood needs of the warping.

    Attributes
    ----------
    z
        The warped labels f(y).
    log_slope
        The sum of log f'(y), the logarithm of the Jacobian.
    dz
        One row a parameter: the derivative of ``z``.
    dlog_slope
        The derivative of ``log_slope`` by each parameter.
    """

    z: Floats
    log_slope: float
    dz: Floats
    dlog_slope: Floats


@dataclass(frozen=True)
class Warping:
    """A family of warpings: ``none``, ``log``, or ``tanh`` with 1, 2 or more terms.

    Its free parameters are, for each tanh term, ``log a``, ``log b`` and ``c``: whatever their values, the
    warping increases.

    Examples
    --------
    >>> family = Warping.parse("tanh2")
    >>> family.initial()
    array([ 0.,  0., -1.,  0.,  0., -2.])
    >>> family.warp(family.initial())
    TanhWarp(a=(1.0, 1.0), b=(1.0, 1.0), c=(-1.0, -2.0))
    """

    name: str
    terms: int = 0

    @classmethod
    def parse(cls, text: str) -> Warping:
        """Read ``none``, ``log``, ``tanh1``, ``tanh2``, ``tanh3`` …."""
        if text in ("none", "log"):
            return cls(text)
        found = re.fullmatch(r"tanh([1-9])", text)
        if not found:
            raise InputError(f"there is no warping '{text}', expected none, log, or tanh1 to tanh9")
        return cls(text, int(found[1]))

    @property
    def size(self) -> int:
        """How many free parameters there are."""
        return 3 * self.terms

    def initial(self) -> Floats:
        """Where Beck et al. (2016) start: a = b = 1 and c = -1, -2, -3."""
        return np.array([value for i in range(self.terms) for value in (0.0, 0.0, -1.0 - i)])

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw parameters as GPy does: a and b softplus of a normal number, c normal."""
        values = rng.normal(size=(self.terms, 3))
        values[:, :2] = np.log(np.logaddexp(0, values[:, :2]))
        return values.ravel()

    def warp(self, parameters: Floats) -> Warp | None:
        """The warping with these parameters; None leaves labels as they are."""
        if self.name == "none":
            return None
        if self.name == "log":
            return LogWarp()
        log_a, log_b, c = parameters.reshape(-1, 3).T
        return TanhWarp(tuple(np.exp(log_a).tolist()), tuple(np.exp(log_b).tolist()), tuple(c.tolist()))

    def apply(self, parameters: Floats, y: Floats) -> Warped:
        """Warp labels and differentiate by the free parameters."""
        if not self.terms:
            warp = self.warp(parameters)
            nothing = np.zeros((0, len(y))), np.zeros(0)
            if warp is None:
                return Warped(y, 0.0, *nothing)
            return Warped(warp.forward(y), float(warp.log_derivative(y).sum()), *nothing)
        log_a, log_b, c = parameters.reshape(-1, 3, 1).transpose(1, 0, 2)
        a, b = np.exp(log_a), np.exp(log_b)
        u = b * (y + c)
        tanh = np.tanh(u)
        sech2 = 1 / np.cosh(np.clip(u, -350, 350)) ** 2  # 1 - tanh^2 would cancel
        term, steepness = a * tanh, a * b * sech2
        slope = 1 + steepness.sum(axis=0)
        bend = -2 * tanh * steepness  # the derivative of the steepness by u
        dz = np.stack([term, a * u * sech2, steepness], axis=1)
        dslope = np.stack([steepness, steepness + u * bend, b * bend], axis=1)
        return Warped(
            y + term.sum(axis=0),
            float(np.log(slope).sum()),
            dz.reshape(self.size, -1),
            (dslope / slope).sum(axis=-1).ravel(),
        )


@dataclass(frozen=True)
class LabelScale:
    """An affine map that brings labels to the size that searches start from: ``(y - centre) / scale``.

    >>> LabelScale.of(np.array([1.0, 4.0]), "log")  # the geometric mean: logarithms have mean 0
    LabelScale(centre=0.0, scale=2.0)
    """

    centre: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, y: Floats, warp: str) -> LabelScale:
        """Mean and standard deviation; under a logarithm only the geometric mean."""
        if warp == "log":
            return cls(0.0, float(np.exp(np.log(y).mean())))
        return cls(float(y.mean()), float(y.std()))

    def apply(self, y: Floats) -> Floats:
        """Standardise labels."""
        return (y - self.centre) / self.scale

    def before(self, warp: Warp) -> Warp:
        """The warping of labels that are not standardised yet."""
        return warp if self == LabelScale() else ScaledWarp(warp, self)


@dataclass(frozen=True)
class ScaledWarp:
    """A warping of standardised labels, as one of the labels themselves.

    >>> warp = ScaledWarp(LogWarp(), LabelScale(0.0, 2.0))
    >>> float(warp.inverse(np.array([0.0]))[0])
    2.0
    """

    inner: Warp
    labels: LabelScale

    def forward(self, y: Floats) -> Floats:
        """Standardise, then warp."""
        return self.inner.forward(self.labels.apply(y))

    def inverse(self, z: Floats) -> Floats:
        """Undo both."""
        return self.labels.centre + self.labels.scale * self.inner.inverse(z)

    def log_derivative(self, y: Floats) -> Floats:
        """Of both together."""
        return self.inner.log_derivative(self.labels.apply(y)) - np.log(self.labels.scale)
