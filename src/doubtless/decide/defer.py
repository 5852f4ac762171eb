"""Which segments people should score themselves (Zouhar et al. 2025, section 5, and rules beyond it).

A rule says how urgent each segment is; :func:`doubtless.decide.budget.spend` takes the most urgent ones.
Rules look only at a :class:`Case`: the forecast and whatever else is known. The two oracles look at the human
scores, which nobody has when it matters: they show what is left to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import UNBOUNDED, Bounds
from doubtless.decide.losses import Loss
from doubtless.decide.outlook import Assumption, Curve, Outlook, outlooks
from doubtless.errors import InputError, UndefinedError
from doubtless.forecast import Floats, Forecast


@dataclass(frozen=True, eq=False)
class Case:
    """What a rule may look at; each rule says what it misses.

    Parameters
    ----------
    forecast
        Scores with their uncertainty.
    width
        Widths of intervals that are known already, as those of a calibration.
    chance
        The chance, known already, of falling on the wrong side of ``threshold``.
    threshold
        A score worse than this is a bad one.
    loss
        What it costs to act on a score when the truth is another; by default a score that is too good costs
        three times as much as one that is too bad.
    distribution, groups
        A conformal predictive distribution to use instead of the forecast's own, and the groups it asks for.
    cost
        What it costs to have each segment scored; by default the same for all.
    assume, bounds
        As for :func:`doubtless.decide.risk.decide`.
    human
        Human scores, for the oracles.
    higher
        Whether higher scores are better.
    alpha
        One minus the level of the forecast's own intervals, where the order depends on it.
    seed
        Of the random rule.
    """

    forecast: Forecast
    width: Floats | None = None
    chance: Floats | None = None
    threshold: float | None = None
    loss: Loss | None = None
    distribution: PredictiveDistribution | None = None
    groups: Any = None
    cost: Floats | None = None
    assume: Assumption | None = "normal"
    bounds: Bounds = UNBOUNDED
    human: Floats | None = None
    higher: bool = True
    alpha: float = 0.1
    seed: int = 0


def urgency(rule: str, case: Case) -> Floats:
    """How urgently people should look at each segment: the higher, the sooner.

    Parameters
    ----------
    rule
        One of :data:`RULES`.
    case
        What is known.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> case = Case(Gaussian([0.9, 0.5, 0.6], [0.3, 0.1, 0.2]), threshold=0.5)
    >>> [int(urgency(rule, case).argmax()) for rule in ("confidence", "score", "chance")]
    [0, 1, 1]
    """
    found = np.asarray(_rule(rule).urgency(case), dtype=np.float64)
    if np.isnan(found).any():
        raise InputError(f"rule '{rule}': nothing is known of row {int(np.isnan(found).argmax()) + 1}")
    return found


def reason(rule: str, case: Case, value: float) -> str:
    """Why a segment is sent to people, in a few words.

    >>> from doubtless.forecast import Gaussian
    >>> reason("chance", Case(Gaussian([0.0], [1.0]), threshold=0.5), 0.6915)
    'chance to be below 0.5: 0.692'
    """
    shown = value * _rule(rule).sign(case)
    side = "below" if case.higher else "above"
    return _rule(rule).reason.format(value=f"{round(shown, 3) + 0:.3g}", side=side, threshold=case.threshold)


def expected_loss(case: Case) -> Floats:
    """What it costs on average to act on each score, under the case's loss.

    >>> from doubtless.forecast import Gaussian
    >>> case = Case(Gaussian([0.0, 0.0], [1.0, 2.0]), loss=Loss("al", 3, "over"))
    >>> expected_loss(case).round(3)  # (3 + 1) times sd / sqrt(2 pi)
    array([1.596, 3.192])
    """
    loss = case.loss or Loss.in_scenario("al", 3.0, "pessimistic", "higher" if case.higher else "lower")
    score = np.clip(case.forecast.score, *case.bounds)
    expected = np.full(len(score), np.nan)
    for rows, outlook in _outlooks(case):
        values, weights = outlook.values(outlook.place(score[rows]))
        if loss.kind == "linex":
            mean = (weights * values).sum(axis=1) / weights.sum(axis=1)
            expected[rows] = _expected_linex(outlook, loss.tilt, mean, score[rows])
        else:
            expected[rows] = (weights * loss(score[rows, None], values)).sum(axis=1) / weights.sum(axis=1)
    if np.isinf(expected).any():
        raise UndefinedError(
            f"the expected loss of row {int(np.isinf(expected).argmax()) + 1} is infinite or too large for a"
            " number: take a smaller weight, declare the range of scores, or choose al or aq"
        )
    return expected


def _expected_linex(outlook: Outlook, c: float, mean: Floats, score: Floats) -> Floats:
    """``E[exp(x) - x - 1]`` with ``x = c (Y - score)``: c is above 0 where underestimates are costly.

    Most of the exponential's expectation may lie far out, where a rule for means has no nodes: at c standard
    deviations for a normal distribution. The exponential mean looks for it there.
    """
    with np.errstate(over="ignore"):
        return np.expm1(c * (outlook.exponential_mean(c) - score)) - c * (mean - score)


def chance_of_bad(case: Case) -> Floats:
    """The chance that people would score each segment worse than the threshold.

    >>> from doubtless.forecast import Gaussian
    >>> chance_of_bad(Case(Gaussian([0.0, 1.0], [1.0, 1.0]), threshold=0.0)).round(3)
    array([0.5  , 0.159])
    """
    if case.chance is not None:
        return case.chance
    if case.threshold is None:
        raise InputError("rule 'chance' needs a threshold below which a score is bad")
    if case.distribution is not None:
        below = case.distribution.chance_below(case.forecast, case.threshold, case.groups)
        return below if case.higher else 1 - below
    threshold = np.full(len(case.forecast), case.threshold)
    below = np.full(len(case.forecast), np.nan)
    for rows, outlook in _outlooks(case):
        if isinstance(outlook, Curve):
            below[rows] = ndtr(outlook.place(threshold[rows]))
        else:
            below[rows] = (outlook.sorted < threshold[rows, None]).mean(axis=1)
    return below if case.higher else 1 - below


def _outlooks(case: Case) -> Any:
    return outlooks(case.forecast, case.assume, case.bounds, case.distribution, case.groups)


def _human(case: Case) -> Floats:
    if case.human is None:
        raise InputError("an oracle needs the human scores")
    return case.human


def _direction(case: Case) -> float:
    return -1.0 if case.higher else 1.0


def _width(case: Case) -> Floats:
    return 2 * case.forecast.uncertainty(case.alpha) if case.width is None else case.width


@dataclass(frozen=True)
class Rule:
    """A rule of deferral: what it does, how, and how its reasons are put.

    ``sign`` turns the urgency back into the number that people know.
    """

    meaning: str
    urgency: Callable[[Case], Floats]
    reason: str
    sign: Callable[[Case], float] = lambda case: 1.0
    # Whether urgency grows with the error to expect, so that chances can be proportional to it.
    of_errors: bool = False


RULES = {
    "confidence": Rule(
        "least confidence: the largest uncertainty or expected error",
        lambda case: case.forecast.uncertainty(case.alpha),
        "uncertainty {value}",
        of_errors=True,
    ),
    "score": Rule(
        "worst score", lambda case: _direction(case) * case.forecast.score, "score {value}", _direction
    ),
    "width": Rule("widest interval", _width, "interval {value} wide", of_errors=True),
    "chance": Rule(
        "highest chance of being worse than a threshold",
        chance_of_bad,
        "chance to be {side} {threshold}: {value}",
        of_errors=True,
    ),
    "loss": Rule(
        "largest expected loss of trusting the score, per unit of cost",
        lambda case: expected_loss(case) / (1.0 if case.cost is None else case.cost),
        "expected loss {value} per unit of cost",
        of_errors=True,
    ),
    "random": Rule(
        "at random",
        lambda case: np.random.default_rng(case.seed).random(len(case.forecast)),
        "at random",
    ),
    "oracle-score": Rule(
        "worst human score, for comparison",
        lambda case: _direction(case) * _human(case),
        "human score {value}",
        _direction,
    ),
    "oracle-error": Rule(
        "largest error of the score, for comparison",
        lambda case: np.abs(case.forecast.score - _human(case)),
        "error {value}",
    ),
}
ORACLES = ("oracle-score", "oracle-error")


def _rule(name: str) -> Rule:
    if name not in RULES:
        raise InputError(f"there is no rule '{name}', expected one of: {', '.join(RULES)}")
    return RULES[name]
