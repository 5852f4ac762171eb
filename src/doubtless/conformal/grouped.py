"""Equalised conformal prediction by category (Zerva & Martins 2024, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isinf
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from doubtless.conformal.split import (
    UNBOUNDED,
    Bounds,
    Floats,
    Intervals,
    Side,
    SplitConformal,
    at_rank,
    conformal_quantile,
    exact,
    nonconformity,
    rank,
    smallest_calibration,
    widen,
)
from doubtless.errors import InputError
from doubtless.forecast import Forecast

Policy = Literal["error", "pooled", "unbounded"]
POLICIES = ("error", "pooled", "unbounded")
Codes = np.ndarray[Any, np.dtype[np.int64]]

_TABLE_SIZE = 1 << 16


class Cells(Protocol):
    """A partition of the segments: each belongs to one cell, or to none that is known (-1)."""

    @property
    def names(self) -> tuple[str, ...]:
        """What messages and tables call the cells."""
        ...

    def codes(self, values: Any) -> Codes:
        """The cell of each value."""
        ...


@dataclass(frozen=True)
class Categories:
    """Cells named by labels: language pairs, systems, domains.

    >>> Categories.of(["en-de", "en-fr", "en-de"]).codes(["en-fr", "fr-en"]).tolist()
    [1, -1]
    """

    labels: tuple[str, ...] | tuple[int, ...]

    @classmethod
    def of(cls, values: Any) -> Categories:
        """The distinct labels, sorted."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and len(values):
            first, last = int(values.min()), int(values.max())
            if last - first < _TABLE_SIZE:
                found = np.flatnonzero(np.bincount(values - first if first else values))
                return cls(tuple((found + first).tolist()))
        return cls(tuple(_series(values).unique().sort().to_list()))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as strings."""
        return tuple(str(label) for label in self.labels)

    def codes(self, values: Any) -> Codes:
        """Position of each value among the labels; -1 for one that is not there."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and self._are_small_integers():
            return self._looked_up(values)
        series = _series(values)
        if self.labels and isinstance(self.labels[0], str):
            found = series.cast(pl.String).cast(pl.Enum(list(self.names)), strict=False).to_physical()
        else:
            position = {label: i for i, label in enumerate(self.labels)}
            found = series.replace_strict(position, default=None, return_dtype=pl.Int64)
        return found.cast(pl.Int64).fill_null(-1).to_numpy()

    def _are_small_integers(self) -> bool:
        if not (self.labels and isinstance(self.labels[0], int)):
            return False
        return int(self.labels[-1]) - int(self.labels[0]) < _TABLE_SIZE

    def _looked_up(self, values: np.ndarray) -> Codes:
        """Codes of integers by a table, or without one where the labels are 0, 1, 2, …"""
        if not len(values):
            return np.empty(0, dtype=np.int64)
        first, last = int(self.labels[0]), int(self.labels[-1])
        inside = first <= values.min() and values.max() <= last
        if inside and first == 0 and len(self.labels) == last + 1:
            return values.astype(np.int64, copy=False)
        table = np.full(last - first + 2, -1, dtype=np.int64)
        table[np.asarray(self.labels, dtype=np.int64) - first] = np.arange(len(self.labels))
        offset = values.astype(np.int64) - first
        if not inside:  # everything outside shares the last place, which holds -1
            offset = np.where((offset >= 0) & (offset <= last - first), offset, last - first + 1)
        return table[offset]


def _series(values: Any) -> pl.Series:
    series = values if isinstance(values, pl.Series) else pl.Series(values=np.asarray(values))
    if not (series.dtype.is_integer() or series.dtype == pl.String):
        series = series.cast(pl.String)
    if series.null_count():
        raise InputError(f"the group in row {int(series.is_null().arg_max() or 0) + 1} is missing")
    return series


def by_cell(values: Floats, codes: Codes, cells: int) -> list[Floats]:
    """Split values by cell, in one stable pass; codes of -1 are left out."""
    # numpy sorts small integers by counting: codes one up, so that -1 fits in too.
    small = (codes + 1).astype(np.uint8 if cells < 2**8 else np.uint16) if cells < 2**16 else codes
    arranged = values[np.argsort(small, kind="stable")]
    ends = np.cumsum(np.bincount(codes + 1, minlength=cells + 1))
    return [arranged[ends[i] : ends[i + 1]] for i in range(cells)]


def cell_quantiles(
    scores: Floats, codes: Codes, cells: int, alpha: float
) -> tuple[list[float], list[int], float]:
    """The conformal quantile and the size of each cell, and the quantile of all scores.

    A cell's quantile nearly always lies among the largest 2 alpha of all scores, so that only these are
    sorted into cells; a cell in which it does not is looked at whole.
    """
    level = exact(alpha)
    known = codes if codes.min(initial=0) >= 0 else codes[codes >= 0]
    counts = np.bincount(known, minlength=cells).tolist()
    n, k = len(scores), rank(len(scores), level)
    start = max(n - int(2 * level * n), 0)  # how many scores lie below the part that is looked at
    ordered = scores.copy()
    # One place at a time: numpy's fast selection knows no list of places.
    if 0 < start < n:
        ordered.partition(start - 1)
    tail = ordered[start:] if k > start else ordered
    pooled = at_rank(tail, k - (start if k > start else 0))
    if start > 0:
        large = np.flatnonzero(scores > ordered[start - 1])
        parts = by_cell(scores[large], codes[large], cells)
    else:
        parts = by_cell(scores, codes, cells)
    found = []
    for cell, (part, size) in enumerate(zip(parts, counts, strict=True)):
        within = rank(size, level) - (size - len(part))  # the smaller scores are not in the part
        found.append(
            at_rank(part, within) if within > 0 else conformal_quantile(scores[codes == cell], alpha)
        )
    return found, counts, pooled


