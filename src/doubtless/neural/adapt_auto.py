"""Whether to adapt, decided without labels.

Adaptation can hurt, most of all on data like those that a model was made for (Zhan et al. 2023, section
5.1). A system is adapted to only if all of this holds:

1. There are at least 32 segments.
2. Its forecasts drift: a test of exchangeability with the calibration rows is rejected at the level 0.01
   (shared by the numbers that are tested). On data like the calibration rows that happens once in a hundred
   systems at most.
3. Adapted to one half of the segments, the model becomes surer of the other half: the mean fall of the
   uncertainty exceeds twice its standard error.
4. And not by saying less: the uncertainty also falls in relation to how much the scores of these segments
   differ from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from doubtless.neural.adapt import adapt_segments, applied
from doubtless.neural.adapt_plan import AdaptPlan
from doubtless.neural.noisy import Floats, Segments

FEWEST = 32
LEVEL = 0.01
ERRORS = 2.0


@dataclass(frozen=True)
class HeldOut:
    """Scores of K passes (passes, segments) over segments that were not adapted to, before and after."""

    before: Floats
    after: Floats

    @property
    def falls(self) -> bool:
        """Whether the mean fall of the uncertainty exceeds twice its standard error."""
        fall = self.before.std(axis=0) - self.after.std(axis=0)
        return bool(fall.mean() > ERRORS * fall.std(ddof=1) / np.sqrt(len(fall)))

    @property
    def falls_relatively(self) -> bool:
        """Whether it also falls in relation to how much the segments' scores differ."""
        return relative_uncertainty(self.after) < relative_uncertainty(self.before)


def relative_uncertainty(passes: Floats) -> float:
    """The mean uncertainty of segments over the standard deviation of their scores.

    It does not change when all scores are brought to another scale:

    >>> passes = np.random.default_rng(0).normal(size=(30, 50))
    >>> round(relative_uncertainty(passes) / relative_uncertainty(3 * passes - 1), 9)
    1.0
    """
    spread = float(passes.mean(axis=0).std())
    return float(passes.std(axis=0).mean()) / spread if spread > 0 else float("inf")


@dataclass(frozen=True)
class Decision:
    """Whether to adapt, and why or why not."""

    adapt: bool
    reason: str


def held_out(segments: Segments, plan: AdaptPlan) -> HeldOut:
    """Adapt to one half of the segments, drawn by the seed, and look at the other half."""
    order = np.concatenate(segments.batches(plan))
    middle = (len(order) + 1) // 2
    seen, unseen = segments.take(order[:middle]), segments.take(order[middle:])
    before = unseen.passes(plan)
    with applied(segments.estimator, adapt_segments(seen, plan)):
        return HeldOut(before, unseen.passes(plan))


def drifted(p_values: Mapping[str, float]) -> str | None:
    """The number that drifted most, if one did; ``p_values`` are those of the tests of exchangeability.

    >>> drifted({"scores": 0.2, "errors": 0.004})
    'errors'
    >>> drifted({"scores": 0.2, "errors": 0.008}) is None
    True
    """
    if not p_values:
        return None
    name = min(p_values, key=p_values.__getitem__)
    return name if p_values[name] <= LEVEL / len(p_values) else None


def decide(segments: Segments, plan: AdaptPlan, p_values: Mapping[str, float]) -> Decision:
    """Decide by the rule whether to adapt to the segments of a system."""
    if len(segments) < FEWEST:
        return Decision(False, f"{len(segments)} segments are too few to tell, {FEWEST} are needed")
    what = drifted(p_values)
    if what is None:
        return Decision(False, "the forecasts look like those of the calibration rows")
    found = held_out(segments, plan)
    if not found.falls:
        return Decision(False, "the uncertainty of held-out segments does not fall")
    if not found.falls_relatively:
        return Decision(False, "the scores of held-out segments only move closer together")
    return Decision(True, f"the {what} drift (p = {p_values[what]:.1g}), and held-out segments become surer")
