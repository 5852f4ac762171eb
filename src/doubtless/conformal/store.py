"""Calibration files: readable JSON that says how to read a table and how to widen its forecasts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np
import polars as pl

import doubtless
from doubtless.columns import ForecastColumns, attribute
from doubtless.conformal.binned import Bins
from doubtless.conformal.ece import FittedEce
from doubtless.conformal.grouped import Categories, Cells, FittedGrouped, GroupedConformal
from doubtless.conformal.leakage import Hashes, Sketch, fingerprints
from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import Bounds, FittedSplit, Floats, Intervals, SplitConformal
from doubtless.conformal.weighted import FittedWeighted
from doubtless.errors import InputError
from doubtless.forecast import Forecast
from doubtless.formats.documents import Document
from doubtless.segments import Table

Fitted = FittedSplit | FittedGrouped | FittedWeighted | FittedEce

DOCUMENT = Document("doubtless calibration", 1, "calibration file")
REFERENCE_ROWS = 1_000
NOT_ADAPTED = ""


@dataclass(frozen=True)
class Reading:
    """Which columns a calibration reads: the forecast, the group, the number to bin by, the weight."""

    columns: ForecastColumns
    by: tuple[str, ...] = ()
    bins: str | None = None
    weights: str | None = None

    @property
    def names(self) -> set[str]:
        """All columns that are read."""
        single = [name for name in (self.bins, self.weights) if name and not name.startswith("@")]
        text = {"src"} if self.bins == "@source-length" else set()
        return self.columns.names | set(self.by) | set(single) | text

    def condition(self, table: Table, forecast: Forecast, alpha: float) -> Any:
        """What the calibrator asks for besides the forecast: groups, numbers or weights."""
        if self.by:
            return table.labels(self.by)
        if self.bins:
            return attribute(table, forecast, self.bins, alpha)
        if self.weights:
            return table.numbers(self.weights)
        return None


@dataclass(frozen=True, eq=False)
class Reference:
    """A random sample of calibration rows, to tell later whether new ones still look like them."""

    score: Floats
    uncertainty: Floats
    nonconformity: Floats
    cell: Floats

    @classmethod
    def of(
        cls, forecast: Forecast, nonconformity: Floats, alpha: float, cell: np.ndarray, seed: int = 0
    ) -> Reference:
        """Sample at most 1,000 rows; a sample of exchangeable rows is exchangeable."""
        rows = np.random.default_rng(seed).permutation(len(forecast))[:REFERENCE_ROWS]
        columns = (forecast.score, forecast.uncertainty(alpha), nonconformity, cell.astype(np.float64))
        return cls(*(column[rows] for column in columns))


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted calibrator with all that is needed to apply it to another table.

    ``adaptations`` are the ways in which the scores of its rows had been adapted to their systems.
    """

    fitted: Fitted
    reading: Reading
    human: str
    reference: Reference | None
    sketch: Sketch | None = None
    sketched: tuple[str, ...] = ()
    distribution: PredictiveDistribution | None = None
    adaptations: tuple[str, ...] = (NOT_ADAPTED,)

    def forecast(self, table: Table) -> Forecast:
        """Read the forecast of a table."""
        return self.reading.columns.read(table, self.fitted.alpha)

    def intervals(self, table: Table, forecast: Forecast) -> Intervals:
        """Return the intervals of a table's rows."""
        self._refuse_otherwise_adapted(table)
        condition = self.reading.condition(table, forecast, self.fitted.alpha)
        if isinstance(self.fitted, FittedGrouped) and self.fitted.unseen == "error":
            unknown = self.fitted.cells.codes(condition) < 0
            if unknown.any():
                row = int(unknown.argmax())
                raise InputError(
                    f"{table.place(row)}: group '{condition[row]}' was not calibrated"
                    " (calibrate with --unseen pooled or --unseen unbounded to allow new groups)"
                )
        return self.fitted.intervals(forecast, condition)

    def _refuse_otherwise_adapted(self, table: Table) -> None:
        ways = adaptations(table)
        other = ~ways.is_in(list(self.adaptations))
        if other.any():
            row = int(other.arg_max() or 0)
            raise InputError(
                f"{table.place(row)}: the score is {_adapted(ways[row])}, those of the calibration are"
                f" {_adapted(self.adaptations[0])}: calibrate on rows that were scored in the same way"
            )

    def cells(self, table: Table, forecast: Forecast) -> np.ndarray:
        """The number of the group or bin of each row; 0 for all where there are none."""
        if not isinstance(self.fitted, FittedGrouped):
            return np.zeros(len(forecast), dtype=np.int64)
        return self.fitted.cells.codes(self.reading.condition(table, forecast, self.fitted.alpha))

    def chance_below(self, table: Table, forecast: Forecast, threshold: float) -> Floats:
        """The chance that the human score of each row is below a threshold."""
        if self.distribution is None:
            raise InputError(
                "the calibration holds no predictive distribution (calibrate with --distribution)"
            )
        low, high = self.fitted.bounds
        if threshold <= low or threshold > high:  # no human score lies outside the declared range
            return np.full(len(forecast), float(threshold > high))
        condition = self.reading.condition(table, forecast, self.fitted.alpha)
        return self.distribution.chance_below(forecast, threshold, condition)

    def rows_seen_again(self, table: Table) -> int:
        """Count (or estimate) the rows of a table that took part in the calibration."""
        if self.sketch is None or not all(table.has(name) for name in self.sketched):
            return 0
        return self.sketch.seen_again(row_hashes(table, self.sketched))

    @property
    def signature(self) -> str:
        """One line that says how the intervals were made."""
        parts = [f"kind:{self.fitted.kind}", f"alpha:{self.fitted.alpha}", f"n:{self.fitted.n}"]
        conditions = {
            "by": "+".join(self.reading.by),
            "bins": self.reading.bins,
            "weights": self.reading.weights,
        }
        if isinstance(self.fitted, FittedGrouped) and self.fitted.borrow:
            conditions["borrow"] = f"{self.fitted.borrow:g}"
        parts += [f"{name}:{value}" for name, value in conditions.items() if value]
        return "|".join([*parts, f"version:{doubtless.__version__}"])


