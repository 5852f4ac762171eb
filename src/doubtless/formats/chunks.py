"""Rows on their way from a parser to a data frame."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import polars as pl

ROWS_PER_CHUNK = 50_000


@dataclass(frozen=True)
class Parsed:
    """A data frame and the line of the file on which each of its rows began."""

    frame: pl.DataFrame
    lines: np.ndarray


@dataclass
class Gathering:
    """Frames collected chunk by chunk, so that a large file never stands in memory as Python objects."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)

    def add(self, frame: pl.DataFrame, lines: list[int]) -> None:
        """Append one chunk."""
        self.frames.append(frame)
        self.lines.append(np.asarray(lines, dtype=np.int64))

    def parsed(self) -> Parsed:
        """Join the chunks; a column that a chunk lacks is missing in its rows."""
        return Parsed(pl.concat(self.frames, how="diagonal_relaxed"), np.concatenate(self.lines))


def is_wanted(name: str, wanted: Collection[str] | None) -> bool:
    """Whether a column is to be kept; everything is when nothing in particular is wanted."""
    return wanted is None or name in wanted
