"""Regression on Gaussian kernels around some of the rows it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from doubtless.warp import Floats

_WIDEST = 4.0  # deviations from the mean beyond which all features count the same
_STEPS = 127


@dataclass(frozen=True, eq=False)
class KernelRegression:
    """The mean of a sparse Gaussian process (subset of regressors) with one length for all features.

    Attributes
    ----------
    middle, spread
        What features are standardised with.
    centres
        Standardised rows, in bytes (centres, features).
    weights
        Of the kernel around each centre.
    width
        By how much likeness falls with the mean squared distance.

    Examples
    --------
    >>> x = np.linspace(-3, 3, 200)[:, None]
    >>> found = KernelRegression.fit(x, np.sin(x[:, 0]), centres=50, noise=0.01, width=1.0)
    >>> bool(np.abs(found.predict(x) - np.sin(x[:, 0])).max() < 0.05)
    True
    """

    middle: Floats
    spread: Floats
    centres: np.ndarray[Any, np.dtype[np.int8]]
    weights: Floats
    width: float

    @classmethod
    def fit(
        cls, features: Floats, target: Floats, *, centres: int, noise: float, width: float, seed: int = 0
    ) -> KernelRegression:
        """Fit to rows, of which some, drawn at random, become centres.

        The mean of the target is taken off: predictions far from all centres are 0.
        """
        middle, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        bare = cls(middle, spread, np.zeros((0, features.shape[1]), np.int8), np.zeros(0), width)
        rows = bare._standardised(features)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:centres]
        around = np.rint(rows[chosen] / _WIDEST * _STEPS).astype(np.int8)
        held = cls(middle, spread, around, np.zeros(len(around)), width)
        near, among = held._likeness(rows), held._likeness(held._places)
        system = near.T @ near + noise * among
        system.flat[:: len(system) + 1] += 1e-6 * np.trace(system) / len(system)
        weights = np.linalg.solve(system, near.T @ (target - target.mean()))
        return cls(middle, spread, around, weights, width)

    def check(self) -> None:
        """Raise ValueError if the parts do not fit together."""
        shape = (len(self.weights), len(self.middle))
        if self.centres.shape != shape or self.spread.shape != self.middle.shape:
            raise ValueError("the parts of a regression do not fit together")

    def predict(self, features: Floats) -> Floats:
        """The target of new rows, as it differs from its mean."""
        return self._likeness(self._standardised(features)) @ self.weights

    def scaled(self, factor: float) -> KernelRegression:
        """One whose predictions are so many times as large."""
        return KernelRegression(self.middle, self.spread, self.centres, self.weights * factor, self.width)

    def _standardised(self, features: Floats) -> Floats:
        return np.clip((features - self.middle) / self.spread, -_WIDEST, _WIDEST)

    @property
    def _places(self) -> Floats:
        return self.centres.astype(np.float64) * (_WIDEST / _STEPS)

    def _likeness(self, rows: Floats) -> Floats:
        centres = self._places
        squares = (rows**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * rows @ centres.T
        found: Floats = np.exp(-self.width / rows.shape[1] * np.maximum(squares, 0))
        return found
