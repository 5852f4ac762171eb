"""Metrics of words judged by several people, and the people by each other.

Each metric gives every word of a translation a suspicion, each annotator says which words are wrong. Figures
are made per language and annotator and then averaged, over annotators first. What one annotator's marks would
achieve as a metric of another's is the human baseline; the share of wrong words is what chance achieves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import comb
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.metaeval.bootstrap import interval
from doubtless.metaeval.correlation import spearman
from doubtless.metaeval.detection import Curve, detection_curve
from doubtless.words.control import Control, Rule, choose_threshold, control_missed, missed_shares
from doubtless.words.judged import Floats, Integers, Judged

Rows = list[dict[str, Any]]
Scale = Literal["nominal", "interval"]

FIGURES = ("ap", "f1", "f1_calibrated", "matthews")
MEAN = "mean"
MOST_SUBSETS = 1_000  # of one size; more are sampled


# Detection ------------------------------------------------------------------------------------------------


def judge(judged: Judged, calibration: Judged | None = None, seed: int = 0) -> Rows:
    """Judge metrics, chance and humans, per group and annotator, then on average.

    Parameters
    ----------
    judged
        The words.
    calibration
        Other words with the same groups, metrics and annotators, for thresholds. Without them the segments
        are halved at random, and each half is judged by the threshold of the other.
    seed
        Of the halves.

    Returns
    -------
    list of dict
        ``group, annotator, metric, words, wrong`` (a share), average precision ``ap``, the best ``f1`` over
        thresholds (chosen on the same words: an upper bound), ``f1_calibrated`` (threshold from other
        words), the best correlation ``matthews``. ``annotator`` and ``group`` are ``mean`` in averages.
        ``random`` is chance; ``human min``, ``human mean`` and ``human max`` are over the other annotators.

    Examples
    --------
    >>> words = {"m": np.array([0.9, 0.1, 0.8])}, {"a": np.array([1.0, 0.0, 0.0])}
    >>> rows = judge(Judged(*words, np.array([0, 0, 1]), ["de", "de"]))
    >>> [(row["metric"], round(row["ap"], 3), round(row["f1"], 3)) for row in rows[:2]]
    [('m', 1.0, 1.0), ('random', 0.333, 0.5)]
    """
    rows: Rows = []
    for group in judged.groups:
        part = judged.of_group(group)
        other = None if calibration is None else _calibrating(calibration, group)
        halves = np.random.default_rng(seed).permutation(len(part.group)) % 2 == 0
        for annotator in part.labels:
            known, wrong = part.seen(annotator)
            if not wrong.any():
                continue  # nothing to find: no figure is defined
            head = {"group": group, "annotator": annotator}
            counts = {"words": len(wrong), "wrong": float(wrong.mean())}
            for metric, suspicion in part.scores.items():
                curve = detection_curve(suspicion[known], wrong)
                flags = _calibrated_flags(part, metric, annotator, other, halves)
                calibrated = detection_curve(flags, wrong).at(1.0)["f1"]
                rows.append(head | {"metric": metric} | counts | _figures(curve, calibrated))
            rows.append(head | {"metric": "random"} | counts | _random(counts["wrong"]))
            rows += [
                head | {"metric": f"human {name}"} | counts | row for name, row in _humans(part, annotator)
            ]
    if not rows:
        raise InputError("no annotator found any word wrong: there is nothing to detect")
    return rows + _averages(rows)


def _figures(curve: Curve, calibrated: float) -> dict[str, float]:
    best = curve.best(curve.f1)[0], calibrated, curve.best(curve.matthews)[0]
    return dict(zip(FIGURES, (curve.average_precision, *best), strict=True))


def _random(share: float) -> dict[str, float]:
    """What chance achieves: the best it can do for F1 is to flag everything."""
    everything = 2 * share / (1 + share)
    return {"ap": share, "f1": everything, "f1_calibrated": everything, "matthews": 0.0}


def _calibrating(calibration: Judged, group: str) -> Judged:
    if group not in calibration.groups:
        raise InputError(f"the calibration words have no group '{group}'")
    return calibration.of_group(group)


def _calibrated_flags(
    part: Judged, metric: str, annotator: str, other: Judged | None, halves: np.ndarray
) -> Floats:
    """Which of the words that an annotator saw would be flagged, by thresholds from other words."""
    known, wrong = part.seen(annotator)
    suspicion = part.scores[metric][known]
    if other is not None:
        seen, bad = other.seen(annotator)
        return choose_threshold(other.scores[metric][seen], bad, "f1").flags(suspicion).astype(np.float64)
    first = halves[part.segment[known]]
    flags = np.zeros(len(wrong))
    for half in (first, ~first):
        if wrong[~half].any():  # else nothing is known to be wrong, and nothing is flagged
            threshold = choose_threshold(suspicion[~half], wrong[~half], "f1").threshold
            flags[half] = suspicion[half] >= threshold
    return flags


def _humans(part: Judged, annotator: str) -> Iterator[tuple[str, dict[str, float]]]:
    """What the marks of the other annotators would achieve as metrics of this one's: min, mean and max."""
    found = []
    for other in part.labels:
        both = ~np.isnan(part.labels[annotator]) & ~np.isnan(part.labels[other])
        wrong = part.labels[annotator][both] == 1
        if other != annotator and wrong.any():
            curve = detection_curve(part.labels[other][both], wrong)
            found.append(_figures(curve, curve.at(1.0)["f1"]))  # marks need no threshold
    if found:
        for name, summary in (("min", np.min), ("mean", np.mean), ("max", np.max)):
            yield name, {figure: float(summary([row[figure] for row in found])) for figure in FIGURES}


