"""How well numbers find what is wrong: average precision, the best F1 and correlation over thresholds.

Items are words or segments, ``wrong`` says which of them are bad, and a higher suspicion should mean worse.
Equal suspicions form one step of the curve, so that the order of items never matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Curve:
    """What is found at each threshold, from the highest suspicion down.

    ``found`` and ``false`` count the wrong and the right items at or above each ``threshold``.
    """

    threshold: Floats
    found: Floats
    false: Floats
    wrong: int
    right: int

    @property
    def precision(self) -> Floats:
        """Share of the flagged that is wrong."""
        return self.found / (self.found + self.false)

    @property
    def recall(self) -> Floats:
        """Share of the wrong that is flagged."""
        return self.found / self.wrong if self.wrong else np.full(len(self.found), np.nan)

    @property
    def f1(self) -> Floats:
        """Harmonic mean of precision and recall."""
        return 2 * self.found / (self.found + self.false + self.wrong)

    @property
    def matthews(self) -> Floats:
        """Correlation of flagged and wrong."""
        missed, kept = self.wrong - self.found, self.right - self.false
        product = (self.found + self.false) * self.wrong * self.right * (missed + kept)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (self.found * kept - self.false * missed) / np.sqrt(product)
        return np.where(product > 0, value, 0.0)

    @property
    def average_precision(self) -> float:
        """Precision averaged over the recall that each threshold adds (no interpolation)."""
        if not self.wrong:
            return float("nan")
        gained = np.diff(self.found, prepend=0.0)
        return float((self.precision * gained).sum() / self.wrong)

    def best(self, figure: Floats) -> tuple[float, float]:
        """The largest value of a figure and the threshold that has it."""
        place = int(np.argmax(figure))
        return float(figure[place]), float(self.threshold[place])


def detection_curve(suspicion: ArrayLike, wrong: ArrayLike) -> Curve:
    """Count what is found at each threshold.

    Examples
    --------
    >>> curve = detection_curve([0.9, 0.8, 0.3, 0.1], [True, False, True, False])
    >>> round(curve.average_precision, 4), curve.best(curve.f1)
    (0.8333, (0.8, 0.3))
    """
    values, bad = np.asarray(suspicion, dtype=np.float64), np.asarray(wrong, dtype=bool)
    if values.shape != bad.shape or values.ndim != 1 or not len(values):
        raise InputError("suspicions and labels must be two lists of the same length, not empty")
    if np.isnan(values).any():
        raise InputError("a suspicion is not a number")
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    found = np.cumsum(bad[order])[ends].astype(np.float64)
    total = int(bad.sum())
    return Curve(ordered[ends], found, ends + 1 - found, total, len(values) - total)
