"""Equalised conformal prediction by category (Zerva & Martins 2024, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    conformal_quantile,
    nonconformity,
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
        series = _series(values)
        return cls(tuple(series.unique().sort().to_list()))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as strings."""
        return tuple(str(label) for label in self.labels)

    def codes(self, values: Any) -> Codes:
        """Position of each value among the labels; -1 for one that is not there."""
        array = values if isinstance(values, np.ndarray) else None
        if array is not None and array.dtype.kind in "iu" and self._dense():
            return self._lookup(array)
        series = _series(values)
        if self.labels and isinstance(self.labels[0], str):
            found = series.cast(pl.String).cast(pl.Enum(list(self.names)), strict=False).to_physical()
        else:
            position = {label: i for i, label in enumerate(self.labels)}
            found = series.replace_strict(position, default=None, return_dtype=pl.Int64)
        return found.cast(pl.Int64).fill_null(-1).to_numpy()

    def _dense(self) -> bool:
        return bool(self.labels) and isinstance(self.labels[0], int) and self._span() <= _TABLE_SIZE

    def _span(self) -> int:
        return int(self.labels[-1]) - int(self.labels[0]) + 1

    def _lookup(self, array: np.ndarray) -> Codes:
        first, span = int(self.labels[0]), self._span()
        table = np.full(span + 1, -1, dtype=np.int64)
        table[np.asarray(self.labels, dtype=np.int64) - first] = np.arange(len(self.labels))
        offset = array - first if array.dtype.kind == "i" else array.astype(np.int64) - first
        # Everything outside the table shares its last place, which holds -1.
        inside = (offset >= 0) & (offset < span)
        return table[offset if inside.all() else np.where(inside, offset, span)]


def _series(values: Any) -> pl.Series:
    series = values if isinstance(values, pl.Series) else pl.Series(values=np.asarray(values))
    if (
        series.dtype == pl.Categorical
        or series.dtype == pl.Enum
        or not (series.dtype.is_integer() or series.dtype == pl.String)
    ):
        series = series.cast(pl.String)
    if series.null_count():
        raise InputError(f"the group in row {int(series.is_null().arg_max() or 0) + 1} is missing")
    return series


def by_cell(values: Floats, codes: Codes, cells: int) -> list[Floats]:
    """Split values by cell, in one stable pass; codes of -1 are left out."""
    small = codes.astype(np.int16) if cells < 2**15 else codes
    order = np.argsort(small, kind="stable")  # a radix sort on 16-bit codes
    ends = np.cumsum(np.bincount(codes + 1, minlength=cells + 1))
    arranged = values[order]
    return [arranged[ends[i] : ends[i + 1]] for i in range(cells)]


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

    def __post_init__(self) -> None:
        SplitConformal(self.alpha, self.side, self.bounds)
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
        parts = by_cell(scores, codes, len(cells.names))
        factors = [conformal_quantile(part, self.alpha) for part in parts]
        if self.small == "error":
            self._refuse_small(cells, parts)
        return FittedGrouped(
            alpha=self.alpha,
            cells=cells,
            factors=tuple(factors),
            counts=tuple(len(part) for part in parts),
            pooled=conformal_quantile(scores, self.alpha),
            n=len(scores),
            side=self.side,
            bounds=self.bounds,
            unseen=self.unseen,
            small=self.small,
        )

    def _refuse_small(self, cells: Cells, parts: list[Floats]) -> None:
        needed = smallest_calibration(self.alpha)
        for name, part in zip(cells.names, parts, strict=True):
            if len(part) < needed:
                raise InputError(
                    f"group '{name}' has {len(part)} calibration rows, but alpha {self.alpha} needs {needed}"
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
    kind: str = field(default="grouped", init=False)

    def intervals(self, forecast: Forecast, groups: Any) -> Intervals:
        """Return the interval of each new segment, given its group (or the number that is binned)."""
        codes = self.cells.codes(groups)
        if len(codes) != len(forecast):
            raise InputError(f"{len(codes)} groups for {len(forecast)} forecasts")
        unknown = codes < 0
        if self.unseen == "error" and unknown.any():
            row = int(unknown.argmax())
            label = pl.Series(values=groups)[row] if not isinstance(groups, pl.Series) else groups[row]
            raise InputError(
                f"group '{label}' in row {row + 1} was not calibrated"
                " (choose what to do with unseen groups: pooled or unbounded)"
            )
        # The last place serves unseen groups, to which code -1 points.
        table = np.array([*(self._factor(f) for f in self.factors), self._policy(self.unseen)])
        fell = np.array([*(isinf(f) for f in self.factors), True])
        fallback = fell[codes] if fell[:-1].any() or unknown.any() else np.zeros(len(codes), dtype=bool)
        return widen(forecast, table[codes], self.alpha, self.side, self.bounds, fallback)

    def _factor(self, factor: float) -> float:
        return self._policy(self.small) if isinf(factor) else factor

    def _policy(self, policy: Policy) -> float:
        return self.pooled if policy == "pooled" else inf
