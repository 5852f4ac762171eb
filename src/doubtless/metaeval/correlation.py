"""Correlations of two columns of numbers; NaN where one of them is constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy.special import stdtr

from doubtless.metaeval.pairs import count_by_sorting, tau_b

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
    concordant, discordant, ties_b, ties_a, _ = count_by_sorting(b, a)
    return float(tau_b(concordant, discordant, ties_b, ties_a))


def williams(first: float, second: float, between: float, n: int) -> float:
    """P-value that the first of two dependent correlations is not larger (Williams 1959).

    Parameters
    ----------
    first, second
        Pearson's correlations of two metrics with the same human scores.
    between
        Pearson's correlation of the two metrics with each other.
    n
        Number of scores; the test needs four or more, and takes them for normal.

    Examples
    --------
    >>> round(williams(0.9, 0.7, 0.6, 20), 4)
    0.0217
    """
    if n < 4 or not np.isfinite([first, second, between]).all():
        return float("nan")
    determinant = max(0.0, 1 - first**2 - second**2 - between**2 + 2 * first * second * between)
    middle = (first + second) / 2
    under = np.sqrt(2 * (n - 1) / (n - 3) * determinant + middle**2 * (1 - between) ** 3)
    over = (first - second) * np.sqrt((n - 1) * (1 + between))
    if under == 0:  # metrics that say the same
        return 0.5
    return float(stdtr(n - 3, -over / under))


def _centred(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or x.min() == x.max():
        return np.zeros(len(x))
    return x - x.mean()


def _ranks(values: ArrayLike) -> Floats:
    return pl.Series(values=np.asarray(values, dtype=np.float64)).rank("average").to_numpy()
