"""Segments: tables of translations and scores, read from any common format and written back.

A :class:`Table` is a Polars frame that remembers where each row came from, so that whatever is wrong with
a value can be said with file and line. Text stays exactly as it was: cells of TSV and CSV files are kept
as strings and turned into numbers only where a number is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats import delimited, frames, json, parquet, text, values
from doubtless.formats.files import named, opened, replace_file
from doubtless.formats.guard import refused
from doubtless.formats.registry import ENDINGS, parse, sniffed, unknown_format
from doubtless.formats.words import counted, listed, quoted

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Table:
    """Rows of segments, with the place each one came from.

    Parameters
    ----------
    frame
        The data. Columns keep the names they have in the file.
    name
        What messages call the table: the file as the user wrote it.
    lines
        Line (or, for formats without lines, row) of each row, counted from 1.
    roles
        Which column plays which part, where that is not the column of the same name:
        ``{"mt": "hyp"}``.
    has_lines
        Whether ``lines`` are lines, and not just rows.
    known
        Columns of the file, for messages, when not all of them were kept.

    Examples
    --------
    >>> table = as_table([{"src": "Haus", "mt": "house", "human": 0.9}])
    >>> table.numbers("human")
    array([0.9])
    """

    frame: pl.DataFrame
    name: str
    lines: np.ndarray
    roles: Mapping[str, str] = field(default_factory=dict)
    has_lines: bool = True
    known: Collection[str] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Say where a row came from: ``segments.tsv:17``."""
        return f"{self.name}:{self.lines[row]}" if self.has_lines else f"{self.name}, row {self.lines[row]}"

    def has(self, column: str) -> bool:
        """Whether the table has this column, by its own name or by its role."""
        return self.roles.get(column, column) in self.frame.columns

    def check_free(self, names: Iterable[str], hint: str = "") -> None:
        """Refuse to write new columns over those that are there."""
        for name in names:
            if name in self.frame.columns:
                advice = f" ({hint})" if hint else ""
                raise InputError(f"{self.name}: there is a column '{name}' already{advice}")

    def column(self, column: str) -> pl.Series:
        """Return a column by its own name or by its role."""
        name = self.roles.get(column, column)
        if name not in self.frame.columns:
            if name in self.known:
                raise InputError(f"{self.name}: column {quoted(name)} was not among those to be read")
            columns = listed(self.known or self.frame.columns)
            raise InputError(f"{self.name}: no column {quoted(name)} (its columns: {columns})")
        return self.frame[name]

    def numbers(self, column: str, missing: bool = False) -> Floats:
        """Return a column as finite numbers.

        Parameters
        ----------
        column
            Name or role.
        missing
            Whether empty cells and nulls are allowed; they become NaN.
        """
        series = self.column(column)
        if series.dtype == pl.String:
            found, absent, wrong = values.numbers(series)
            if wrong.any():
                row = _first(wrong)
                cell = quoted(series[row])
                raise InputError(f"{self.place(row)}: {cell} in column {quoted(series.name)} is not a number")
        elif series.dtype.is_numeric() or series.dtype == pl.Null:
            found = series.cast(pl.Float64)
            # A NaN in a binary format is how many programs write "missing".
            absent = found.is_null() | (found.is_nan().fill_null(True) & missing)
        else:
            raise self._unfit(series, "numbers")
        result = found.to_numpy().astype(np.float64, copy=False)
        bad = ~np.isfinite(result)
        if missing:
            bad &= ~absent.to_numpy()
        if bad.any():
            row = int(bad.argmax())
            what = "empty" if absent[row] else f"{result[row]}, not a finite number"
            raise InputError(f"{self.place(row)}: column {quoted(series.name)} is {what}")
        return result

    def number_lists(self, column: str) -> Floats:
        """Return a column of equally long lists of finite numbers as a matrix.

        In TSV and CSV a list is a JSON list: ``[0.1, 0.3]``.
        """
        series = self.column(column)
        if series.dtype == pl.String:
            lists, wrong = values.number_lists(series)
            if wrong.any():
                row = _first(wrong)
                cell = quoted(series[row] or "")
                raise InputError(
                    f"{self.place(row)}: {cell} in column {quoted(series.name)} is not a list of numbers"
                )
        elif isinstance(series.dtype, pl.List | pl.Array) and (
            series.dtype.inner.is_numeric() or series.dtype.inner == pl.Null
        ):
            lists = series.cast(pl.List(pl.Float64))
        else:
            raise self._unfit(series, "lists of numbers")
        lengths = lists.list.len().fill_null(0)
        width = lengths[0] if len(lengths) else 0
        uneven = (lengths != width) | (lengths == 0)
        if uneven.any():
            row = _first(uneven)
            expected = f"{width} as in the first row" if width else "some"
            raise InputError(
                f"{self.place(row)}: {counted(lengths[row], 'number')} in {quoted(series.name)},"
                f" expected {expected}"
            )
        matrix = lists.explode().to_numpy().reshape(-1, width)
        bad = ~np.isfinite(matrix).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"{self.place(row)}: {quoted(series.name)} holds a number that is missing or not finite"
            )
        return matrix

    def _unfit(self, series: pl.Series, wish: str) -> InputError:
        return InputError(f"{self.name}: column {quoted(series.name)} holds {series.dtype}, expected {wish}")

    def labels(self, columns: Sequence[str]) -> pl.Series:
        """Return the group of each row: the values of one column, or of several joined by ``/``."""
        parts = []
        for series in map(self.column, columns):
            if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
                raise self._unfit(series, "groups")
            part = series.cast(pl.String)
            absent = (part == "").fill_null(True)
            if absent.any():
                place = self.place(_first(absent))
                raise InputError(f"{place}: column {quoted(series.name)} is empty, expected a group")
            parts.append(part)
        frame = pl.DataFrame({str(i): part for i, part in enumerate(parts)})
        return frame.select(pl.concat_str(pl.all(), separator="/")).to_series()

    def take(self, rows: np.ndarray) -> Table:
        """Keep the given rows (a mask or row numbers)."""
        index = np.flatnonzero(rows) if rows.dtype == bool else rows
        frame = self.frame[index] if self.frame.width else self.frame
        return replace(self, frame=frame, lines=self.lines[index])

    def repeated(self) -> int:
        """Count the rows that repeat another row's source and translation (and system, if there is one)."""
        if not (self.has("src") and self.has("mt")):
            return 0
        texts = pl.DataFrame(
            [self.column(name).alias(name) for name in ("src", "mt", "system") if self.has(name)]
        )
        return self.frame.height - texts.n_unique()

    def where(self, condition: str) -> Table:
        """Keep the rows that meet a condition in SQL: ``not mt_is_ref and lp = 'en-de'``.

        Columns of strings that hold only numbers, or only true and false, are compared as such. Columns
        may be called by their roles.
        """
        with refused(f"the condition {quoted(condition)} cannot be used"):
            wish = pl.sql_expr(condition)
            typed = [
                values.typed(self.column(name)).alias(name) for name in dict.fromkeys(wish.meta.root_names())
            ]
            keep = self.frame.with_columns(typed).select(wish.cast(pl.Boolean).fill_null(False)).to_series()
            if len(keep) == 1:  # a condition on no column, or on all rows together
                keep = keep.new_from_index(0, len(self))
            if len(keep) != len(self):
                raise InputError(f"the condition {quoted(condition)} does not speak of single rows")
        if not keep.any():
            raise InputError(f"{self.name}: no row meets {quoted(condition)}")
        return self.take(keep.to_numpy())


