"""Candidates by source, from a table: one row a candidate, or one row a source with a list of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.segments import Floats, Table

Array = np.ndarray[Any, Any]

_OF_SOURCES = ("src", "ref", "seg", "lp")  # columns that all candidates of a source share


@dataclass(frozen=True, eq=False)
class Pools:
    """Which rows compete with each other.

    Parameters
    ----------
    rows
        For each source (in the order in which they appear) the rows of its candidates, -1 where it has
        fewer than others. Of identical candidates only the first stands here: they are scored once.
    copies
        How many rows each of them stands for.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> table = as_table([{"src": "Haus", "mt": mt} for mt in ("house", "home", "house")])
    >>> Pools.of(table).rows, Pools.of(table).copies
    (array([[0, 1]]), array([[2, 1]]))
    """

    rows: Array
    copies: Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def present(self) -> Array:
        """Which places of the matrices hold a candidate."""
        return self.rows >= 0

    @classmethod
    def of(cls, table: Table) -> Pools:
        """Find the candidates of each source: rows of one ``lp`` and ``seg``, or else of one ``src``."""
        names = ["seg"] if table.has("seg") else ["src"]
        names += ["lp"] if table.has("lp") else []
        keys = pl.DataFrame({name: table.column(name) for name in names})
        source = keys.select(pl.struct(names).rank("dense") - 1).to_series().to_numpy().astype(np.int64)
        texts = table.column("mt").cast(pl.String).fill_null("").to_list()
        if table.has("seg") and table.has("src"):
            _check_sources(table, source)
        pools: dict[int, dict[str, list[int]]] = {}
        for row, (one, text) in enumerate(zip(source.tolist(), texts, strict=True)):
            pools.setdefault(one, {}).setdefault(text, []).append(row)
        most = max(map(len, pools.values()))
        rows, copies = (np.full((len(pools), most), filler, dtype=np.int64) for filler in (-1, 0))
        for number, pool in enumerate(pools.values()):
            rows[number, : len(pool)] = [same[0] for same in pool.values()]
            copies[number, : len(pool)] = [len(same) for same in pool.values()]
        return cls(rows, copies)

    def matrix(self, values: Array) -> Floats:
        """Numbers of the table's rows at the places of their candidates, NaN where there is none."""
        return np.where(self.present, np.asarray(values, dtype=np.float64)[self.rows], np.nan)


def _check_sources(table: Table, source: Array) -> None:
    """Candidates of one segment translate one text."""
    texts = table.column("src").cast(pl.String).fill_null("").to_list()
    first: dict[int, int] = {}
    for row, one in enumerate(source.tolist()):
        other = first.setdefault(one, row)
        if texts[row] != texts[other]:
            segment = table.column("seg")[row]
            raise InputError(
                f"{table.place(row)}: the source of segment '{segment}' differs from {table.place(other)}"
            )


def one_row_each(table: Table) -> Table:
    """A table with one row a candidate: a column of lists of translations becomes as many rows.

    Other columns of lists that are as long, row by row, such as systems or log-probabilities, go along.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> table = as_table([{"src": "Haus", "mt": ["house", "home"], "system": ["a", "b"]}])
    >>> one_row_each(table).frame.rows()
    [('Haus', 'house', 'a'), ('Haus', 'home', 'b')]
    """
    _check_kinds(table)
    column = table.column("mt")
    if not isinstance(column.dtype, pl.List):
        return table
    if not (table.has("seg") or table.has("src")):
        raise InputError(f"{table.name}: candidates need a source: there is no column 'src'")
    lengths = column.list.len().fill_null(0)
    _refuse_where(lengths == 0, table, "the source has no candidate")
    missing = column.list.eval(pl.element().is_null()).list.any()
    _refuse_where(missing, table, "one of the candidates is missing (null)")
    frame = table.frame
    lists = [
        name
        for name, kind in frame.schema.items()
        if isinstance(kind, pl.List) and frame[name].list.len().equals(lengths, null_equal=True)
    ]
    return replace(table, frame=frame.explode(lists), lines=np.repeat(table.lines, lengths.to_numpy()))


def _check_kinds(table: Table) -> None:
    """Candidates are texts or lists of texts; what they have in common is one value a row."""
    for name in ("mt", *filter(table.has, _OF_SOURCES)):
        column = table.column(name)
        kind = column.dtype
        if name == "mt" and isinstance(kind, pl.List) and not kind.inner.is_nested():
            continue
        if kind.is_nested():
            wish = "texts or lists of texts" if name == "mt" else "one value for all candidates of a source"
            raise InputError(f"{table.name}: column '{column.name}' holds {kind}, expected {wish}")


def _refuse_where(wrong: pl.Series, table: Table, sentence: str) -> None:
    if wrong.any():
        raise InputError(f"{table.place(int(wrong.arg_max() or 0))}: {sentence}")
