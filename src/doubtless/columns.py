"""Which columns of a table hold a forecast, and numbers that describe a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from doubtless.errors import InputError
from doubtless.forecast import (
    FLOOR,
    ErrorEstimate,
    Floats,
    Forecast,
    Gaussian,
    Quantiles,
    Samples,
    WarpedGaussian,
)
from doubtless.segments import Table, as_table
from doubtless.warp import LogWarp


@dataclass(frozen=True)
class ForecastColumns:
    """The columns of a forecast; which ones are given decides its family.

    Parameters
    ----------
    score
        Point estimate. Alone it is a forecast without uncertainty: every row has the same spread.
    samples
        One column of lists, or one column a sample.
    sd
        Standard deviation of ``score``; with ``warp="log"`` both are those of the logarithm.
    lower, upper
        Ends of an interval, of level ``level`` (by default the level asked for later).
    error
        Expected absolute error of ``score``.
    floor
        Smallest spread that is believed.

    Examples
    --------
    >>> rows = [{"a": 0.1, "b": 0.3}, {"a": 0.5, "b": 0.5}]
    >>> ForecastColumns(samples=("a", "b")).read(rows).score
    array([0.2, 0.5])
    """

    score: str | None = None
    samples: tuple[str, ...] = ()
    sd: str | None = None
    lower: str | None = None
    upper: str | None = None
    error: str | None = None
    level: float | None = None
    warp: str | None = None
    floor: float = FLOOR

    def __post_init__(self) -> None:
        ways = [bool(self.samples), self.sd is not None, self._has_interval(), self.error is not None]
        if sum(ways) > 1:
            raise InputError("samples, sd, lower and upper, and error exclude each other: give one of them")
        if (self.lower is None) != (self.upper is None):
            raise InputError("lower and upper go together")
        if self.score is None and not (self.samples or self._has_interval()):
            raise InputError("a forecast needs a score column, or samples, or lower and upper")
        if self.warp not in (None, "log"):
            raise InputError(f"unknown warping '{self.warp}', expected log")
        if self.warp and self.sd is None:
            raise InputError("a warping needs sd")
        if self.level is not None and not self._has_interval():
            raise InputError("a level needs lower and upper")
        if self.level is not None and not 0 < self.level < 1:
            raise InputError(f"level must lie between 0 and 1, found {self.level}")
        if not 0 < self.floor < np.inf:
            raise InputError(f"floor must be positive and finite, found {self.floor}")

    def _has_interval(self) -> bool:
        return self.lower is not None or self.upper is not None

    @property
    def names(self) -> set[str]:
        """All columns that are read."""
        single = (self.score, self.sd, self.lower, self.upper, self.error)
        return {*self.samples, *(name for name in single if name is not None)}

    @property
    def has_uncertainty(self) -> bool:
        """Whether the columns hold more than a score."""
        return self.names != {self.score}

    def read(self, data: Any, alpha: float = 0.1) -> Forecast:
        """Make the forecast from a table (or a data frame, or a list of dicts)."""
        table = as_table(data)
        score = None if self.score is None else table.numbers(self.score)
        if self.samples:
            samples = Samples(self._read_samples(table), floor=self.floor)
            return samples if score is None else Gaussian(score, samples.sd, floor=self.floor)
        if self.lower is not None and self.upper is not None:
            return self._read_interval(table, score, alpha)
        assert score is not None
        if self.sd is not None:
            sd = _not_negative(table, self.sd)
            if not self.warp:
                return Gaussian(score, sd, floor=self.floor)
            _refuse_large_logarithms(table, self.score, score + 5 * sd)
            return WarpedGaussian(score, sd, LogWarp(), floor=self.floor)
        error = np.ones(len(score)) if self.error is None else table.numbers(self.error)
        return ErrorEstimate(score, error, floor=self.floor)

    def _read_samples(self, table: Table) -> Floats:
        if len(self.samples) == 1 and _is_list(table, self.samples[0]):
            return table.number_lists(self.samples[0])
        return np.stack([table.numbers(name) for name in self.samples], axis=1)

    def _read_interval(self, table: Table, score: Floats | None, alpha: float) -> Quantiles:
        assert self.lower is not None
        assert self.upper is not None
        low, high = table.numbers(self.lower), table.numbers(self.upper)
        tail = (1 - self.level if self.level is not None else alpha) / 2
        if score is None:
            ends = np.stack([low, high], axis=1)
            return Quantiles((tail, 1 - tail), ends, symmetric=True, floor=self.floor)
        return Quantiles((tail, 0.5, 1 - tail), np.stack([low, score, high], axis=1), floor=self.floor)

    def as_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, for a file."""
        default = {"samples": (), "floor": FLOOR}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != default.get(name)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ForecastColumns:
        """Make the columns again from :meth:`as_json`."""
        return cls(**{**data, "samples": tuple(data.get("samples", ()))})


def _is_list(table: Table, name: str) -> bool:
    series = table.column(name)
    if series.dtype.is_nested():
        return True
    first = series.head(1).to_list()
    return isinstance(first[0], str) and first[0].lstrip().startswith("[") if first else False


def _not_negative(table: Table, name: str) -> Floats:
    values = table.numbers(name)
    if (values < 0).any():
        row = int((values < 0).argmax())
        raise InputError(f"{table.place(row)}: column '{name}' is {values[row]}, expected no negative number")
    return values


def _refuse_large_logarithms(table: Table, name: str | None, highest: Floats) -> None:
    if (highest > 300).any():
        row = int((highest > 300).argmax())
        raise InputError(f"{table.place(row)}: '{name}' is too large to be a logarithm")


COMPUTED = ("@score", "@uncertainty", "@source-length")


def attribute(table: Table, forecast: Forecast, name: str, alpha: float) -> Floats:
    """Return a number a row: a column, or one of the computed ``@score @uncertainty @source-length``.

    The source length counts tokens between spaces; where the source has no spaces, characters.
    """
    if name == "@score":
        return forecast.score
    if name == "@uncertainty":
        return forecast.uncertainty(alpha)
    if name == "@source-length":
        source = table.column("src").fill_null("")
        words = source.str.count_matches(r"\S+").to_numpy()
        spaceless = ~source.str.strip_chars().str.contains(r"\s").to_numpy()
        return np.where(spaceless, source.str.len_chars().to_numpy(), words).astype(np.float64)
    if name.startswith("@"):
        raise InputError(f"'{name}' is not known, expected a column or one of: {', '.join(COMPUTED)}")
    return table.numbers(name)
