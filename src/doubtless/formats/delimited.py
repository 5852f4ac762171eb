"""TSV and CSV: a header line, cells quoted as in RFC 4180 when they need it."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import ROWS_PER_CHUNK, Gathering, Parsed, is_wanted
from doubtless.formats.text import decoded_lines

# A cell may hold a whole document; the module's default limit of 128 KiB is for other uses.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def parse(
    stream: BinaryIO, name: str, separator: str, wanted: Collection[str] | None = None, quotes: bool = True
) -> Parsed:
    """Read a delimited table; every column comes back as strings, exactly as they stand in the file."""
    rows = _rows(stream, name, separator, quotes)
    try:
        _, header = next(rows)
    except StopIteration:
        raise InputError(f"{name}: the file is empty, expected a header line") from None
    _check_header(header, name)
    keep = [i for i, column in enumerate(header) if is_wanted(column, wanted)]
    gathering = Gathering()
    cells: list[list[str]] = []
    lines: list[int] = []

    def flush() -> None:
        by_column = list(zip(*cells, strict=True)) if cells else [()] * len(header)
        columns = [pl.Series(header[i], by_column[i], dtype=pl.String) for i in keep]
        gathering.add(pl.DataFrame(columns), lines)
        cells.clear()
        lines.clear()

    for line, row in rows:
        if len(row) != len(header):
            if not row and len(header) == 1:
                row = [""]
            else:
                raise InputError(f"{name}:{line}: {len(row)} columns, expected {len(header)}")
        cells.append(row)
        lines.append(line)
        if len(cells) == ROWS_PER_CHUNK:
            flush()
    flush()
    return gathering.parsed()


def _rows(stream: BinaryIO, name: str, separator: str, quotes: bool) -> Iterator[tuple[int, list[str]]]:
    quoting: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(decoded_lines(stream, name), delimiter=separator, strict=True, **quoting)
    while True:
        line = reader.line_num + 1
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{name}:{line}: {_explain(error, quotes)}") from None


def _explain(error: csv.Error, quotes: bool) -> str:
    text = str(error)
    if "new-line" in text:
        return "a carriage return stands inside a cell that is not quoted"
    if quotes and ("expected after" in text or "unexpected end" in text):
        return (
            "a quoted cell does not end properly (if quotes are ordinary characters here, use --quotes none)"
        )
    return f"the line cannot be read ({text})"


def _check_header(header: list[str], name: str) -> None:
    for position, column in enumerate(header, start=1):
        if not column.strip():
            raise InputError(f"{name}:1: column {position} of the header has no name")
        if column in header[: position - 1]:
            raise InputError(f"{name}:1: the header names column '{column}' twice")


def render(frame: pl.DataFrame, separator: str) -> str:
    """Write a table as delimited text; lists become JSON, a missing value an empty cell."""
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    if nested:
        # A one-field struct encodes its list as {"x":[…]}: cut the wrapping off again.
        as_json = [
            pl.when(pl.col(c).is_null()).then(None)
            .otherwise(pl.struct(pl.col(c).alias("x")).struct.json_encode().str.slice(5).str.head(-1))
            .alias(c)
            for c in nested
        ]  # fmt: skip
        frame = frame.with_columns(as_json)
    text = frame.write_csv(separator=separator, quote_style="necessary")
    assert isinstance(text, str)
    return text
