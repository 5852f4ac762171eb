"""Thresholds on the suspicion of words: chosen for a target, or with a promise about what is missed.

A word is flagged if its suspicion is at or above the threshold. :func:`choose_threshold` meets a precision, a
recall or the best F1 *on the calibration words*, and promises nothing about others. :func:`control_missed`
promises: of the wrong words of a new segment, at most a share alpha stays unflagged, in expectation
(conformal risk control), or on average over all segments to come with a stated confidence (risk-controlling
prediction sets). Both rest on nothing but segments that could have come in any order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, exp, inf, isfinite, lcm, log
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

from doubtless.errors import InputError
from doubtless.formats.documents import Document
from doubtless.metaeval.detection import Curve, detection_curve

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rule = Literal["precision", "recall", "f1", "missed"]

DOCUMENT = Document("doubtless word threshold", 1, "word threshold")


@dataclass(frozen=True)
class Control:
    """A threshold, how it was chosen and on how much.

    Parameters
    ----------
    rule
        What was asked for: a ``precision`` or ``recall``, the best ``f1``, or at most a share ``missed``.
    level
        The target; None for the best F1.
    threshold
        Words at or above it are flagged; minus infinity flags every word, infinity none.
    segments, words, wrong
        What it was calibrated on; segments that were left out are not counted.
    clean
        Whether segments without a wrong word took part, with nothing missed in them.
    confidence
        Of promises with a probability: that of the calibration data being good enough.
    signal, made_with
        The name of the suspicion that the threshold is for, and how that was made (by which weights, with
        which options), as ``doubtless words`` says; None where it is not known.

    Examples
    --------
    >>> control = choose_threshold([0.9, 0.4, 0.2], [True, True, False], "recall", 0.5)
    >>> control.threshold, control.flags([0.95, 0.5]).tolist()
    (0.9, [True, False])
    """

    rule: Rule
    level: float | None
    threshold: float
    segments: int
    words: int
    wrong: int
    clean: bool = True
    confidence: float | None = None
    signal: str | None = None
    made_with: str | None = None

    def flags(self, suspicion: ArrayLike) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which words to flag."""
        return np.asarray(suspicion, dtype=np.float64) >= self.threshold

    @property
    def promise(self) -> str:
        """What holds for new segments, in one sentence."""
        if self.rule != "missed":
            target = "the best F1" if self.level is None else f"a {self.rule} of {self.level:g}"
            return f"{target} on the calibration words; nothing is promised about others"
        whose = "a new segment" if self.clean else "a new segment that has wrong words"
        share = f"at most {100 * (self.level or 0):g} % of the wrong words of {whose} are missed"
        if self.confidence is None:
            return f"in expectation {share}"
        return f"with a confidence of {100 * self.confidence:g} %, on average over segments {share}"


def choose_threshold(
    suspicion: ArrayLike, wrong: ArrayLike, rule: Rule, level: float | None = None, segments: int = 0
) -> Control:
    """Choose the threshold that meets a target on calibration words.

    Parameters
    ----------
    suspicion, wrong
        How suspicious each word is, and whether it is wrong.
    rule, level
        ``recall``: the highest threshold that finds at least this share; ``precision``: the lowest whose
        flags are right at least this often; ``f1``: the one with the best F1.
    segments
        How many segments the words are from, for the record.

    Examples
    --------
    >>> choose_threshold([4, 3, 2, 1], [True, False, True, False], "precision", 0.6).threshold
    2.0
    """
    if not np.any(wrong):
        raise InputError("no calibration word is wrong: no threshold can be chosen")
    curve = detection_curve(suspicion, wrong)
    counts = (segments, curve.wrong + curve.right, curve.wrong)
    if rule == "f1":
        return Control(rule, None, curve.best(curve.f1)[1], *counts)
    if rule not in ("precision", "recall") or level is None:
        raise InputError(f"a threshold is chosen by precision, recall (with a level) or f1, found '{rule}'")
    if not 0 < level <= 1:
        raise InputError(f"a {rule} lies above 0 and not above 1, found {level:g}")
    return Control(rule, level, _meeting(curve, rule, level), *counts)


def _meeting(curve: Curve, rule: Rule, level: float) -> float:
    if rule == "recall":
        return float(curve.threshold[int(np.argmax(curve.recall >= level))])
    good = np.flatnonzero(curve.precision >= level)
    if not len(good):
        best = float(curve.precision.max())
        raise InputError(f"no threshold has a precision of {level:g} (the best has {best:.3f})")
    return float(curve.threshold[good[-1]])


