"""Texts as rows of units: words without their endings, as numbers that are the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl

from doubtless.gp.ngrams import Sentences
from doubtless.warp import Floats

Codes = np.ndarray[Any, np.dtype[np.uint64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

NOTHING: int = crc32(b"")
"""The code of no unit: what stands before the first, and what a unit without a source comes from."""

MOST_UNITS = 300
"""Units that are read of a text: more than an encoder takes."""
_ENDING = 5  # characters that are kept of a word


@dataclass(frozen=True, eq=False)
class Units:
    """The units of some texts, one text after the other.

    A unit is a lower-cased word up to its fifth character, so that forms of a word are one, a character of
    a script without spaces, or a sign.

    Attributes
    ----------
    codes
        A number for each unit.
    owner
        Which text each belongs to.
    count
        Of texts.
    """

    codes: Codes
    owner: Ints
    count: int

    @classmethod
    def of(cls, texts: pl.Series) -> Units:
        """Cut texts into units, up to :data:`MOST_UNITS` of each.

        >>> units = Units.of(pl.Series(["Translations", "translated, translates", ""]))
        >>> units.owner.tolist(), len(set(units.codes.tolist()))
        ([0, 1, 1, 1], 2)
        """
        found = _first(Sentences.of(texts))
        cut = found.words.str.slice(0, _ENDING)
        distinct = cut.unique(maintain_order=True)
        codes = pl.Series([crc32(unit.encode()) for unit in distinct], dtype=pl.UInt64)
        numbers = cut.replace_strict(distinct, codes, return_dtype=pl.UInt64) if len(cut) else codes
        return cls(numbers.to_numpy().astype(np.uint64), found.owner, found.count)

    @property
    def lengths(self) -> Ints:
        """How many units each text has."""
        return np.bincount(self.owner, minlength=self.count)

    @property
    def before(self) -> Codes:
        """The unit before each one in its text."""
        previous = np.roll(self.codes, 1)
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))
        previous[first] = NOTHING
        return previous


def _first(found: Sentences) -> Sentences:
    lengths = found.lengths
    if lengths.max(initial=0) <= MOST_UNITS:
        return found
    place = np.arange(len(found.owner)) - (np.cumsum(lengths) - lengths)[found.owner]
    kept = place < MOST_UNITS
    return Sentences(found.words.filter(pl.Series(kept)), found.owner[kept], found.count)


@dataclass(frozen=True, eq=False)
class Meetings:
    """Every unit of some texts, and no unit, beside every unit of the texts that belong to them.

    Attributes
    ----------
    left, right
        The units that meet.
    place
        Which unit of the right texts it is; in order.
    """

    left: Codes
    right: Codes
    place: Ints

    @classmethod
    def of(cls, left: Units, right: Units) -> Meetings:
        """Let each unit of the right texts meet all of its left text.

        >>> words = pl.Series(["a b", "c"])
        >>> Meetings.of(Units.of(words), Units.of(words)).place.tolist()
        [0, 0, 0, 1, 1, 1, 2, 2]
        """
        lengths = left.lengths
        repeats = lengths[right.owner] + 1
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        at = np.repeat(starts[right.owner], repeats) + within - 1
        codes = np.append(left.codes, np.uint64(NOTHING))
        return cls(
            np.where(within == 0, np.uint64(NOTHING), codes[at]),
            np.repeat(right.codes, repeats),
            np.repeat(np.arange(len(right.codes)), repeats),
        )


def in_order(values: Floats, owner: Ints, count: int) -> Floats:
    """The values of the units of each text in five numbers, without their order.

    The mean, the means of the lowest and of the highest quarter, the lowest and the middle one; zeros where
    there are no values.

    >>> in_order(np.array([3.0, 1.0, 2.0, 4.0, 7.0]), np.array([0, 0, 0, 0, 2]), 3).tolist()
    [[2.5, 1.0, 4.0, 1.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0], [7.0, 7.0, 7.0, 7.0, 7.0]]
    """
    lengths = np.bincount(owner, minlength=count)
    starts = np.cumsum(lengths) - lengths
    ordered = values[np.lexsort((values, owner))]
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    some = lengths > 0
    begin, size = starts[some], lengths[some]
    quarter = np.maximum(size // 4, 1)
    found = np.zeros((count, 5))
    found[some, 0] = (sums[begin + size] - sums[begin]) / size
    found[some, 1] = (sums[begin + quarter] - sums[begin]) / quarter
    found[some, 2] = (sums[begin + size] - sums[begin + size - quarter]) / quarter
    found[some, 3] = ordered[begin]
    found[some, 4] = ordered[begin + size // 2]
    return found