def _first(mask: pl.Series) -> int:
    return int(mask.arg_max() or 0)


def read(
    source: str | os.PathLike[str],
    *,
    columns: Collection[str] | None = None,
    roles: Mapping[str, str] | None = None,
    format: str | None = None,
    quotes: bool = True,
) -> Table:
    """Read a table.

    Parameters
    ----------
    source
        A file, its format told by its ending (``.tsv .csv .jsonl .json .parquet``), or ``-`` for standard
        input, whose format is told by its first bytes.
    columns
        Columns to keep; a column that is not there is only missed when it is used. All by default.
    roles
        Columns that play a part under another name, for example ``{"mt": "hyp"}``.
    format
        Overrules the ending.
    quotes
        Whether double quotes quote cells in TSV and CSV. If not, they are ordinary characters.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        One sentence with file and line.
    """
    name = named(source)
    kind = format or ENDINGS.get(Path(source).suffix.lower())
    wanted = None if columns is None else {*columns, *(roles or {}).values()}
    with opened(source, name) as stream:
        if kind is None:
            kind, stream = sniffed(stream)
        parsed = parse(kind, stream, name, wanted, quotes)
    if not parsed.lines.size:
        raise InputError(f"{name}: the file holds no rows")
    table = Table(
        parsed.frame,
        name,
        parsed.lines,
        dict(roles or {}),
        has_lines=kind != "parquet",
        known=parsed.names,
    )
    for column in table.roles.values():
        table.column(column)
    return table


