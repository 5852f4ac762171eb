"""Segments: tables of translations and scores, read from any common format and written back.

A :class:`Table` is a Polars frame that remembers where each row came from, so that whatever is wrong with
a value can be said with file and line. Text stays exactly as it was: cells of TSV and CSV files are kept
as strings and turned into numbers only where a number is asked for.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats import delimited, json, parquet, text
from doubtless.formats.chunks import Parsed
from doubtless.formats.files import opened, replace_file

Floats = np.ndarray[Any, np.dtype[np.float64]]

ENDINGS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


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

    def __len__(self) -> int:
        return self.frame.height

    def place(self, row: int) -> str:
        """Say where a row came from: ``segments.tsv:17``."""
        return f"{self.name}:{self.lines[row]}" if self.has_lines else f"{self.name}, row {self.lines[row]}"

    def has(self, column: str) -> bool:
        """Whether the table has this column, by its own name or by its role."""
        return self.roles.get(column, column) in self.frame.columns

    def column(self, column: str) -> pl.Series:
        """Return a column by its own name or by its role."""
        name = self.roles.get(column, column)
        if name not in self.frame.columns:
            names = ", ".join(self.frame.columns) or "none"
            raise InputError(f"{self.name}: no column '{name}' (its columns: {names})")
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
            stripped = series.str.strip_chars()
            absent = (stripped == "") | stripped.is_null()
            values = stripped.cast(pl.Float64, strict=False)
            wrong = values.is_null() & ~absent
            if wrong.any():
                row = int(wrong.arg_max() or 0)
                raise InputError(
                    f"{self.place(row)}: '{series[row]}' in column '{series.name}' is not a number"
                )
        elif series.dtype.is_numeric() or series.dtype == pl.Null:
            values = series.cast(pl.Float64)
            # A NaN in a binary format is how many programs write "missing".
            absent = values.is_null() | (values.is_nan().fill_null(False) if missing else False)
        else:
            raise InputError(f"{self.name}: column '{series.name}' holds {series.dtype}, expected numbers")
        found = values.to_numpy().astype(np.float64, copy=False)
        bad = ~np.isfinite(found)
        if missing:
            bad &= ~absent.to_numpy()
        if bad.any():
            row = int(bad.argmax())
            what = "empty" if absent[row] else f"{found[row]}, not a finite number"
            raise InputError(f"{self.place(row)}: column '{series.name}' is {what}")
        return found

    def number_lists(self, column: str) -> Floats:
        """Return a column of equally long lists of finite numbers as a matrix.

        In TSV and CSV a list is a JSON list: ``[0.1, 0.3]``.
        """
        series = self.column(column)
        if series.dtype == pl.String:
            try:
                series = series.str.json_decode(pl.List(pl.Float64))
            except pl.exceptions.PolarsError:
                raise InputError(
                    f"{self.name}: column '{column}' is not a list of numbers throughout"
                ) from None
        if not isinstance(series.dtype, pl.List | pl.Array):
            raise InputError(
                f"{self.name}: column '{column}' holds {series.dtype}, expected lists of numbers"
            )
        if isinstance(series.dtype, pl.Array):
            series = series.arr.to_list()
        lengths = series.list.len().fill_null(0).to_numpy()
        width = int(lengths[0]) if len(lengths) else 0
        if (lengths != width).any() or width == 0:
            row = int((lengths != width).argmax())
            raise InputError(
                f"{self.place(row)}: {lengths[row]} numbers in '{column}', expected {width or 'some'}"
            )
        try:
            matrix = series.list.to_array(width).to_numpy().astype(np.float64, copy=False)
        except (pl.exceptions.PolarsError, ValueError, TypeError):
            raise InputError(f"{self.name}: column '{column}' is not a list of numbers throughout") from None
        bad = ~np.isfinite(matrix).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            raise InputError(f"{self.place(row)}: '{column}' holds a number that is missing or not finite")
        return matrix

    def labels(self, columns: Sequence[str]) -> pl.Series:
        """Return the group of each row: the values of one column, or of several joined by ``/``."""
        parts = [self.column(name).cast(pl.String) for name in columns]
        for part in parts:
            if part.null_count():
                row = int(part.is_null().arg_max() or 0)
                raise InputError(f"{self.place(row)}: column '{part.name}' is empty, expected a group")
        frame = pl.DataFrame({str(i): part for i, part in enumerate(parts)})
        return frame.select(pl.concat_str(pl.all(), separator="/")).to_series()

    def take(self, rows: np.ndarray) -> Table:
        """Keep the given rows (a mask or row numbers)."""
        index = np.flatnonzero(rows) if rows.dtype == bool else rows
        return replace(self, frame=self.frame[index], lines=self.lines[index])

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

        Columns of strings that hold only numbers, or only true and false, are compared as such.
        """
        try:
            wish = pl.sql_expr(condition)
            for name in wish.meta.root_names():
                self.column(name)
            typed = self.frame.with_columns(
                _typed(self.frame[name]) for name in wish.meta.root_names() if name in self.frame.columns
            )
            keep = typed.select(wish.cast(pl.Boolean).fill_null(False)).to_series()
        except InputError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f'the condition "{condition}" cannot be used ({reason})') from None
        mask = keep.to_numpy()
        if len(mask) == 1 != len(self):
            mask = np.repeat(mask, len(self))
        if not mask.any():
            raise InputError(f'{self.name}: no row meets "{condition}"')
        return self.take(mask)


