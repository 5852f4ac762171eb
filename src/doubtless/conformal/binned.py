"""Mondrian conformal prediction by a number (Boström & Johansson 2020; Zerva & Martins 2024, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.grouped import Codes, FittedGrouped, GroupedConformal
from doubtless.conformal.split import UNBOUNDED, Bounds, Floats, Side, smallest_calibration
from doubtless.errors import InputError
from doubtless.forecast import Forecast


@dataclass(frozen=True)
class Bins:
    """Cells between edges: bin i holds the numbers above edge i - 1 and up to edge i.

    >>> Bins((0.0, 1.0)).codes([-5.0, 0.0, 0.5, 2.0]).tolist()
    [0, 0, 1, 2]
    """

    edges: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Half-open ranges."""
        marks = ["-inf", *(f"{edge:.6g}" for edge in self.edges), "inf"]
        return tuple(f"({low}, {high}]" for low, high in pairwise(marks))

    def codes(self, values: ArrayLike) -> Codes:
        """Bin of each number; every finite number has one."""
        x = np.asarray(values, dtype=np.float64)
        if np.isnan(x).any():
            raise InputError(f"the number to bin by is missing in row {int(np.isnan(x).argmax()) + 1}")
        return np.searchsorted(self.edges, x, side="left").astype(np.int64)


def equal_count_edges(values: Floats, bins: int, smallest: int) -> tuple[float, ...]:
    """Edges that cut the values into at most ``bins`` parts of nearly equal size.

    An edge is one of the values, ties stay together, and every part keeps at least ``smallest`` values
    besides its edge, so that there are fewer bins where the data do not carry more.
    """
    ordered = np.sort(values)
    n = len(ordered)
    edges: list[float] = []
    start = 0
    for part in range(1, bins):
        at = max(round(part * n / bins) - 1, start + smallest)
        if at >= n:
            break
        end = int(np.searchsorted(ordered, ordered[at], side="right"))  # after the last tie
        if n - end < smallest:
            break
        edges.append(float(ordered[at]))
        start = end
    return tuple(edges)


@dataclass(frozen=True)
class BinnedConformal:
    """Calibrate each range of a number (predicted quality, uncertainty, length) by its own rows.

    Edges are given, or chosen from the calibration rows for bins of equal size. A chosen edge is itself a
    calibration row; it is left out of its bin, because given the edges only the rows strictly between
    them are drawn like a new one. So the promise is exact for given edges and for edges chosen on a
    number without ties; ties at an edge can move it by about one row a bin.

    Parameters
    ----------
    alpha, side, bounds
        As in :class:`~doubtless.conformal.split.SplitConformal`.
    bins
        Number of bins wished for; there are fewer where alpha needs larger ones.
    edges
        Fixed inner edges, instead of chosen ones.

    Examples
    --------
    >>> from doubtless.forecast import ErrorEstimate
    >>> forecast = ErrorEstimate(np.zeros(6), np.ones(6))
    >>> binned = BinnedConformal(alpha=0.5, edges=(10.0,))
    >>> fitted = binned.fit(forecast, [1.0, 1, 1, 4, 4, 4], groups=[1, 2, 3, 11, 12, 13])
    >>> fitted.factors
    (1.0, 4.0)
    """

    alpha: float = 0.1
    bins: int = 10
    edges: tuple[float, ...] | None = None
    side: Side = "both"
    bounds: Bounds = UNBOUNDED

    def fit(self, forecast: Forecast, human: ArrayLike, groups: ArrayLike) -> FittedGrouped:
        """Calibrate on forecasts with human scores and the number of each row."""
        values = np.asarray(groups, dtype=np.float64)
        if values.shape != (len(forecast),):
            raise InputError(f"{values.size} numbers to bin by for {len(forecast)} forecasts")
        if self.bins < 1:
            raise InputError(f"the number of bins must be positive, found {self.bins}")
        edges = self.edges
        if edges is None:
            edges = equal_count_edges(values, self.bins, smallest_calibration(self.alpha))
        elif list(edges) != sorted(set(edges)):
            raise InputError("the edges of bins must increase")
        cells = Bins(edges)
        codes = cells.codes(values)
        if self.edges is None:
            codes = np.where(_first_of_each(values, edges), -1, codes)
        # Fixed edges may leave a bin too small for alpha: its rows are then unbounded, and flagged.
        method = GroupedConformal(self.alpha, self.side, self.bounds, unseen="unbounded", small="unbounded")
        return method.fit_cells(forecast, human, cells, codes)


def _first_of_each(values: Floats, edges: tuple[float, ...]) -> np.ndarray:
    """Mark, for every edge, one row that has its value."""
    mask = np.zeros(len(values), dtype=bool)
    for edge in edges:
        mask[int(np.argmax(values == edge))] = True
    return mask