def read_parallel(
    source: str | os.PathLike[str],
    translations: Sequence[str | os.PathLike[str]],
    reference: str | os.PathLike[str] | None = None,
) -> Table:
    """Read parallel text, one segment a line; several translations become several systems.

    The table has ``src``, ``mt``, ``ref`` if given, ``system`` (the translation's file) and ``seg``.
    """
    files = [source, *translations, *([] if reference is None else [reference])]
    texts = []
    for path in files:
        with opened(path, named(path)) as stream:
            texts.append(text.segments_of(stream, named(path)))
    sources = texts[0]
    count = len(translations)
    if not count:
        raise InputError("no translation was given")
    for path, lines in zip(files, texts, strict=True):
        if len(lines) != len(sources):
            raise InputError(
                f"{named(path)}: {counted(len(lines), 'line')}, but {named(source)} has {len(sources)}"
            )
    if not sources:
        raise InputError(f"{named(source)}: the file is empty")
    data: dict[str, Any] = {"src": sources * count, "mt": list(chain(*texts[1 : count + 1]))}
    if reference is not None:
        data["ref"] = texts[-1] * count
    data["system"] = [os.fspath(path) for path in translations for _ in sources]
    data["seg"] = list(range(len(sources))) * count
    return Table(pl.DataFrame(data), named(source), np.tile(np.arange(1, len(sources) + 1), count))


def write_parallel(data: Any, files: Mapping[str, str | os.PathLike[str]]) -> None:
    """Write columns of text as parallel text, one file a column: ``{"src": "en.txt", "mt": "de.txt"}``.

    A missing text becomes an empty line. All columns are checked before the first file is written.
    """
    table = as_table(data)
    rendered = [(path, text.render(_one_line_texts(table, column))) for column, path in files.items()]
    for path, content in rendered:
        replace_file(path, content)


def _one_line_texts(table: Table, column: str) -> pl.Series:
    series = table.column(column)
    if series.dtype != pl.String:
        raise table._unfit(series, "text")
    series = series.fill_null("")
    broken = series.str.contains(r"\n|\r\z")  # a carriage return at the end would be taken for an ending
    if broken.any():
        place = table.place(_first(broken))
        raise InputError(f"{place}: column {quoted(series.name)} holds a line break, expected one line")
    return series


def as_table(data: Any, name: str = "the data") -> Table:
    """Take a table, a Polars or pandas frame, or a list of dicts (COMET's habit) as a table.

    >>> as_table([{"src": "Hund", "mt": "dog"}, {"src": "Katze", "mt": "cat"}]).frame.height
    2
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, pl.DataFrame):
        frame = data
    elif hasattr(data, "iloc") and hasattr(data, "columns"):
        frame = frames.from_pandas(data, name)
    elif isinstance(data, Iterable) and not isinstance(data, Mapping | str):
        rows = list(data)
        if not all(isinstance(row, Mapping) for row in rows):
            raise InputError(f"{name}: expected a data frame or a list of dicts")
        frame = frames.from_rows(rows, name)
    else:
        raise InputError(f"{name}: expected a data frame or a list of dicts")
    return Table(frame, name, np.arange(1, frame.height + 1), has_lines=False)


def render(frame: pl.DataFrame, format: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a table as the bytes of a file.

    JSON has no NaN and no infinity, they become null; see :mod:`doubtless.formats.delimited` for how TSV
    and CSV write what is missing. ``metadata`` goes into the footer of Parquet, the other formats have no
    place for it.
    """
    if format not in ENDINGS.values():
        raise unknown_format(format)
    for name, kind in frame.schema.items():
        if kind in (pl.Binary, pl.Object) and format != "parquet":
            raise InputError(f"column {quoted(name)} holds {kind}, which {format} cannot hold")
    with refused(f"the table cannot be written as {format}"):
        if format == "parquet":
            return parquet.render(frame, metadata or {})
        if format == "jsonl":
            return json.render_lines(frame).encode()
        if format == "json":
            return json.render_list(frame).encode()
        return delimited.render(frame, "\t" if format == "tsv" else ",").encode()


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's ending stands for.

    >>> format_of("scores.tsv")
    'tsv'
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{named(path)}: unknown ending {quoted(ending)}, expected one of: {' '.join(ENDINGS)}"
        )
    return ENDINGS[ending]


def write(
    frame: pl.DataFrame | Table, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a table to a file, in the format of its ending, whole or not at all."""
    kind = format_of(path)
    data = frame.frame if isinstance(frame, Table) else frame
    replace_file(path, render(data, kind, metadata))