def _averages(rows: Rows) -> Rows:
    """Means over the annotators of each group, and over groups of these."""
    groups = dict.fromkeys(row["group"] for row in rows)
    metrics = dict.fromkeys(row["metric"] for row in rows)
    by_group = [
        _mean({"group": group, "annotator": MEAN, "metric": metric}, chosen)
        for group in groups
        for metric in metrics
        if (chosen := [row for row in rows if (row["group"], row["metric"]) == (group, metric)])
    ]
    overall = [
        _mean({"group": MEAN, "annotator": MEAN, "metric": metric}, chosen)
        for metric in metrics
        if (chosen := [row for row in by_group if row["metric"] == metric])
    ]
    return by_group + overall


def _mean(head: dict[str, Any], rows: Rows) -> dict[str, Any]:
    means = {name: float(np.mean([row[name] for row in rows])) for name in ("wrong", *FIGURES)}
    return head | {"words": sum(row["words"] for row in rows)} | means


def precision_recall(judged: Judged, points: int = 100) -> Rows:
    """Points of the precision-recall curves, by group, annotator and metric."""
    rows: Rows = []
    for group in judged.groups:
        part = judged.of_group(group)
        for annotator in part.labels:
            known, wrong = part.seen(annotator)
            if not wrong.any():
                continue
            for metric, suspicion in part.scores.items():
                curve = detection_curve(suspicion[known], wrong).thinned(points)
                head = {"group": group, "annotator": annotator, "metric": metric}
                steps = zip(curve.threshold, curve.precision, curve.recall, strict=True)
                rows += [
                    head | {"threshold": float(t), "precision": float(p), "recall": float(r)}
                    for t, p, r in steps
                ]
    return rows


def try_thresholds(
    judged: Judged,
    calibration: Judged,
    rule: Rule,
    level: float | None = None,
    confidence: float | None = None,
) -> tuple[dict[str, dict[str, Control]], Rows]:
    """Choose thresholds on calibration words, and see what they achieve on others.

    Parameters
    ----------
    judged, calibration
        The words to try thresholds on, and those to choose them by.
    rule, level, confidence
        ``missed``: the promise of :func:`~doubtless.words.control.control_missed`; the others are targets of
        :func:`~doubtless.words.control.choose_threshold`.

    Returns
    -------
    tuple
        The thresholds by metric and annotator, chosen over all groups together; and rows with the
        ``precision`` and ``recall`` of the flags, the mean share ``missed`` in segments that have wrong
        words, its standard error, the share of all words that is ``flagged``, and the ``promise`` in words.

    Examples
    --------
    >>> scores, labels = {"m": np.array([4.0, 1, 3, 2])}, {"a": np.array([1.0, 0, 0, 0])}
    >>> words = Judged(scores, labels, np.arange(4), ["de"] * 4)
    >>> try_thresholds(words, words, "recall", 1.0)[1][0]["threshold"]
    4.0
    """
    controls: dict[str, dict[str, Control]] = {}
    rows: Rows = []
    for metric, suspicion in judged.scores.items():
        for annotator in judged.labels:
            seen, bad = calibration.seen(annotator)
            own, units = calibration.scores[metric][seen], calibration.segment[seen]
            if rule == "missed":
                control = control_missed(own, bad, units, level or 0.0, confidence=confidence)
            else:
                control = choose_threshold(own, bad, rule, level, len(np.unique(units)))
            controls.setdefault(metric, {})[annotator] = control
            known, wrong = judged.seen(annotator)
            flags = control.flags(suspicion[known])
            shares, hits = missed_shares(flags, wrong, judged.segment[known]), int((flags & wrong).sum())
            n = len(shares)
            rows.append(
                {
                    "annotator": annotator,
                    "metric": metric,
                    "threshold": control.threshold,
                    "precision": hits / flags.sum() if flags.any() else float("nan"),
                    "recall": hits / wrong.sum() if wrong.any() else float("nan"),
                    "missed": float(shares.mean()) if n else float("nan"),
                    "standard_error": float(shares.std(ddof=1) / n**0.5) if n > 1 else float("nan"),
                    "flagged": float(flags.mean()) if len(flags) else float("nan"),
                    "segments": n,
                    "promise": control.promise,
                }
            )
    return controls, rows


