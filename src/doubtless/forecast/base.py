"""What every forecast has: a score, and a spread that is never zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from doubtless.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]

FLOOR = 1e-6


def first_not_finite(values: Floats) -> int | None:
    """The first row that holds a number that is not finite, if there is one."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    return int(finite.reshape(len(values), -1).all(axis=1).argmin())


@dataclass(frozen=True, eq=False)
class Forecast(ABC):
    """Scores of segments with their uncertainty; immutable, sliceable by rows.

    A family lists its row-wise arrays as fields and says what its score and its raw spread are.
    """

    floor: float = field(default=FLOOR, kw_only=True)

    def __post_init__(self) -> None:
        """Turn row-wise fields into read-only float arrays of one length, all finite."""
        lengths = set()
        for name in self._rowwise():
            values = np.asarray(getattr(self, name), dtype=np.float64).view()
            row = first_not_finite(values)
            if row is not None:
                raise InputError(f"{name} of a forecast is not finite in row {row + 1}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
            lengths.add(len(values))
        if len(lengths) > 1:
            raise InputError(f"the arrays of a forecast have different lengths: {sorted(lengths)}")

    @classmethod
    def _rowwise(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.type == "Floats"]

    def __len__(self) -> int:
        return len(getattr(self, self._rowwise()[0]))

    def __getitem__(self, rows: Any) -> Self:
        """Keep rows, by a slice, a mask or row numbers."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self._rowwise()})

    @property
    @abstractmethod
    def score(self) -> Floats:
        """The point estimate of each segment."""

    @abstractmethod
    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances to the ends of the family's own interval at level 1 - alpha, before the floor."""

    def spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances from the score down and up to the ends of the interval at level ``1 - alpha``.

        Both are at least ``floor``: a spread of zero claims certainty, and nothing divides by it.
        Symmetric families return the same array twice.

        >>> from doubtless.forecast import Gaussian
        >>> below, above = Gaussian([0.5], [0.1]).spread(0.1)
        >>> float(above[0].round(4))
        0.1645
        """
        below, above = self.raw_spread(alpha)
        if above is below:
            both = self._raised(below)
            return both, both
        return self._raised(below), self._raised(above)

    def _raised(self, spread: Floats) -> Floats:
        # Most forecasts never touch the floor: looking is four times as fast as raising.
        return np.maximum(spread, self.floor) if len(spread) and spread.min() < self.floor else spread

    def floored(self, alpha: float) -> int:
        """Count the rows whose spread was raised to the floor."""
        below, above = self.raw_spread(alpha)
        return int(np.count_nonzero((below < self.floor) | (above < self.floor)))

    def uncertainty(self, alpha: float) -> Floats:
        """One number a row: half the width of the family's own interval."""
        below, above = self.spread(alpha)
        return below if above is below else (below + above) / 2
