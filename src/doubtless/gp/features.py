"""Where the features of a table's rows come from: a file, columns, the texts, the translation system."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.text import decoded_lines
from doubtless.formats.words import counted
from doubtless.gp import glassbox, quest
from doubtless.gp.quest import Quest
from doubtless.segments import Table
from doubtless.warp import Floats

_TARGETS = ("tgt", "ref", "mt")


@dataclass(frozen=True, eq=False)
class Extractor:
    """Features by their sources, in this order; a model keeps the one it was fitted with.

    Parameters
    ----------
    file
        How many features come from a file of numbers, one line a row (``feats.17``).
    columns
        Columns of the table that are features.
    texts
        Resource of the 17 QuEst features, which are computed from ``src`` and ``mt``.
    glass_box
        Whether to use the token log-probabilities in ``nmt_logprobs``.
    left_out
        Names of computed features that are not used, because they were constant.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> table = as_table([{"length": 3, "score": 0.5}])
    >>> Extractor(columns=("length", "score")).read(table)
    array([[3. , 0.5]])
    """

    file: int = 0
    columns: tuple[str, ...] = ()
    texts: Quest | None = None
    glass_box: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for name in self._all_names if name not in self.left_out)

    @property
    def _all_names(self) -> tuple[str, ...]:
        numbered = tuple(f"file{i + 1}" for i in range(self.file))
        computed = (*(quest.NAMES if self.texts else ()), *(glassbox.NAMES if self.glass_box else ()))
        return (*numbered, *self.columns, *computed)

    def read(self, table: Table, file: str | os.PathLike[str] | None = None) -> Floats:
        """Return the features of a table's rows; those of a file are given with it."""
        parts = [np.zeros((len(table), 0))]
        if file is not None and not self.file:
            raise InputError(f"the model takes no features from a file: leave out {named(file)} (--features)")
        if self.file:
            if file is None:
                raise InputError(f"the model needs {self.file} features from a file (--features)")
            parts.append(read_numbers(file, len(table), table.name, self.file))
        parts += [table.numbers(name)[:, None] for name in self.columns]
        if self.texts is not None:
            parts.append(self.texts.features(*(_text(table, side) for side in ("src", "mt"))))
        if self.glass_box:
            parts.append(glassbox.features(table))
        keep = [name not in self.left_out for name in self._all_names]
        return np.hstack(parts)[:, keep]

    def without_constants(self, x: Floats) -> tuple[Extractor, Floats]:
        """Leave out computed features that are the same in all rows; given ones stay, to be complained of."""
        given = self.file + len(self.columns)
        constant = x.min(axis=0) == x.max(axis=0)
        constant[:given] = False
        names = tuple(name for name, flat in zip(self.names, constant, strict=True) if flat)
        return replace(self, left_out=(*self.left_out, *names)), x[:, ~constant]


def read_numbers(path: str | os.PathLike[str], rows: int, beside: str, width: int | None = None) -> Floats:
    """Read a file of numbers between spaces, one line for each row of a table."""
    name = named(path)
    with opened(path, name) as stream:
        lines = [line.split() for line in decoded_lines(stream, name)]
    if len(lines) != rows:
        raise InputError(f"{name}: {counted(len(lines), 'line')}, but {beside} has {counted(rows, 'row')}")
    expected = len(lines[0]) if width is None else width
    for number, cells in enumerate(lines, start=1):
        if len(cells) != expected or not cells:
            raise InputError(
                f"{name}:{number}: {counted(len(cells), 'number')}, expected {expected or 'some'}"
            )
    flat = pl.Series([cell for cells in lines for cell in cells]).cast(pl.Float64, strict=False)
    values = flat.fill_null(np.nan).to_numpy().reshape(rows, expected)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise InputError(f"{name}:{row + 1}: '{lines[row][column]}' is not a finite number")
    return values


def train_texts(corpus: Table, fitted_on: Table) -> tuple[Quest, int]:
    """Learn what QuEst's features need from a parallel corpus: ``src`` and ``tgt`` (or ``ref``, ``mt``).

    Sources that a model will be fitted on are left out, and counted. A corpus that holds them knows every
    word of theirs, but not of new sentences: all features would mean something else there.
    """
    target = next((name for name in _TARGETS if corpus.has(name)), _TARGETS[0])
    new = ~_text(corpus, "src").is_in(_text(fitted_on, "src").unique().to_list())
    if not new.any():
        raise InputError(
            f"{corpus.name}: all sources of the corpus are in {fitted_on.name}: take another one"
        )
    kept = corpus.take(new.to_numpy())
    return Quest.train(_text(kept, "src"), _text(kept, target)), len(corpus) - len(kept)


def _text(table: Table, role: str) -> pl.Series:
    series = table.column(role)
    if series.dtype != pl.String:
        raise InputError(f"{table.name}: column '{series.name}' holds {series.dtype}, expected text")
    return series
