"""Numbers by key, in three bytes each: what is known of units and of pairs of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from doubtless.surface.units import NOTHING, Codes
from doubtless.warp import Floats

Keys = np.ndarray[Any, np.dtype[np.uint32]]

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_BUCKETS = 1 << 16


def keys(kind: str, first: Codes, second: Codes | int = NOTHING) -> Keys:
    """The key of each unit, or pair of units, in a table of a kind.

    Keys have 32 bits: among a million entries, a unit that is not there is mistaken for one that is once in
    four thousand times.
    """
    # Products modulo 2**64 are what is wanted; their upper half is well mixed.
    other = np.atleast_1d(np.asarray(second, dtype=np.uint64)) + np.uint64(crc32(kind.encode()))
    mixed = first * _FIRST + other * _SECOND
    mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed * _FIRST) >> np.uint64(32), dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class Table:
    """Keys and, for each, a number from 0 to 1 in a byte.

    Entries are sorted by key and lie in buckets by the upper half of it, so that only the lower half is
    kept of each.

    Attributes
    ----------
    starts
        Where each bucket begins, and where the last one ends.
    lower, values
        The lower half of each key, and its number.

    Examples
    --------
    >>> codes = np.array([5, 9], dtype=np.uint64)
    >>> table = Table.of([(keys("seen", codes), np.array([0.2, 1.0]))])
    >>> table.look(keys("seen", np.array([9, 7, 5], dtype=np.uint64)), 0.0).tolist()
    [1.0, 0.0, 0.2]
    """

    starts: Keys
    lower: np.ndarray[Any, np.dtype[np.uint16]]
    values: np.ndarray[Any, np.dtype[np.uint8]]

    @classmethod
    def of(cls, parts: Sequence[tuple[Keys, Floats]]) -> Table:
        """Put entries together; of several with one key the first stays."""
        every, place = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
        values = np.clip(np.concatenate([part[1] for part in parts])[place], 0, 1)
        starts = np.searchsorted(every >> np.uint32(16), np.arange(_BUCKETS + 1)).astype(np.uint32)
        return cls(starts, every.astype(np.uint16), np.rint(values * 255).astype(np.uint8))

    def __len__(self) -> int:
        return len(self.lower)

    def check(self) -> None:
        """Raise ValueError if the parts do not fit together."""
        fits = len(self.starts) == _BUCKETS + 1 and (np.diff(self.starts.astype(np.int64)) >= 0).all()
        if not (fits and self.starts[-1] == len(self.lower) == len(self.values)):
            raise ValueError("the parts of the table do not fit together")

    def look(self, wanted: Keys, missing: float) -> Floats:
        """The numbers of some keys; those that are not there have another."""
        bucket, half = wanted >> np.uint32(16), wanted.astype(np.uint16)
        low, end = self.starts[bucket].astype(np.int64), self.starts[bucket + np.uint32(1)].astype(np.int64)
        if not len(self):
            return np.full(len(wanted), missing)
        high, last = end, len(self) - 1
        for _ in range(int((end - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            above = (self.lower[np.minimum(middle, last)] < half) & (middle < high)
            low, high = np.where(above, middle + 1, low), np.where(above, high, middle)
        place = np.minimum(low, last)
        there = (low < end) & (self.lower[place] == half)
        return np.where(there, self.values[place] / 255.0, missing)