def _typed(series: pl.Series) -> pl.Series:
    if series.dtype != pl.String:
        return series
    values = series.set(series == "", None)  # an empty cell is missing
    numbers = values.cast(pl.Float64, strict=False)
    if numbers.null_count() == values.null_count():
        return numbers
    lowered = values.str.to_lowercase()
    if lowered.drop_nulls().is_in(["true", "false"]).all():
        return pl.Series(series.name, lowered == "true")
    return series


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
    name = "standard input" if os.fspath(source) == "-" else os.fspath(source)
    kind = format or (ENDINGS.get(Path(name).suffix.lower()) if name != "standard input" else None)
    wanted = None if columns is None else {*columns, *(roles or {}).values()}
    with opened(source, name) as stream:
        if kind is None:
            kind, stream = _sniff(stream)
        parsed = _parse(kind, stream, name, wanted, quotes)
    table = Table(parsed.frame, name, parsed.lines, dict(roles or {}), has_lines=kind != "parquet")
    if not parsed.lines.size:
        raise InputError(f"{name}: the file holds no rows")
    for column in (roles or {}).values():
        table.column(column)
    _refuse_nul(table)
    return table


def _parse(kind: str, stream: BinaryIO, name: str, wanted: Collection[str] | None, quotes: bool) -> Parsed:
    if kind in ("tsv", "csv"):
        return delimited.parse(stream, name, "\t" if kind == "tsv" else ",", wanted, quotes)
    if kind == "jsonl":
        return json.parse_lines(stream, name, wanted)
    if kind == "json":
        return json.parse_document(stream, name, wanted)
    if kind == "parquet":
        return parquet.parse(stream, name, wanted)
    raise InputError(f"unknown format '{kind}', expected one of: {', '.join(sorted(set(ENDINGS.values())))}")


def _sniff(stream: BinaryIO) -> tuple[str, BinaryIO]:
    """Tell the format from the first bytes."""
    data = stream.read()
    head = data[:65_536].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1"):
        kind = "parquet"
    elif head.startswith(b"["):
        kind = "json"
    elif head.startswith(b"{"):
        kind = "jsonl" if json.is_segment(head.split(b"\n", 1)[0]) else "json"
    else:
        kind = "tsv" if b"\t" in head.split(b"\n", 1)[0] else "csv"
    return kind, io.BytesIO(data)


def _refuse_nul(table: Table) -> None:
    for series in table.frame.iter_columns():
        if series.dtype == pl.String and series.str.contains("\0", literal=True).any():
            row = int(series.str.contains("\0", literal=True).fill_null(False).arg_max() or 0)
            raise InputError(f"{table.place(row)}: column '{series.name}' holds a NUL character")


def read_parallel(
    source: str | os.PathLike[str],
    translations: Sequence[str | os.PathLike[str]],
    reference: str | os.PathLike[str] | None = None,
) -> Table:
    """Read parallel text, one segment a line; several translations become several systems.

    The table has ``src``, ``mt``, ``ref`` if given, ``system`` (the translation's file) and ``seg``.
    """
    sources = _read_text(source)
    references = None if reference is None else _read_text(reference)
    files = [("reference", reference, references)] if references is not None else []
    systems = [(os.fspath(path), _read_text(path)) for path in translations]
    if not systems:
        raise InputError("no translation was given")
    for path, lines in [*systems, *((os.fspath(p or ""), t or []) for _, p, t in files)]:
        if len(lines) != len(sources):
            raise InputError(f"{path}: {len(lines)} lines, but {os.fspath(source)} has {len(sources)}")
    if not sources:
        raise InputError(f"{os.fspath(source)}: the file is empty")
    count = len(systems)
    data: dict[str, Any] = {"src": sources * count, "mt": [line for _, lines in systems for line in lines]}
    if references is not None:
        data["ref"] = references * count
    data["system"] = [path for path, lines in systems for _ in lines]
    data["seg"] = list(range(len(sources))) * count
    return Table(pl.DataFrame(data), os.fspath(source), np.tile(np.arange(1, len(sources) + 1), count))


def _read_text(path: str | os.PathLike[str]) -> list[str]:
    with opened(path, os.fspath(path)) as stream:
        return text.segments_of(stream, os.fspath(path))


def as_table(data: Any, name: str = "the data") -> Table:
    """Take a table, a Polars or pandas frame, or a list of dicts (COMET's habit) as a table.

    >>> as_table([{"src": "Hund", "mt": "dog"}, {"src": "Katze", "mt": "cat"}]).frame.height
    2
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, pl.DataFrame):
        frame = data
    elif hasattr(data, "to_dict") and hasattr(data, "iloc"):
        frame = pl.DataFrame(
            {str(c): pl.Series(str(c), data[c].to_list(), strict=False) for c in data.columns}
        )
    elif isinstance(data, Iterable):
        rows = list(data)
        if not all(isinstance(row, Mapping) for row in rows):
            raise InputError(f"{name}: expected a data frame or a list of dicts")
        frame = pl.DataFrame(rows, infer_schema_length=None)
    else:
        raise InputError(f"{name}: expected a data frame or a list of dicts")
    return Table(frame, name, np.arange(1, frame.height + 1), has_lines=False)


def render(frame: pl.DataFrame, format: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a table as the bytes of a file."""
    if format == "tsv":
        return delimited.render(frame, "\t").encode()
    if format == "csv":
        return delimited.render(frame, ",").encode()
    if format == "jsonl":
        return json.render_lines(frame).encode()
    if format == "json":
        return json.render_list(frame).encode()
    if format == "parquet":
        return parquet.render(frame, metadata or {})
    raise InputError(
        f"unknown format '{format}', expected one of: {', '.join(sorted(set(ENDINGS.values())))}"
    )


def write(
    frame: pl.DataFrame | Table, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a table to a file, in the format of its ending, whole or not at all."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{os.fspath(path)}: unknown ending '{ending}', expected one of: {' '.join(ENDINGS)}"
        )
    data = frame.frame if isinstance(frame, Table) else frame
    replace_file(path, render(data, ENDINGS[ending], metadata))
