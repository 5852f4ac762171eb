"""Counting by rank: what correlations and sequential tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Integers = np.ndarray[Any, np.dtype[np.int64]]


def earlier_greater(values: ArrayLike) -> Integers:
    """Count, for each value, the earlier ones that are strictly greater.

    The sum of the counts is the number of inversions. O(n log n) without a Python loop over rows: the
    ranks are sorted bit by bit, most significant first. At every level each block of ranks holds as many
    zeros as ones, so that a block is a row of a matrix and a cumulative sum counts the ones passed so far.

    >>> earlier_greater([3, 1, 2, 2, 0])
    array([0, 1, 1, 1, 4])
    """
    x = np.asarray(values)
    n = len(x)
    if n < 2:
        return np.zeros(n, dtype=np.int64)
    bits = (n - 1).bit_length()
    size = 1 << bits
    rank = np.empty(size, dtype=np.int64)
    # A stable sort gives equal values ascending ranks, so that an equal one is never "greater".
    rank[np.argsort(x, kind="stable")] = np.arange(n)
    rank[n:] = np.arange(n, size)
    count = np.zeros(size, dtype=np.int64)
    for bit in range(bits - 1, -1, -1):
        half = 1 << bit
        ones = (rank >> bit) & 1 == 1
        zeros = np.flatnonzero(~ones)
        passed = np.cumsum(ones)[zeros] - np.repeat(np.arange(size // (2 * half)) * half, half)
        count[rank[zeros]] += passed
        blocks = rank[zeros].reshape(-1, half), rank[ones].reshape(-1, half)
        rank = np.concatenate(blocks, axis=1).ravel()
    result = np.empty(n, dtype=np.int64)
    result[np.argsort(x, kind="stable")] = count[:n]
    return result
