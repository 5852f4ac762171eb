"""Calibration rows that come back among the new ones break the promise: find them by fingerprints."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import polars as pl

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_AT_ONCE = 8_192
MOST_KEPT = 4096


def fingerprints(frame: pl.DataFrame) -> Hashes:
    """A 64-bit hash of each row, the same on every machine."""
    cells = pl.all().cast(pl.String).fill_null("\0")
    whole = pl.concat_str(cells, separator="\x1f")
    digests = bytearray()
    for part in frame.iter_slices(_AT_ONCE):  # a long table need not be there twice, as Python's strings
        for row in part.select(whole).to_series():
            digests += blake2b(row.encode(), digest_size=8).digest()
    return np.frombuffer(bytes(digests), dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, eq=False)
class Sketch:
    """The smallest fingerprints of a table: enough to estimate an overlap, small enough for a file.

    A row is in the sketch or not by its content alone, so the share of a new table's small fingerprints
    that the sketch holds estimates the share of all its rows that were seen before; it is exact for
    tables of up to 4,096 different rows.
    """

    kept: Hashes
    complete: bool

    @classmethod
    def of(cls, hashes: Hashes) -> Sketch:
        """Sketch the rows of a calibration table."""
        distinct = np.unique(hashes)
        return cls(distinct[:MOST_KEPT], len(distinct) <= MOST_KEPT)

    def seen_again(self, hashes: Hashes) -> int:
        """Count (or, beyond 4,096 calibration rows, estimate) the rows that occur in the sketched table."""
        if not len(self.kept):
            return 0
        comparable = hashes if self.complete else hashes[hashes <= self.kept[-1]]
        hits = int(np.isin(comparable, self.kept).sum())
        return hits if self.complete or not hits else round(hits * len(hashes) / len(comparable))
