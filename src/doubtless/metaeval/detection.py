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
Integers = np.ndarray[Any, np.dtype[np.int64]]

_VALUES = 1 << 19  # numbers laid out together: what the caches hold


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

    def at(self, threshold: float) -> dict[str, float]:
        """Precision, recall, F1 and correlation where everything at or above a threshold is flagged.

        Nothing flagged has no precision (NaN), and an F1 and a correlation of 0.

        >>> detection_curve([0.9, 0.8, 0.3], [True, False, True]).at(0.5)
        {'precision': 0.5, 'recall': 0.5, 'f1': 0.5, 'matthews': -0.5}
        """
        place = int(np.searchsorted(-self.threshold, -threshold, side="right")) - 1
        if place < 0:
            recall = 0.0 if self.wrong else float("nan")
            return {"precision": float("nan"), "recall": recall, "f1": 0.0, "matthews": 0.0}
        names = ("precision", "recall", "f1", "matthews")
        return {name: float(getattr(self, name)[place]) for name in names}

    def thinned(self, points: int) -> Curve:
        """The curve at about so many equal steps of recall, for drawing; every step is a true one.

        >>> detection_curve([4, 3, 2, 1], [True, True, False, True]).thinned(1).recall.round(2).tolist()
        [0.33, 1.0]
        """
        wanted = np.linspace(0.0, self.wrong, points + 1)
        places = np.unique(np.searchsorted(self.found, np.maximum(wanted, 1.0)).clip(0, len(self.found) - 1))
        return Curve(self.threshold[places], self.found[places], self.false[places], self.wrong, self.right)


def detection_curve(suspicion: ArrayLike, wrong: ArrayLike) -> Curve:
    """Count what is found at each threshold.

    Examples
    --------
    >>> curve = detection_curve([0.9, 0.8, 0.3, 0.1], [True, False, True, False])
    >>> round(curve.average_precision, 4), curve.best(curve.f1)
    (0.8333, (0.8, 0.3))
    """
    values, bad = _checked(suspicion, wrong)
    # Sorting numbers is several times as fast as sorting their places: sort all, and find the wrong in them.
    ordered = np.sort(values)
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    marks = np.searchsorted(ordered, np.sort(values[bad]))  # each at the start of its run of equals
    upto = np.cumsum(np.bincount(marks, minlength=len(values)))
    total = len(marks)
    found = np.full(len(starts), total, dtype=np.float64)
    found[1:] -= upto[starts[:-1]]
    flagged = len(values) - starts
    return Curve(ordered[starts][::-1], found[::-1], (flagged - found)[::-1], total, len(values) - total)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Items in the order of their suspicion, to be judged again and again with other weights (bootstrap).

    Only steps at which something wrong is found matter to average precision and to the best F1.

    Parameters
    ----------
    unit
        The unit (segment) of each item, from the highest suspicion down; items of a unit share its weight.
    wrong
        Places of the wrong items.
    last, last_wrong
        Of each wrong item: the place of the last item that is as suspicious, among all and among the wrong.
    """

    unit: Integers
    wrong: Integers
    last: Integers
    last_wrong: Integers

    @classmethod
    def of(cls, suspicion: ArrayLike, wrong: ArrayLike, unit: ArrayLike) -> Ranking:
        """Sort items."""
        values, bad = _checked(suspicion, wrong)
        order = np.argsort(-values)
        places = np.flatnonzero(bad[order])
        ordered = -values[order]
        last = np.searchsorted(ordered, ordered[places], side="right") - 1
        last_wrong = np.searchsorted(places, last, side="right") - 1
        return cls(np.asarray(unit, dtype=np.int64)[order], places, last, last_wrong)

    def figures(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Average precision and the best F1 where each unit counts as often as its weight says.

        Parameters
        ----------
        weights
            Resamples by units.

        Returns
        -------
        tuple of array
            One value a resample; NaN if nothing wrong is left in it.

        Examples
        --------
        >>> ranking = Ranking.of([0.9, 0.8, 0.3, 0.1], [True, False, True, False], [0, 1, 2, 3])
        >>> ranking.figures([[1, 1, 1, 1], [1, 0, 2, 1]])[0].round(4)
        array([0.8333, 1.    ])
        """
        drawn = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        both = np.full((2, len(drawn)), np.nan)
        step = max(1, _VALUES // len(self.unit))
        for start in range(0, len(drawn) if len(self.wrong) else 0, step):
            weight = drawn[start : start + step, self.unit]
            own = weight[:, self.wrong]
            total = own.sum(axis=1)
            flagged = np.cumsum(weight, axis=1)[:, self.last]
            found = np.cumsum(own, axis=1)[:, self.last_wrong]
            precision = np.divide(found, flagged, out=np.zeros_like(own), where=flagged > 0)
            some = total > 0
            rows = np.arange(start, start + len(weight))[some]
            both[0, rows] = (own * precision).sum(axis=1)[some] / total[some]
            both[1, rows] = (2 * found[some] / (flagged[some] + total[some, None])).max(axis=1)
        return both[0], both[1]


def _checked(suspicion: ArrayLike, wrong: ArrayLike) -> tuple[Floats, np.ndarray]:
    values, bad = np.asarray(suspicion, dtype=np.float64), np.asarray(wrong, dtype=bool)
    if values.shape != bad.shape or values.ndim != 1 or not len(values):
        raise InputError("suspicions and labels must be two lists of the same length, not empty")
    if np.isnan(values).any():
        raise InputError("a suspicion is not a number")
    return values, bad