# Annotators -----------------------------------------------------------------------------------------------


def edit_count_correlations(judged: Judged, seed: int = 0) -> Rows:
    """Correlate metrics with the number of annotators who marked a word, for more and more annotators.

    For every subset of a size, words count how many of its annotators marked them; only words that all of
    them saw take part. The median of Spearman's correlations over the subsets and the range that holds 95 %
    of them are returned for every group, size and metric. Where there are more than 1,000 subsets of a
    size, as many are drawn.

    Examples
    --------
    >>> labels = {"a": np.array([1.0, 0, 0, 1]), "b": np.array([1.0, 0, 1, 0])}
    >>> judged = Judged({"m": np.array([4.0, 1, 3, 2])}, labels, np.arange(4), ["de"] * 4)
    >>> [(row["annotators"], round(row["median"], 3)) for row in edit_count_correlations(judged)]
    [(1, 0.671), (2, 0.949)]
    """
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for group in judged.groups:
        part = judged.of_group(group)
        marks = part.marks
        for size in range(1, marks.shape[1] + 1):
            found: dict[str, list[float]] = {metric: [] for metric in part.scores}
            for subset in _subsets(marks.shape[1], size, rng):
                counts = marks[:, subset].sum(axis=1)
                known = ~np.isnan(counts)
                for metric, suspicion in part.scores.items():
                    found[metric].append(spearman(suspicion[known], counts[known]))
            for metric, values in found.items():
                defined = np.array([value for value in values if not np.isnan(value)])
                low, high = interval(defined)
                median = float(np.median(defined)) if len(defined) else float("nan")
                head = {"group": group, "metric": metric, "annotators": size, "subsets": len(defined)}
                rows.append(head | {"median": median, "low": low, "high": high})
    return rows


def _subsets(annotators: int, size: int, rng: np.random.Generator) -> Iterable[list[int]]:
    if comb(annotators, size) <= MOST_SUBSETS:
        return map(list, combinations(range(annotators), size))
    drawn = (rng.choice(annotators, size, replace=False) for _ in range(MOST_SUBSETS))
    return [sorted(subset.tolist()) for subset in drawn]


def annotator_agreement(judged: Judged) -> Rows:
    """Krippendorff's alpha of each group: of the words' labels, and of the wrong words per segment.

    Labels are nominal, numbers of wrong words are on an interval scale.
    """
    rows: Rows = []
    for group in judged.groups:
        part = judged.of_group(group)
        marks = part.marks
        numbers = np.stack([_per_segment(column, part.segment, len(part.group)) for column in marks.T])
        rows.append(
            {
                "group": group,
                "annotators": marks.shape[1],
                "segments": len(part.group),
                "words": len(marks),
                "alpha_words": krippendorff_alpha(marks.T, "nominal"),
                "alpha_counts": krippendorff_alpha(numbers, "interval"),
            }
        )
    return rows


def _per_segment(labels: Floats, segment: Integers, segments: int) -> Floats:
    """Wrong words per segment, NaN for a segment that was not seen as a whole."""
    return np.bincount(segment, labels, minlength=segments).astype(np.float64)


def krippendorff_alpha(ratings: ArrayLike, scale: Scale = "nominal") -> float:
    """Krippendorff's alpha: 1 for perfect agreement, 0 for what chance would give.

    Parameters
    ----------
    ratings
        One row a rater, one column a unit; NaN where a rater did not rate. Units with fewer than two
        ratings do not count.
    scale
        Whether ratings are names (``nominal``) or numbers whose differences count (``interval``).

    Returns
    -------
    float
        NaN where no unit has two ratings, or all ratings are equal.

    Examples
    --------
    >>> round(krippendorff_alpha([[1, 2, 3, 3], [1, 2, 3, 4]]), 3)
    0.696
    """
    if scale not in get_args(Scale):
        raise InputError(f"a scale is nominal or interval, found '{scale}'")
    values = np.asarray(ratings, dtype=np.float64)
    if values.ndim != 2:
        raise InputError("agreement needs a table of ratings: raters by units")
    known = ~np.isnan(values)
    pairable = known.sum(axis=0) >= 2
    values, known = values[:, pairable], known[:, pairable]
    m, n = known.sum(axis=0), int(known.sum())
    if scale == "interval":
        filled = np.where(known, values, 0.0)
        mean = filled.sum(axis=0) / m
        # Squared differences of all ordered pairs are 2 m times the sum of squares around the mean.
        within = 2 * m * np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
        total = 2 * n * ((values[known] - values[known].mean()) ** 2).sum() if n else 0.0
    else:
        names = np.unique(values[known])
        same = np.stack([(values == name).sum(axis=0) for name in names]) if n else np.zeros((1, 0))
        within = (m**2 - (same**2).sum(axis=0)).astype(np.float64)
        total = float(n**2 - (same.sum(axis=1) ** 2).sum())
    if not total:
        return float("nan")
    return float(1 - (n - 1) * (within / (m - 1)).sum() / total)
