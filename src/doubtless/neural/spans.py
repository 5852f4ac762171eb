"""From token probabilities to error spans and to one score, by the rules of UniTE and xCOMET.

Joint models that know source and reference read a segment three times: with the source, with the reference
and with both. The functions here turn what the three passes (or the single one, without a reference) give
into one score and one list of spans. They take and give plain arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

PROBABILITY_WEIGHTS = (0.1667, 0.3333, 0.5)
"""Weights of the passes (source, reference, both) in the probabilities of tags."""

SCORE_WEIGHTS = (0.12, 0.33, 0.33, 0.22)
"""Weights of the passes' scores in xCOMET and, last, of the score of the spans."""

PENALTIES = {"minor": 1, "major": 5, "critical": 10}
"""What a span costs (MQM); labels that are not here cost nothing."""

WORST = 25
"""The sum of penalties from which on a translation is as bad as can be."""


class Span(TypedDict):
    """An error in a translation: its characters, how bad it is and how probable on average."""

    text: str
    start: int
    end: int
    severity: str
    confidence: float


def word_probabilities(passes: Sequence[ArrayLike]) -> Floats:
    """Blend the probabilities of tags of one or three passes.

    Parameters
    ----------
    passes
        Probabilities of shape (..., tokens, tags). The translation comes first in every pass, so that the
        tokens that all of them have include it; the others are cut off.

    Examples
    --------
    >>> word_probabilities([[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]]).round(4).tolist()
    [[0.4167, 0.5833]]
    """
    arrays = [np.asarray(values) for values in passes]
    if len(arrays) == 1:
        return arrays[0]
    tokens = min(array.shape[-2] for array in arrays)
    weighted = [w * a[..., :tokens, :] for w, a in zip(PROBABILITY_WEIGHTS, arrays, strict=True)]
    return np.sum(weighted, axis=0)


def decode_spans(
    probabilities: ArrayLike,
    offsets: Sequence[tuple[int, int]],
    text: str,
    tags: Sequence[str],
    *,
    threshold: float | None = None,
    flush_open: bool = True,
) -> list[Span]:
    """Find the error spans of a translation: the longest runs of tokens that are tagged as errors.

    A span is as severe as its first token.

    Parameters
    ----------
    probabilities
        One row a token, one column a tag; rows beyond the offsets are not read.
    offsets
        First and last character of each token of the translation, special tokens included as ``(0, 0)``.
    text
        The translation.
    tags
        Names of the columns; the first means that there is no error.
    threshold
        Without one, each token has its most probable tag. With one, a token is an error if its error tags
        together are more probable than this; the most probable of them is then its tag.
    flush_open
        Whether a run that reaches the last token is a span, as it should be. COMET forgets such runs, and
        also reports runs of special tokens, which have no characters: False does as COMET does.

    Examples
    --------
    >>> offsets = [(0, 0), (0, 3), (4, 7), (0, 0)]
    >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.6, 0.4]]
    >>> decode_spans(probabilities, offsets, "The cow", ["O", "major"])
    [{'text': 'cow', 'start': 4, 'end': 7, 'severity': 'major', 'confidence': 0.9}]
    """
    rows = np.asarray(probabilities)[: len(offsets)]
    labels = _labels(rows, threshold)
    spans: list[Span] = []
    for wrong, group in groupby(range(len(rows)), key=lambda token: labels[token] > 0):
        run = list(group)
        if not wrong or (run[-1] == len(rows) - 1 and not flush_open):
            continue
        start, end = offsets[run[0]][0], max(offsets[token][1] for token in run)
        if start == end and flush_open:
            continue
        spans.append(
            Span(
                text=text[start:end],
                start=start,
                end=end,
                severity=tags[labels[run[0]]],
                confidence=float(rows[run, labels[run]].mean()),
            )
        )
    return spans


def _labels(rows: Floats, threshold: float | None) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The tag of each token."""
    if threshold is None:
        return rows.argmax(axis=1)
    errors = rows[:, 1:]
    return np.where(errors.sum(axis=1) > threshold, 1 + errors.argmax(axis=1), 0)


def mqm_score(spans: Iterable[Span]) -> float:
    """Score a translation by its errors: from 1, without any, down to 0.

    >>> mqm_score([{"text": "cow", "start": 4, "end": 7, "severity": "major", "confidence": 0.9}])
    0.8
    """
    return (WORST - min(WORST, sum(PENALTIES.get(span["severity"], 0) for span in spans))) / WORST


def xcomet_score(passes: ArrayLike, mqm: ArrayLike) -> Floats:
    """Combine the scores (passes, segments) of an xCOMET model with those of the spans it found.

    Scores above 1 count as 1. A single pass, without a reference, has the weight of all three.

    >>> xcomet_score([[0.5], [1.5], [1.0]], [0.8]).round(3).tolist()
    [0.896]
    """
    capped = np.minimum(np.asarray(passes), 1.0)
    *of_passes, of_spans = SCORE_WEIGHTS
    weights = of_passes if len(capped) == len(of_passes) else [sum(of_passes)]
    regression = np.sum([w * scores for w, scores in zip(weights, capped, strict=True)], axis=0)
    return regression + of_spans * np.asarray(mqm)