def control_missed(
    suspicion: ArrayLike,
    wrong: ArrayLike,
    segment: ArrayLike,
    alpha: float,
    *,
    clean: bool = False,
    confidence: float | None = None,
) -> Control:
    """Find the highest threshold that keeps the promise "at most a share alpha of the wrong words is missed".

    The loss of a segment is the share of its wrong words that lie below the threshold. It only grows with
    the threshold, so that the largest threshold with ``(sum of losses + 1) / (n + 1) <= alpha`` has an
    expected loss of at most alpha on the next segment (conformal risk control). The sum is exact. With a
    ``confidence`` the mean loss of all segments to come is at most alpha with this probability over
    calibration sets (bound of Hoeffding and Bentkus).

    Parameters
    ----------
    suspicion, wrong, segment
        How suspicious each calibration word is, whether it is wrong, and the number of its segment.
    alpha
        The share.
    clean
        Segments without a wrong word have nothing to miss. Left out (the default), the promise is about
        segments that have wrong words. Counted, with a loss of zero, it is about any segment: easier to
        keep, with fewer flags, and weaker where there is something to find.
    confidence
        None: the promise holds in expectation.

    Examples
    --------
    With 9 segments and alpha 0.2 the losses may add up to 1: one segment of one wrong word may be missed.

    >>> control = control_missed([1, 2, 3, 4, 5, 6, 7, 8, 9], [True] * 9, range(9), 0.2)
    >>> control.threshold, control.promise
    (2.0, 'in expectation at most 20 % of the wrong words of a new segment that has wrong words are missed')
    """
    values, bad = np.asarray(suspicion, dtype=np.float64), np.asarray(wrong, dtype=bool)
    units = np.unique(np.asarray(segment), return_inverse=True)[1]
    if not values.shape == bad.shape == units.shape or values.ndim != 1:
        raise InputError("suspicions, labels and segments must be three lists of the same length")
    if np.isnan(values).any():
        raise InputError("a suspicion is not a number")
    if not 0 < alpha < 1 or not (confidence is None or 0 < confidence < 1):
        raise InputError("alpha and confidence lie between 0 and 1")
    errors = np.bincount(units[bad], minlength=int(units.max(initial=-1)) + 1)
    n = len(errors) if clean else int((errors > 0).sum())
    if not n:
        raise InputError("no calibration word is wrong: there is nothing to promise")
    steps, losses = _losses(values[bad], errors[units[bad]])
    if confidence is None:
        # alpha is the decimal that was written, not its nearest binary fraction.
        most = Fraction(str(alpha)) * (n + 1) - 1
        kept = [loss <= most for loss in losses]
    else:
        kept = [_unlikely(float(loss / n), n, alpha) <= 1 - confidence for loss in losses]
    # Losses only grow: what is kept comes first. The first loss is zero, that of flagging everything.
    threshold = -inf if not kept[0] else float(steps[sum(kept) - 1])
    words = len(values) if clean else int((errors[units] > 0).sum())
    return Control("missed", alpha, threshold, n, words, int(bad.sum()), clean, confidence)


def _losses(values: Floats, errors: np.ndarray) -> tuple[Floats, list[Fraction]]:
    """Thresholds at which losses change (infinity last), and the exact sum of the losses at each."""
    order = np.argsort(values, kind="stable")
    unit = lcm(*{int(count) for count in errors})  # the share of any wrong word is a multiple of 1/unit
    below = list(accumulate((unit // int(errors[i]) for i in order), initial=0))
    steps, starts = np.unique(values[order], return_index=True)
    places = [*starts.tolist(), len(values)]
    return np.append(steps, inf), [Fraction(below[place], unit) for place in places]


def _unlikely(mean: float, n: int, alpha: float) -> float:
    """How likely a mean loss this small is at most, if the true one is above alpha."""
    low = min(mean, alpha)
    divergence = (low * log(low / alpha) if low else 0.0) + (1 - low) * log((1 - low) / (1 - alpha))
    hoeffding = exp(-n * divergence)
    # Rounding must not push a count that is whole to the next one.
    bentkus = exp(1) * float(bdtr(ceil(n * mean - 1e-9), n, alpha))
    return min(hoeffding, bentkus, 1.0)


def missed_shares(flags: ArrayLike, wrong: ArrayLike, segment: ArrayLike) -> Floats:
    """The share of wrong words that is missed in each segment that has some: what the promise is about.

    >>> missed_shares([True, False, False], [True, True, False], [0, 0, 1])
    array([0.5])
    """
    bad = np.asarray(wrong, dtype=bool)
    units = np.unique(np.asarray(segment)[bad], return_inverse=True)[1]
    missed = ~np.asarray(flags, dtype=bool)[bad]
    return np.bincount(units, missed.astype(np.float64)) / np.bincount(units)


def save(control: Control, path: str | os.PathLike[str]) -> None:
    """Write a threshold as readable JSON."""
    DOCUMENT.write(as_json(control), path)


def load(path: str | os.PathLike[str]) -> Control:
    """Read a threshold."""
    data = DOCUMENT.read(path)
    with DOCUMENT.understood(path):
        return from_json(data)


_FLAGGED = {-inf: "every word", inf: "no word"}


def as_json(control: Control) -> dict[str, Any]:
    """Return a threshold as plain data.

    >>> as_json(choose_threshold([2, 1], [True, False], "f1"))["flagged"]
    'words at or above the threshold'
    """
    return {
        **DOCUMENT.head,
        "promise": control.promise,
        "rule": control.rule,
        "level": control.level,
        "confidence": control.confidence,
        "flagged": _FLAGGED.get(control.threshold, "words at or above the threshold"),
        "threshold": control.threshold if isfinite(control.threshold) else None,
        "segments": control.segments,
        "segments_without_wrong_words": "counted" if control.clean else "left out",
        "words": control.words,
        "wrong_words": control.wrong,
        "signal": control.signal,
        "made_with": control.made_with,
    }


def from_json(data: Mapping[str, Any]) -> Control:
    """Make a threshold again from :func:`as_json`."""
    if data["rule"] not in get_args(Rule):
        raise ValueError(f"unknown rule '{data['rule']}'")
    ends = {name: value for value, name in _FLAGGED.items()}
    threshold = ends[data["flagged"]] if data["threshold"] is None else float(data["threshold"])
    level, confidence = (None if data[k] is None else float(data[k]) for k in ("level", "confidence"))
    segments, words, wrong = (int(data[name]) for name in ("segments", "words", "wrong_words"))
    clean = data["segments_without_wrong_words"] == "counted"
    signal, made_with = (None if data.get(k) is None else str(data[k]) for k in ("signal", "made_with"))
    counts = segments, words, wrong
    return Control(data["rule"], level, threshold, *counts, clean, confidence, signal, made_with)