def adaptations(table: Table) -> pl.Series:
    """How the score of each row was adapted to its system (column ``adapted`` of ``score --adapt``)."""
    if not table.has("adapted"):
        return pl.repeat(NOT_ADAPTED, len(table), eager=True)
    return table.column("adapted").cast(pl.String).fill_null(NOT_ADAPTED)


def _adapted(way: str) -> str:
    return f"adapted ({way})" if way else "not adapted"


def row_hashes(table: Table, columns: tuple[str, ...]) -> Hashes:
    """Fingerprints of the rows in the given columns (by name or role)."""
    frame = table.frame.select(table.column(name).alias(name) for name in columns)
    return fingerprints(frame)


def save(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write a calibration file."""
    DOCUMENT.write(as_json(calibration), path)


def load(path: str | os.PathLike[str]) -> Calibration:
    """Read a calibration file."""
    data = DOCUMENT.read(path)
    with DOCUMENT.understood(path):
        return from_json(data)


def as_json(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as plain data."""
    fitted, reading = calibration.fitted, calibration.reading
    data: dict[str, Any] = {
        **DOCUMENT.head,
        "kind": fitted.kind,
        "alpha": fitted.alpha,
        "n": fitted.n,
        "human": calibration.human,
        "columns": reading.columns.as_json(),
        "by": list(reading.by),
        "bins": reading.bins,
        "weights": reading.weights,
        "range": [_finite(end) for end in fitted.bounds],
        **_parameters(fitted),
    }
    if calibration.adaptations != (NOT_ADAPTED,):
        data["adapted"] = list(calibration.adaptations)
    if calibration.distribution is not None:
        data["distribution"] = [part.tolist() for part in calibration.distribution.parts]
    reference = calibration.reference
    assert reference is not None
    data["reference"] = {
        "score": reference.score.tolist(),
        "uncertainty": reference.uncertainty.tolist(),
        "nonconformity": reference.nonconformity.tolist(),
        "cell": reference.cell.astype(int).tolist(),
    }
    if calibration.sketch is not None:
        data["fingerprints"] = {
            "columns": list(calibration.sketched),
            "complete": calibration.sketch.complete,
            "rows": [f"{value:016x}" for value in calibration.sketch.kept.tolist()],
        }
    return data


def _parameters(fitted: Fitted) -> dict[str, Any]:
    if isinstance(fitted, FittedEce):
        return {"scale": fitted.scale, "offset": fitted.offset}
    if isinstance(fitted, FittedWeighted):
        return {"side": fitted.side, "scores": fitted.scores.tolist(), "mass": fitted.mass.tolist()}
    if isinstance(fitted, FittedSplit):
        return {"side": fitted.side, "factor": _finite(fitted.factor)}
    cells = fitted.cells
    inner = {"edges": list(cells.edges)} if isinstance(cells, Bins) else {}
    groups = [
        {"name": name, "n": n, "factor": _finite(factor)}
        for name, n, factor in zip(cells.names, fitted.counts, fitted.factors, strict=True)
    ]
    policies = {"unseen": fitted.unseen, "small": fitted.small, "borrow": fitted.borrow}
    return {"side": fitted.side, "pooled": _finite(fitted.pooled), **policies, **inner, "groups": groups}


def from_json(data: Mapping[str, Any]) -> Calibration:
    """Make a calibration again from :func:`as_json`."""
    low, high = data["range"]
    bounds: Bounds = (-inf if low is None else float(low), _or_infinite(high))
    columns = ForecastColumns.from_json(data["columns"])
    reading = Reading(columns, tuple(data["by"]), data["bins"], data["weights"])
    fitted = _fitted(data, bounds)
    reference = Reference(
        *(np.array(data["reference"][c], dtype=float) for c in Reference.__dataclass_fields__)
    )
    if len({len(getattr(reference, name)) for name in Reference.__dataclass_fields__}) > 1:
        raise ValueError("the reference columns have different lengths")
    sketch, sketched = None, ()
    if "fingerprints" in data:
        marks = data["fingerprints"]
        kept = np.array([int(row, 16) for row in marks["rows"]], dtype=np.uint64)
        sketch, sketched = Sketch(kept, bool(marks["complete"])), tuple(marks["columns"])
    distribution = None
    if "distribution" in data:
        parts = tuple(np.array(part, dtype=float) for part in data["distribution"])
        if isinstance(fitted, FittedGrouped):
            distribution = PredictiveDistribution(
                fitted.alpha, parts, fitted.cells, fitted.unseen, fitted.small
            )
        else:
            distribution = PredictiveDistribution(fitted.alpha, parts)
        if len(parts) != (len(fitted.counts) if isinstance(fitted, FittedGrouped) else 1):
            raise ValueError("the distribution has other groups than the calibration")
    ways = tuple(map(str, data.get("adapted", [NOT_ADAPTED])))
    return Calibration(fitted, reading, str(data["human"]), reference, sketch, sketched, distribution, ways)


def _fitted(data: Mapping[str, Any], bounds: Bounds) -> Fitted:
    kind, alpha, n = data["kind"], float(data["alpha"]), int(data["n"])
    SplitConformal(alpha, data.get("side", "both"), bounds)  # refuses what no calibration can have
    if kind == "ece":
        return FittedEce(alpha, float(data["scale"]), float(data["offset"]), n, bounds)
    if kind == "weighted":
        scores, mass = np.array(data["scores"], dtype=float), np.array(data["mass"], dtype=float)
        return FittedWeighted(alpha, scores, mass, data["side"], bounds)
    if kind == "split":
        return FittedSplit(alpha, _or_infinite(data["factor"]), n, data["side"], bounds)
    if kind != "grouped":
        raise InputError(f"unknown kind '{kind}'")
    borrow = float(data.get("borrow", 0.0))
    GroupedConformal(unseen=data["unseen"], small=data["small"], borrow=borrow)
    groups = data["groups"]
    cells: Cells
    if "edges" in data:
        cells = Bins(tuple(float(edge) for edge in data["edges"]))
    else:
        cells = Categories(tuple(str(group["name"]) for group in groups))
    return FittedGrouped(
        alpha=alpha,
        cells=cells,
        factors=tuple(_or_infinite(group["factor"]) for group in groups),
        counts=tuple(int(group["n"]) for group in groups),
        pooled=_or_infinite(data["pooled"]),
        n=n,
        side=data["side"],
        bounds=bounds,
        unseen=data["unseen"],
        small=data["small"],
        borrow=borrow,
    )


def _finite(factor: float) -> float | None:
    return None if isinf(factor) else factor


def _or_infinite(factor: float | None) -> float:
    return inf if factor is None else float(factor)
