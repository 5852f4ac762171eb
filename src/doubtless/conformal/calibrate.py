"""From a table of forecasts with human scores to a calibration, and on to intervals for new tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from doubtless.conformal.binned import BinnedConformal
from doubtless.conformal.ece import EceCalibration
from doubtless.conformal.exchangeability import Exchangeability, exchangeability
from doubtless.conformal.grouped import FittedGrouped, GroupedConformal, Policy
from doubtless.conformal.leakage import Sketch
from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import UNBOUNDED, Bounds, Side, SplitConformal, nonconformity
from doubtless.conformal.store import Calibration, Fitted, Reading, Reference, row_hashes
from doubtless.conformal.weighted import WeightedConformal
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
    unseen, small
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
    bins: int = 10
    edges: tuple[float, ...] | None = None
    distribution: bool = False

    def calibrate(self, table: Table, reading: Reading, human: str = "human") -> Calibration:
        """Calibrate on the rows of a table that have a human score."""
        conditions = [name for name in ("by", "bins", "weights") if getattr(reading, name)]
        if len(conditions) > 1:
            raise InputError(f"{' and '.join(conditions)} exclude each other: calibrate by one of them")
        table, y = with_human(table, human)
        forecast = reading.columns.read(table, self.alpha)
        fitted = self._fit(table, forecast, y, reading)
        scores = nonconformity(forecast, y, self.alpha, self.side)
        reference = Reference.of(forecast, scores, self.alpha)
        sketched = tuple(name for name in ("src", "mt", "ref") if table.has(name))
        sketch = Sketch.of(row_hashes(table, sketched)) if sketched else None
        distribution = self._distribution(table, forecast, y, reading, fitted) if self.distribution else None
        return Calibration(fitted, reading, human, reference, sketch, sketched, distribution)

    def _fit(self, table: Table, forecast: Forecast, y: Floats, reading: Reading) -> Fitted:
        condition = reading.condition(table, forecast, self.alpha)
        if self.method == "ece":
            if condition is not None or self.side != "both":
                raise InputError("the ece method knows neither groups, bins, weights nor one-sided intervals")
            return EceCalibration(self.alpha, self.bounds).fit(forecast, y)
        if self.method != "conformal":
            raise InputError(f"unknown method '{self.method}', expected conformal or ece")
        if reading.by:
            grouped = GroupedConformal(self.alpha, self.side, self.bounds, self.unseen, self.small)
            return grouped.fit(forecast, y, condition)
        if reading.bins:
            binned = BinnedConformal(self.alpha, self.bins, self.edges, self.side, self.bounds)
            return binned.fit(forecast, y, condition)
        if reading.weights:
            return WeightedConformal(self.alpha, self.side, self.bounds).fit(forecast, y, condition)
        return SplitConformal(self.alpha, self.side, self.bounds).fit(forecast, y)

    def _distribution(
        self, table: Table, forecast: Forecast, y: Floats, reading: Reading, fitted: Fitted
    ) -> PredictiveDistribution:
        if reading.weights:
            raise InputError("a weighted calibration has no predictive distribution")
        if not isinstance(fitted, FittedGrouped):
            return PredictiveDistribution.fit(forecast, y, self.alpha)
        groups = reading.condition(table, forecast, self.alpha)
        return PredictiveDistribution.fit(forecast, y, self.alpha, groups, fitted.cells, fitted.unseen)


def with_human(table: Table, human: str) -> tuple[Table, Floats]:
    """Keep the rows that have a human score, and return the scores."""
    y = table.numbers(human, missing=True)
    present = ~np.isnan(y)
    if not present.any():
        raise InputError(f"{table.name}: no row has a number in column '{human}'")
    return (table, y) if present.all() else (table.take(present), y[present])


@dataclass(frozen=True)
class Applied:
    """A table with intervals, and what its reader should know."""

    frame: pl.DataFrame
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
) -> Applied:
    """Add intervals to a table: columns ``score``, ``lower``, ``upper``, ``flags`` (and ``chance_below_T``).

    With ``human``, the coverage is measured and exchangeability is tested on the errors; otherwise on the
    predicted scores and uncertainties.
    """
    forecast = calibration.forecast(table)
    intervals = calibration.intervals(table, forecast)
    columns = {
        "score": forecast.score,
        "lower": intervals.lower,
        "upper": intervals.upper,
        "flags": _flags(intervals.unbounded, intervals.fallback),
    }
    for threshold in below:
        columns[f"chance_below_{threshold:g}"] = calibration.chance_below(table, forecast, threshold)
    if calibration.reading.columns.score == "score" and not prefix:
        del columns["score"]  # it is there already
    new = pl.DataFrame({prefix + name: values for name, values in columns.items()})
    for name in new.columns:
        if name in table.frame.columns:
            raise InputError(
                f"{table.name}: there is a column '{name}' already (choose a prefix for the new ones)"
            )
    y = None if human is None else table.numbers(human, missing=True)
    scored = None if y is None else ~np.isnan(y)
    covered = None
    if y is not None and scored is not None and scored.any():
        covered = float(intervals.covers(y)[scored].mean())
    warnings = _warnings(calibration, table, forecast, y, int(intervals.unbounded.sum()))
    return Applied(table.frame.hstack(new), covered, float(intervals.width.mean()), warnings)


def _flags(unbounded: np.ndarray, fallback: np.ndarray) -> pl.Series:
    """Words, in a row, for what is not as it should be."""
    names = np.array(["", "too-few-calibration-rows", "other-group", "too-few-calibration-rows"])
    # An unbounded fallback row is unbounded by policy; a bounded one borrowed the pooled factor.
    return pl.Series(names[unbounded.astype(int) + 2 * (fallback & ~unbounded)])


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
        said.append(f"{unbounded} of {len(table)} intervals are unbounded: too few calibration rows")
    for what, verdict in drift(calibration, forecast, y).items():
        if verdict.rejected():
            said.append(
                f"the {what} of these rows do not look like those of the calibration rows"
                f" (p = {verdict.p_value:.1g}, clearest at row {verdict.row}): the promised rate may not hold"
            )
    return said


def drift(
    calibration: Calibration, forecast: Forecast, y: Floats | None = None
) -> dict[str, Exchangeability]:
    """Test whether a table looks like the calibration rows: by its errors if known, else by its inputs."""
    reference, alpha = calibration.reference, calibration.fitted.alpha
    side: Side = getattr(calibration.fitted, "side", "both")
    if y is not None and not np.isnan(y).all():
        known = ~np.isnan(y)
        scores = nonconformity(forecast[known], y[known], alpha, side)
        return {"errors": exchangeability(reference.nonconformity, scores)}
    found = {"scores": exchangeability(reference.score, forecast.score)}
    uncertainty = forecast.uncertainty(alpha)
    if np.ptp(reference.uncertainty) or np.ptp(uncertainty):
        found["uncertainties"] = exchangeability(reference.uncertainty, uncertainty)
    return found
