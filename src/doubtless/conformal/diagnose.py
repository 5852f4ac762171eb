"""How good are forecasts and intervals? (Zerva & Martins 2024, sections 3.4 and 4.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.ece import expected_calibration_error
from doubtless.conformal.grouped import Cells
from doubtless.conformal.split import Intervals, SplitConformal, checked_human
from doubtless.forecast import Distribution, Forecast, probit
from doubtless.metaeval.correlation import kendall, pearson, spearman


def coverage(intervals: Intervals, human: ArrayLike) -> float:
    """Share of human scores that lie in their interval."""
    return float(np.mean(intervals.covers(human)))


def average_width(intervals: Intervals) -> float:
    """Mean width (equation 11); infinite if any interval is unbounded."""
    return float(np.mean(intervals.width))


def ups(forecast: Forecast, human: ArrayLike, alpha: float = 0.1) -> float:
    """Uncertainty Pearson score: correlation of the absolute error with the uncertainty."""
    return pearson(np.abs(np.asarray(human) - forecast.score), forecast.uncertainty(alpha))


def agreement(forecast: Forecast, human: ArrayLike, alpha: float = 0.1) -> dict[str, float]:
    """Agreement of scores with humans, and of uncertainty with error.

    Correlations and mean absolute error for all; for probability distributions also ``ece``, ``nlpd``
    (minus the mean log density of the human scores) and ``sharpness`` (the mean variance).
    """
    y = checked_human(human, len(forecast))
    figures = {
        "pearson": pearson(forecast.score, y),
        "spearman": spearman(forecast.score, y),
        "kendall": kendall(forecast.score, y),
        "mae": float(np.abs(y - forecast.score).mean()),
        "ups": ups(forecast, y, alpha),
    }
    if isinstance(forecast, Distribution):
        figures["ece"] = expected_calibration_error(forecast, y)
        figures["nlpd"] = float(-forecast.log_density(y).mean())
        figures["sharpness"] = float(forecast.variance.mean())
    return figures


def wilson(hits: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Binomial error bar of a share (Wilson's interval).

    >>> tuple(round(end, 3) for end in wilson(90, 100))
    (0.826, 0.945)
    """
    if n == 0:
        return 0.0, 1.0
    z2 = probit((1 + level) / 2) ** 2
    share = hits / n
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = np.sqrt(z2 / n * (share * (1 - share) + z2 / (4 * n))) / (1 + z2 / n)
    return max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


@dataclass(frozen=True)
class Conditional:
    """Coverage and width within one group or bin, with the binomial error bar of the coverage."""

    name: str
    n: int
    coverage: float
    low: float
    high: float
    width: float


def conditional_coverage(
    intervals: Intervals, human: ArrayLike, cells: Cells, groups: Any
) -> list[Conditional]:
    """Coverage within each cell of a partition (groups by name, or bins of a number).

    >>> from doubtless.conformal.grouped import Categories
    >>> from doubtless.forecast import Gaussian
    >>> fitted = SplitConformal(0.5).fit(Gaussian([0.0, 0], [1, 1]), [1.0, 2])
    >>> new = Gaussian([0.0, 0], [1, 1])
    >>> pairs = ["en-de", "en-fr"]
    >>> found = conditional_coverage(fitted.intervals(new), [0.0, 9], Categories.of(pairs), pairs)
    >>> [row.coverage for row in found]
    [1.0, 0.0]
    """
    codes = cells.codes(groups)
    known = codes >= 0
    size = len(cells.names)
    counts = np.bincount(codes[known], minlength=size)
    hits = np.bincount(codes[known], weights=intervals.covers(human)[known], minlength=size)
    widths = np.bincount(codes[known], weights=intervals.width[known], minlength=size)
    return [
        Conditional(name, int(n), _share(hit, n), *wilson(hit, int(n)), _share(width, n))
        for name, n, hit, width in zip(cells.names, counts, hits, widths, strict=True)
    ]


def _share(part: float, whole: int) -> float:
    return float(part / whole) if whole else float("nan")


def curve(
    calibration: tuple[Forecast, ArrayLike], test: tuple[Forecast, ArrayLike], alphas: Sequence[float]
) -> list[dict[str, float]]:
    """Width against coverage of split conformal intervals over alpha (figure 7)."""
    rows = []
    for alpha in alphas:
        intervals = SplitConformal(alpha).fit(*calibration).intervals(test[0])
        found = {"alpha": alpha, "coverage": coverage(intervals, test[1]), "width": average_width(intervals)}
        rows.append(found)
    return rows
