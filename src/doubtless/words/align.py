"""The shortest edit between two sequences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Pairs = list[tuple[int | None, int | None]]


def align(before: Sequence[Hashable], after: Sequence[Hashable]) -> Pairs:
    """Align two sequences by an edit of least cost.

    Returns
    -------
    list of tuple
        Pairs of places, in order. None stands for nothing: ``(2, None)`` was removed, ``(None, 3)`` added.
        Among edits of equal cost, read from the end, replacing goes before removing and removing before
        adding.

    Examples
    --------
    >>> align("the cow jumped".split(), "the brown dog jumped".split())
    [(0, 0), (None, 1), (1, 2), (2, 3)]
    """
    cost = _costs(before, after)
    i, j = len(before), len(after)
    pairs: Pairs = []
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (before[i - 1] != after[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


def _costs(before: Sequence[Hashable], after: Sequence[Hashable]) -> np.ndarray:
    """The least cost of turning each beginning of one sequence into each beginning of the other."""
    numbers: dict[Hashable, int] = {}
    old, new = (np.array([numbers.setdefault(x, len(numbers)) for x in xs], int) for xs in (before, after))
    steps = np.arange(len(new) + 1)
    cost = np.empty((len(old) + 1, len(new) + 1), dtype=np.int32)
    cost[0] = steps
    for i, item in enumerate(old, 1):
        row = cost[i - 1] + 1  # removed
        row[1:] = np.minimum(row[1:], cost[i - 1, :-1] + (new != item))  # kept or replaced
        cost[i] = np.minimum.accumulate(row - steps) + steps  # added, any number of times
    return cost
