"""From a table of forecasts with human scores to a calibration, and on to intervals for new tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from doubtless.conformal.binned import BinnedConformal
from doubtless.conformal.ece import EceCalibration
from doubtless.conformal.exchangeability import Exchangeability, exchangeability
from doubtless.conformal.grouped import FittedGrouped, GroupedConformal, Policy
from doubtless.conformal.leakage import Sketch
from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import UNBOUNDED, Bounds, Intervals, Side, SplitConformal, nonconformity
from doubtless.conformal.store import Calibration, Fitted, Reading, Reference, adaptations, row_hashes
from doubtless.conformal.weighted import FittedWeighted, WeightedConformal
from doubtless.errors import InputError
from doubtless.forecast import Forecast
from doubtless.segments import Floats, Table

Method = Literal["conformal", "ece"]


@dataclass(frozen=True)
class CalibrationPlan:
    """How to calibrate; the columns of ``reading`` decide between split, grouped, binned and weighted.

    Parameters
    ----------
    alpha, side, bounds
        As in :class:`~doubtless.conformal.split.SplitConformal`.
    method
        ``conformal``, or ``ece`` for the affine calibration of the variance.
    unseen, small, borrow
        Policies of :class:`~doubtless.conformal.grouped.GroupedConformal`.
    bins, edges
        As in :class:`~doubtless.conformal.binned.BinnedConformal`.
    distribution
        Keep all calibration residuals, so that the chance of any event can be asked for.
    """

    alpha: float = 0.1
    method: Method = "conformal"
    side: Side = "both"
    bounds: Bounds = UNBOUNDED
    unseen: Policy = "error"
    small: Policy = "error"
    borrow: float = 0.0
    bins: int = 10
    edges: tuple[float, ...] | None = None
    distribution: bool = False

    def __post_init__(self) -> None:
        self._grouped()
        if self.method not in ("conformal", "ece"):
            raise InputError(f"unknown method '{self.method}', expected conformal or ece")

    def check(self, reading: Reading) -> None:
        """Refuse a plan that contradicts itself, before any table is read."""
        conditions = [name for name in ("by", "bins", "weights") if getattr(reading, name)]
        if len(conditions) > 1:
            raise InputError(f"{' and '.join(conditions)} exclude each other: calibrate by one of them")
        if self.method == "ece" and (conditions or self.side != "both"):
            raise InputError("the ece method knows neither groups, bins, weights nor one-sided intervals")
        if self.method == "ece" and not reading.columns.has_uncertainty:
            raise InputError("the ece method calibrates an uncertainty, and a score alone has none")
        if self.distribution and reading.weights:
            raise InputError("a weighted calibration has no predictive distribution")
        if not reading.by and (self.unseen, self.small, self.borrow) != ("error", "error", 0):
            raise InputError("policies for unseen and small groups, and borrowing, need groups (--by)")
        if self.distribution and self.borrow:
            raise InputError("groups that borrow have no predictive distribution of their own")

    def calibrate(self, table: Table, reading: Reading, human: str = "human") -> Calibration:
        """Calibrate on the rows of a table that have a human score."""
        self.check(reading)
        table, y = with_human(table, human, self.bounds)
        forecast = reading.columns.read(table, self.alpha)
        fitted = self._fit(table, forecast, y, reading)
        scores = nonconformity(forecast, y, self.alpha, self.side)
        # Without both texts, rows that merely share a short source would count as the same.
        sketched = ("src", "mt") if table.has("src") and table.has("mt") else ()
        sketch = Sketch.of(row_hashes(table, sketched)) if sketched else None
        distribution = self._distribution(table, forecast, y, reading, fitted) if self.distribution else None
        ways = tuple(adaptations(table).unique().sort())
        bare = Calibration(fitted, reading, human, None, sketch, sketched, distribution, ways)
        cells = bare.cells(table, forecast)
        return replace(bare, reference=Reference.of(forecast, scores, self.alpha, cells))

    def _grouped(self) -> GroupedConformal:
        return GroupedConformal(self.alpha, self.side, self.bounds, self.unseen, self.small, self.borrow)

    def _fit(self, table: Table, forecast: Forecast, y: Floats, reading: Reading) -> Fitted:
        condition = reading.condition(table, forecast, self.alpha)
        if self.method == "ece":
            return EceCalibration(self.alpha, self.bounds).fit(forecast, y)
        if reading.by:
            return self._grouped().fit(forecast, y, condition)
        if reading.bins:
            binned = BinnedConformal(self.alpha, self.bins, self.edges, self.side, self.bounds)
            return binned.fit(forecast, y, condition)
        if reading.weights:
            return WeightedConformal(self.alpha, self.side, self.bounds).fit(forecast, y, condition)
        return SplitConformal(self.alpha, self.side, self.bounds).fit(forecast, y)

    def _distribution(
        self, table: Table, forecast: Forecast, y: Floats, reading: Reading, fitted: Fitted
    ) -> PredictiveDistribution:
        if not isinstance(fitted, FittedGrouped):
            return PredictiveDistribution.fit(forecast, y, self.alpha)
        groups = reading.condition(table, forecast, self.alpha)
        policies = {"unseen": fitted.unseen, "small": fitted.small}
        return PredictiveDistribution.fit(forecast, y, self.alpha, groups, fitted.cells, **policies)


def with_human(table: Table, human: str, bounds: Bounds = UNBOUNDED) -> tuple[Table, Floats]:
    """Keep the rows that have a human score, which must lie in the declared range; return the scores."""
    y = table.numbers(human, missing=True)
    present = ~np.isnan(y)
    if not present.any():
        raise InputError(f"{table.name}: no row has a number in column '{human}'")
    outside = present & ((y < bounds[0]) | (y > bounds[1]))
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"{table.place(row)}: '{human}' is {y[row]:g},"
            f" outside the declared range {bounds[0]:g} to {bounds[1]:g}"
        )
    return (table, y) if present.all() else (table.take(present), y[present])


@dataclass(frozen=True)
class Applied:
    """A table with intervals, and what its reader should know."""

    frame: pl.DataFrame
    score: Floats
    intervals: Intervals
    coverage: float | None
    width: float
    warnings: list[str] = field(default_factory=list)


def apply(
    calibration: Calibration,
    table: Table,
    *,
    below: Sequence[float] = (),
    human: str | None = None,
    prefix: str = "",
    keep_score: bool = False,
) -> Applied:
    """Add intervals to a table: columns ``score``, ``lower``, ``upper``, ``flags`` (and ``chance_below_T``).

    With ``human``, the coverage is measured and exchangeability is tested on the errors; otherwise on the
    predicted scores and uncertainties. ``keep_score`` leaves a column ``score`` that is there as it is.
    """
    forecast = calibration.forecast(table)
    intervals = calibration.intervals(table, forecast)
    columns: dict[str, Any] = {
        "score": forecast.score,
        "lower": intervals.lower,
        "upper": intervals.upper,
        "flags": _flags(intervals),
    }
    for threshold in below:
        if not np.isfinite(threshold):
            raise InputError(f"a threshold must be a finite number, found {threshold}")
        chance = calibration.chance_below(table, forecast, threshold)
        columns[f"chance_below_{threshold:g}"] = pl.Series(chance).fill_nan(None)
    if keep_score or (calibration.reading.columns.score == "score" and not prefix):
        del columns["score"]  # it is there already
    new = pl.DataFrame({prefix + name: values for name, values in columns.items()})
    table.check_free(new.columns, "choose a prefix for the new ones")
    y = None if human is None else table.numbers(human, missing=True)
    scored = None if y is None else ~np.isnan(y)
    covered = None
    if y is not None and scored is not None and scored.any():
        covered = float(intervals.covers(y)[scored].mean())
    warnings = _warnings(calibration, table, forecast, y, int(intervals.unbounded.sum()))
    width = float(intervals.width.mean())
    return Applied(table.frame.hstack(new), forecast.score, intervals, covered, width, warnings)


def _flags(intervals: Intervals) -> pl.Series:
    """A word for each row on what its interval lacks."""
    words = pl.Series(["", "too-few-calibration-rows", "small-group", "unseen-group"])
    lacks = np.where(intervals.small, 2, intervals.unbounded)
    return words.gather(np.where(intervals.unseen, 3, lacks))


def _warnings(
    calibration: Calibration, table: Table, forecast: Forecast, y: Floats | None, unbounded: int
) -> list[str]:
    said = []
    again = calibration.rows_seen_again(table)
    if again:
        said.append(
            f"{again} of {len(table)} rows took part in the calibration:"
            " the promised rate does not hold for them"
        )
    if unbounded:
        said.append(f"{unbounded} of {len(table)} intervals are unbounded (their flags say why)")
    for what, verdict in drift(calibration, table, forecast, y).items():
        if verdict.rejected():
            said.append(
                f"the {what} of these rows do not look like those of the calibration rows"
                f" (p = {verdict.p_value:.1g}): the promised rate may not hold"
            )
    return said


def drift(
    calibration: Calibration, table: Table, forecast: Forecast, y: Floats | None = None, seed: int = 0
) -> dict[str, Exchangeability]:
    """Test whether a table, as a set, looks like the calibration rows.

    The test is on the errors where they are known, else on scores and uncertainties. Rows are compared
    within their group or bin and in random order, since tables are often sorted. A weighted calibration
    expects other inputs, so that there is nothing to test.
    """
    reference = calibration.reference
    if reference is None or isinstance(calibration.fitted, FittedWeighted):
        return {}
    alpha = calibration.fitted.alpha
    order = np.random.default_rng(seed).permutation(len(forecast))
    columns: dict[str, tuple[Floats, Floats]]
    if y is not None and not np.isnan(y).all():
        order = order[~np.isnan(y[order])]
        side: Side = getattr(calibration.fitted, "side", "both")
        scores = nonconformity(forecast[order], y[order], alpha, side)
        columns = {"errors": (reference.nonconformity, scores)}
    else:
        columns = {
            "scores": (reference.score, forecast.score[order]),
            "uncertainties": (reference.uncertainty, forecast.uncertainty(alpha)[order]),
        }
    cells = reference.cell.astype(np.int64), calibration.cells(table, forecast)[order]
    return {
        what: exchangeability(known, new, seed, cells)
        for what, (known, new) in columns.items()
        if np.ptp(known) or np.ptp(new)
    }
