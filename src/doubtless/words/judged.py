"""Words of translations with what metrics and annotators say about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from doubtless.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Judged:
    """Words of many segments: what metrics and annotators say about them.

    Parameters
    ----------
    scores
        Of each metric: the suspicion of each word, higher for worse.
    labels
        Of each annotator: 1 where a word is wrong, 0 where it is right, NaN where nobody asked.
    segment
        The segment of each word, counted from 0.
    group
        The language (or any other group) of each segment.

    Examples
    --------
    >>> judged = Judged({"m": np.array([0.9, 0.1])}, {"a": np.array([1.0, 0])}, np.array([0, 0]), ["de"])
    >>> judged.groups
    ['de']
    """

    scores: Mapping[str, Floats]
    labels: Mapping[str, Floats]
    segment: Integers
    group: Sequence[str]

    def __post_init__(self) -> None:
        if not self.labels:
            raise InputError("there are no annotators")
        for name, values in [*self.scores.items(), *self.labels.items()]:
            if len(values) != len(self.segment):
                raise InputError(f"{len(values)} values of '{name}' for {len(self.segment)} words")
        for name, values in self.scores.items():
            if np.isnan(values).any():
                raise InputError(f"a suspicion of '{name}' is missing")
        for name, values in self.labels.items():
            if not np.isin(values[~np.isnan(values)], (0, 1)).all():
                raise InputError(f"a label of '{name}' is neither 0 nor 1")

    @property
    def groups(self) -> list[str]:
        """The groups, in the order in which they come."""
        return list(dict.fromkeys(self.group))

    @property
    def marks(self) -> Floats:
        """The labels as a matrix: words by annotators."""
        return np.stack(list(self.labels.values()), axis=1)

    def of_group(self, name: str) -> Judged:
        """The words of one group."""
        return self.of_segments(np.array([group == name for group in self.group], dtype=bool))

    def of_metrics(self, names: Iterable[str]) -> Judged:
        """The words with some of the metrics."""
        return replace(self, scores={name: self.scores[name] for name in names})

    def of_segments(self, keep: np.ndarray) -> Judged:
        """The words of some segments, given by a mask; those that are kept are counted anew."""
        words = keep[self.segment]
        number = np.cumsum(keep) - 1
        group = [name for name, kept in zip(self.group, keep, strict=True) if kept]
        scores, labels = (
            {name: values[words] for name, values in part.items()} for part in (self.scores, self.labels)
        )
        return Judged(scores, labels, number[self.segment[words]], group)

    def halves(self, seed: int = 0) -> tuple[Judged, Judged]:
        """Two random halves of the segments, one to judge and one to calibrate by."""
        if len(self.group) < 2:
            raise InputError(
                "one segment cannot choose thresholds and try them: more segments, or others (--calibration)"
            )
        first = np.random.default_rng(seed).permutation(len(self.group)) % 2 == 0
        return self.of_segments(first), self.of_segments(~first)

    def seen(self, annotator: str) -> tuple[np.ndarray, np.ndarray]:
        """Which words an annotator saw, and which of these are wrong."""
        labels = self.labels[annotator]
        known = ~np.isnan(labels)
        return known, labels[known] == 1
