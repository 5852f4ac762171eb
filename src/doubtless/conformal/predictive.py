"""Conformal predictive distributions (Vovk et al. 2017; Boström et al. 2021): the chance of any event."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.grouped import Cells, Policy, by_cell
from doubtless.conformal.split import Floats, checked_human, exact, smallest_calibration
from doubtless.errors import InputError
from doubtless.forecast import Forecast


def signed_residuals(forecast: Forecast, values: ArrayLike, alpha: float) -> Floats:
    """Distance of each value above (positive) or below its score, in units of the spread on that side."""
    below, above = forecast.spread(alpha)
    residual = np.asarray(values, dtype=np.float64) - forecast.score
    return residual / np.where(residual < 0, below, above)


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The distribution of a segment's human score, from the calibration residuals of its group.

    Make one with :meth:`fit`. Its statements hold as conformal intervals do: the chance is known up to
    ``1/(n + 1)`` and the ties, between the two ends of :meth:`chance_bounds`.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> forecast = Gaussian(np.zeros(9), np.ones(9))
    >>> distribution = PredictiveDistribution.fit(forecast, np.arange(-4.0, 5.0), alpha=0.1)
    >>> distribution.chance_below(forecast[:2], 0.5).round(2)
    array([0.55, 0.55])
    """

    alpha: float
    parts: tuple[Floats, ...]
    cells: Cells | None = None
    unseen: Policy = "error"
    small: Policy = "error"

    @classmethod
    def fit(
        cls,
        forecast: Forecast,
        human: ArrayLike,
        alpha: float = 0.1,
        groups: Any = None,
        cells: Cells | None = None,
        unseen: Policy = "error",
        small: Policy = "error",
    ) -> PredictiveDistribution:
        """Calibrate on forecasts with human scores, within ``cells`` if given.

        ``alpha`` only fixes the unit of the residuals (it matters for forecasts whose two sides change
        differently with alpha).
        """
        exact(alpha)
        residuals = signed_residuals(forecast, checked_human(human, len(forecast)), alpha)
        parts = [residuals] if cells is None else by_cell(residuals, cells.codes(groups), len(cells.names))
        return cls(alpha, tuple(np.sort(part) for part in parts), cells, unseen, small)

    def chance_below(self, forecast: Forecast, threshold: float, groups: Any = None) -> Floats:
        """The chance that each human score is below a threshold: the middle of the bounds, NaN if unknown."""
        low, high = self.chance_bounds(forecast, threshold, groups)
        # Nothing is known of a segment whose bounds are 0 and 1: half of it would look like knowledge.
        return np.where((low == 0) & (high == 1), np.nan, (low + high) / 2)

    def chance_bounds(
        self, forecast: Forecast, threshold: float, groups: Any = None
    ) -> tuple[Floats, Floats]:
        """The least and the greatest chance that the calibration rows allow."""
        at = signed_residuals(forecast, np.full(len(forecast), threshold), self.alpha)
        low, high = np.zeros(len(at)), np.ones(len(at))
        for rows, part in self._parts_of(groups, len(at)):
            low[rows] = np.searchsorted(part, at[rows], side="left") / (len(part) + 1)
            high[rows] = (np.searchsorted(part, at[rows], side="right") + 1) / (len(part) + 1)
        return low, high

    def quantile(self, forecast: Forecast, p: float, groups: Any = None) -> Floats:
        """The value below which each human score stays with probability p; infinite if n is too small."""
        level = exact(p)
        residual = np.full(len(forecast), np.inf)
        for rows, part in self._parts_of(groups, len(forecast)):
            k = ceil(level * (len(part) + 1))
            residual[rows] = part[k - 1] if k <= len(part) else np.inf
        below, above = forecast.spread(self.alpha)
        return forecast.score + residual * np.where(residual < 0, below, above)

    def _parts_of(self, groups: Any, n: int) -> list[tuple[Any, Floats]]:
        if self.cells is None:
            return [(slice(None), self.parts[0])]
        codes = self.cells.codes(groups)
        if len(codes) != n:
            raise InputError(f"{len(codes)} groups for {n} forecasts")
        if self.unseen == "error" and (codes < 0).any():
            raise InputError(f"the group in row {int((codes < 0).argmax()) + 1} was not calibrated")
        everything = np.sort(np.concatenate(self.parts))
        # As for intervals, a policy of pooling lets groups that are too small for alpha use all rows.
        enough = smallest_calibration(self.alpha) if self.small == "pooled" else 0
        chosen: list[tuple[Any, Floats]] = [
            (codes == i, part if len(part) >= enough else everything) for i, part in enumerate(self.parts)
        ]
        return [*chosen, (codes < 0, everything)] if self.unseen == "pooled" else chosen
