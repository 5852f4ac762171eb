"""Rows on their way from a parser to a data frame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

ROWS_PER_CHUNK = 50_000

_LINE = "\0line"  # NUL is refused in every file, so that no column can have this name


@dataclass(frozen=True)
class Parsed:
    """A data frame, the line of the file on which each of its rows began, and all columns of the file."""

    frame: pl.DataFrame
    lines: np.ndarray
    names: Sequence[str]


@dataclass
class Gathering:
    """Frames collected chunk by chunk, so that a large file never stands in memory as Python objects."""

    frames: list[pl.DataFrame] = field(default_factory=list)

    def add(self, columns: Iterable[pl.Series], lines: Sequence[int]) -> None:
        """Append one chunk; its lines travel as a column, so that a chunk without others keeps its rows."""
        chunk = {_LINE: pl.Series(lines, dtype=pl.Int64), **{column.name: column for column in columns}}
        self.frames.append(pl.DataFrame(chunk))

    def parsed(self, names: Sequence[str]) -> Parsed:
        """Join the chunks; a column that a chunk lacks is missing in its rows."""
        frame = pl.concat(self.frames, how="diagonal_relaxed")
        return Parsed(frame.drop(_LINE), frame[_LINE].to_numpy(), names)


def is_wanted(name: str, wanted: Collection[str] | None) -> bool:
    """Whether a column is to be kept; everything is when nothing in particular is wanted."""
    return wanted is None or name in wanted
