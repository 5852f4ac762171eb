"""A metric judged by its doubt: does it know where it errs, and how wide must its intervals be?

Metrics have scales of their own. Each is first put on the scale of the human scores by the least-squares
line through all rows. The line does not know which rows calibrate and which test, so that they stay
exchangeable and the promise of the intervals holds; two fitted numbers flatter the widths very little.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from doubtless.conformal.evaluate import AtAlpha, Evaluation
from doubtless.conformal.split import checked_human
from doubtless.forecast import Forecast


def on_human_scale(forecast: Forecast, human: ArrayLike, alpha: float = 0.1) -> AtAlpha:
    """Put a forecast on the scale of human scores by the least-squares line.

    >>> from doubtless.forecast import Gaussian
    >>> scaled = on_human_scale(Gaussian([10.0, 20.0, 30.0], [1.0, 2.0, 2.0]), [1.0, 2.0, 3.0])
    >>> scaled.score.round(6)
    array([1., 2., 3.])
    """
    y = checked_human(human, len(forecast))
    raw = AtAlpha.of(forecast, alpha)
    centred = raw.center - raw.center.mean()
    square = float(centred @ centred)
    slope = float(centred @ y) / square if square > 0 else 0.0
    below, above = (raw.below, raw.above) if slope >= 0 else (raw.above, raw.below)
    steep = abs(slope)
    return AtAlpha(y.mean() + slope * centred, steep * below, steep * above, floor=forecast.floor)


def doubt_of(
    forecast: Forecast, human: ArrayLike, plan: Evaluation, uncertain: bool = True
) -> dict[str, float | None]:
    """UPS, and coverage and width of conformal intervals, of a metric on the scale of the human scores.

    Parameters
    ----------
    forecast, human
        Forecasts and human scores.
    plan
        Alpha and the random splits.
    uncertain
        Whether the metric has an uncertainty of its own; if not, it has no UPS, and all its intervals are
        equally wide.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> import numpy as np
    >>> rng, score = np.random.default_rng(0), np.arange(500.0)
    >>> sd = rng.gamma(2, size=500)
    >>> found = doubt_of(Gaussian(score, sd), score + sd * rng.normal(size=500), Evaluation())
    >>> found["ups"] > 0.4, abs(found["coverage"] - 0.9) < 0.02
    (True, True)
    """
    figures = plan.run(on_human_scale(forecast, human, plan.alpha), human, uncertain=uncertain)
    conformal = figures["methods"]["conformal"]
    return {"ups": figures["ups"], "coverage": conformal["coverage"], "width": conformal["width"]}
