"""Which segments are worth a human look, and which scores are good: rules that can be said in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from doubtless.conformal.grouped import FittedGrouped
from doubtless.conformal.split import FittedSplit
from doubtless.segments import Floats

if TYPE_CHECKING:
    from doubtless.conformal.store import Calibration
    from doubtless.neural.config import ModelConfig

SHARE = 0.2
# The same share, and half, of a standard normal distribution.
_OF_Z = (-0.84, 0.0)
# Words of flags that speak of the interval and not of the text.
_OF_INTERVALS = {"unseen-group", "small-group", "too-few-calibration-rows"}


@dataclass(frozen=True)
class Look:
    """What counts as bad, and what as good.

    Parameters
    ----------
    poor, good
        Scores worse than ``poor`` are red, better than ``good`` green; None: the scale is not known.
    threshold
        The segment is worth a look if the worse end of its interval (without one, its score) is worse.
    higher
        Whether higher scores are better.
    """

    poor: float | None
    good: float | None
    threshold: float | None
    higher: bool = True

    @classmethod
    def of(cls, config: ModelConfig, calibration: Calibration | None, threshold: float | None) -> Look:
        """Take the thresholds from the calibration rows, else from the scale of the model.

        Poor scores are the worst fifth of the calibration rows' scores, good ones the better half. The
        interval that is worth a look is as bad as those of the worst fifth of the calibration rows.
        """
        higher = config.direction == "higher"
        poor, good = (None, None) if config.scale != "z" else _OF_Z if higher else (-_OF_Z[0], 0.0)
        worst = poor
        if calibration is not None and calibration.reference is not None:
            share = SHARE if higher else 1 - SHARE
            poor, good = (float(q) for q in np.quantile(calibration.reference.score, [share, 0.5]))
            ends = _ends(calibration, higher)
            worst = float(np.quantile(ends, share)) if len(ends) else None
        return cls(poor, good, worst if threshold is None else threshold, higher)

    def rows(self, worse_end: Floats, flags: list[str]) -> np.ndarray:
        """Mark the segments that are worth a look."""
        odd = np.array([bool(set(words.split()) - _OF_INTERVALS) for words in flags], dtype=bool)
        if self.threshold is None:
            return odd
        return odd | (worse_end < self.threshold if self.higher else worse_end > self.threshold)

    def rule(self, with_intervals: bool) -> str:
        """The rule in words."""
        if self.threshold is None:
            return "flagged"
        what = ("lower end" if self.higher else "upper end") if with_intervals else "score"
        return f"flagged, or {what} {'below' if self.higher else 'above'} {round(self.threshold, 2) + 0:.2f}"

    def colour(self, score: float) -> str:
        """Green, yellow or red."""
        if self.poor is None or self.good is None:
            return ""
        sign = 1 if self.higher else -1
        if sign * score < sign * self.poor:
            return "red"
        return "green" if sign * score >= sign * self.good else "yellow"


def _ends(calibration: Calibration, higher: bool) -> Floats:
    """The worse ends of the intervals of the calibration rows, as far as they are known."""
    fitted, reference = calibration.fitted, calibration.reference
    assert reference is not None
    if getattr(fitted, "side", "both") == ("upper" if higher else "lower"):
        return np.empty(0)  # the worse side has no end
    if isinstance(fitted, FittedGrouped):
        factors = np.array([factor for _, _, factor, _ in fitted.describe()])
        factor = factors[reference.cell.astype(np.int64)]
    elif isinstance(fitted, FittedSplit):
        factor = np.full(len(reference.score), fitted.factor)
    else:
        return np.empty(0)
    reach = factor * reference.uncertainty
    ends = reference.score - reach if higher else reference.score + reach
    return np.clip(ends, *fitted.bounds)[np.isfinite(ends)]
