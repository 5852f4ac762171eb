"""Correlations of two columns of numbers; NaN where one of them is constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from doubtless.ranks import earlier_greater

Floats = np.ndarray[Any, np.dtype[np.float64]]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Linear correlation.

    >>> pearson([1, 2, 3], [2, 4, 6.1]) > 0.999
    True
    """
    a, b = _centred(x), _centred(y)
    if not (a.any() and b.any()):
        return float("nan")
    # Scale before multiplying: sums of squares of tiny or huge numbers would leave the range of floats.
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1, 1))


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Correlation of ranks, tied values sharing their mean rank.

    >>> spearman([1, 2, 3], [1, 10, 100])
    1.0
    """
    return pearson(_ranks(x), _ranks(y))


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's tau-b in O(n log n).

    >>> round(kendall([1, 2, 3, 4], [1, 3, 2, 4]), 4)
    0.6667
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    n = len(a)
    # Sorted by x and, within equal x, by y: an inversion of y is a pair that x and y order differently.
    discordant = int(earlier_greater(b).sum())
    pairs = n * (n - 1) // 2
    same_x = a[1:] == a[:-1]
    ties_x, ties_both = _tied_pairs(same_x), _tied_pairs(same_x & (b[1:] == b[:-1]))
    ordered = np.sort(b)
    ties_y = _tied_pairs(ordered[1:] == ordered[:-1])
    if pairs in (ties_x, ties_y):
        return float("nan")
    surplus = pairs - ties_x - ties_y + ties_both - 2 * discordant
    return float(surplus / np.sqrt(pairs - ties_x) / np.sqrt(pairs - ties_y))


def _centred(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or x.min() == x.max():
        return np.zeros(len(x))
    return x - x.mean()


def _ranks(values: ArrayLike) -> Floats:
    return pl.Series(values=np.asarray(values, dtype=np.float64)).rank("average").to_numpy()


def _tied_pairs(same_as_previous: np.ndarray) -> int:
    """Number of tied pairs, from whether each sorted value equals the one before it."""
    ends = np.flatnonzero(np.append(~same_as_previous, True))
    lengths = np.diff(ends, prepend=-1)
    return int((lengths * (lengths - 1) // 2).sum())