@dataclass(frozen=True)
class GroupedConformal:
    """Calibrate each group by its own rows, so that the promise holds within every group.

    Parameters
    ----------
    alpha, side, bounds
        As in :class:`~doubtless.conformal.split.SplitConformal`.
    unseen
        What to do with a new segment of a group without calibration rows: ``error``, use the ``pooled``
        factor of all groups (the promise then holds on average only), or leave it ``unbounded``.
    small
        The same for a group with fewer calibration rows than alpha needs.
    borrow
        Share of the pooled factor in the factor of each group. A group's own factor is a quantile of few
        rows, often of few documents, and so has much chance in it; where groups differ less than that, their
        coverage comes nearer to what was asked by borrowing. The promise within groups then is a guess.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> forecast = Gaussian(np.zeros(4), np.ones(4))
    >>> fitted = GroupedConformal(alpha=0.5).fit(forecast, [1.0, 1, 3, 3], groups=["a", "a", "b", "b"])
    >>> fitted.intervals(forecast[:2], groups=["b", "a"]).upper.round(6)
    array([3., 1.])
    """

    alpha: float = 0.1
    side: Side = "both"
    bounds: Bounds = UNBOUNDED
    unseen: Policy = "error"
    small: Policy = "error"
    borrow: float = 0.0

    def __post_init__(self) -> None:
        SplitConformal(self.alpha, self.side, self.bounds)
        if not 0 <= self.borrow <= 1:
            raise InputError(f"what groups borrow lies between 0 and 1, found {self.borrow}")
        for policy in (self.unseen, self.small):
            if policy not in POLICIES:
                raise InputError(f"a policy is one of {', '.join(POLICIES)}, found '{policy}'")

    def fit(self, forecast: Forecast, human: ArrayLike, groups: Any) -> FittedGrouped:
        """Calibrate on forecasts with human scores and the group of each row."""
        cells = Categories.of(groups)
        codes = cells.codes(groups)
        if len(codes) != len(forecast):
            raise InputError(f"{len(codes)} groups for {len(forecast)} forecasts")
        return self.fit_cells(forecast, human, cells, codes)

    def fit_cells(self, forecast: Forecast, human: ArrayLike, cells: Cells, codes: Codes) -> FittedGrouped:
        """Calibrate within the cells of any partition; rows of cell -1 only take part in the pool."""
        scores = nonconformity(forecast, human, self.alpha, self.side)
        factors, counts, pooled = cell_quantiles(scores, codes, len(cells.names), self.alpha)
        if self.small == "error":
            self._refuse_small(cells, counts)
        return FittedGrouped(
            alpha=self.alpha,
            cells=cells,
            factors=tuple(self._mixed(factor, pooled) for factor in factors),
            counts=tuple(counts),
            pooled=pooled,
            n=len(scores),
            side=self.side,
            bounds=self.bounds,
            unseen=self.unseen,
            small=self.small,
            borrow=self.borrow,
        )

    def _mixed(self, own: float, pooled: float) -> float:
        return own if isinf(own) or not self.borrow else (1 - self.borrow) * own + self.borrow * pooled

    def _refuse_small(self, cells: Cells, counts: list[int]) -> None:
        needed = smallest_calibration(self.alpha)
        for name, n in zip(cells.names, counts, strict=True):
            if n < needed:
                raise InputError(
                    f"group '{name}' has {n} calibration rows, but alpha {self.alpha} needs {needed}"
                    " (choose what to do with small groups: pooled or unbounded)"
                )


@dataclass(frozen=True)
class FittedGrouped:
    """Calibrated factors, one a group, and the pooled one."""

    alpha: float
    cells: Cells
    factors: tuple[float, ...]
    counts: tuple[int, ...]
    pooled: float
    n: int
    side: Side = "both"
    bounds: Bounds = UNBOUNDED
    unseen: Policy = "error"
    small: Policy = "error"
    borrow: float = 0.0
    kind: str = field(default="grouped", init=False)

    def intervals(self, forecast: Forecast, groups: Any) -> Intervals:
        """Return the interval of each new segment, given its group (or the number that is binned)."""
        codes = self.cells.codes(groups)
        if len(codes) != len(forecast):
            raise InputError(f"{len(codes)} groups for {len(forecast)} forecasts")
        unknown = bool(len(codes)) and bool(codes.min() < 0)
        if unknown and self.unseen == "error":
            row = int((codes < 0).argmax())
            raise InputError(
                f"group '{pl.Series(groups)[row]}' in row {row + 1} was not calibrated"
                " (choose what to do with unseen groups: pooled or unbounded)"
            )
        # The last place serves unseen groups, to which code -1 points.
        factors = np.array([*(self._factor(f) for f in self.factors), self._policy(self.unseen)])
        found = widen(forecast, factors, self.alpha, self.side, self.bounds, cells=codes)
        small = np.array([*(isinf(f) for f in self.factors), False])
        if unknown:
            found = replace(found, unseen=codes < 0)
        return replace(found, small=small[codes]) if small.any() else found

    def describe(self) -> list[tuple[str, int, float, bool]]:
        """Name, rows, factor in force and whether that is by policy, of each group."""
        return [
            (name, n, self._factor(factor), isinf(factor))
            for name, n, factor in zip(self.cells.names, self.counts, self.factors, strict=True)
        ]

    def _factor(self, factor: float) -> float:
        return self._policy(self.small) if isinf(factor) else factor

    def _policy(self, policy: Policy) -> float:
        return self.pooled if policy == "pooled" else inf
