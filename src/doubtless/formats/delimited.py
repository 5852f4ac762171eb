"""TSV and CSV: a header line, cells quoted as in RFC 4180 when they need it.

There is one convention to know: these formats have no way to say "missing", so a missing value and an
empty text are both written as an empty cell, and an empty cell is read as an empty text.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO

import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import ROWS_PER_CHUNK, Gathering, Parsed, is_wanted
from doubtless.formats.text import decoded_lines
from doubtless.formats.words import counted, quoted

BYTES_PER_BLOCK = 1 << 23

# A cell may hold a whole document; the module's default limit of 128 KiB is for other uses.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def parse(
    stream: BinaryIO, name: str, separator: str, wanted: Collection[str] | None = None, quotes: bool = True
) -> Parsed:
    """Read a delimited table; every column comes back as strings, exactly as they stand in the file.

    Lines without quoted cells are read a block at a time. From the first block on that needs more care, or
    in which anything is wrong, the lines are read one by one, which is slower and finds the culprit.
    """
    header, line = _header(stream, name, separator, quotes)
    keep = [i for i, column in enumerate(header) if is_wanted(column, wanted)]
    gathering = Gathering()
    gathering.add([pl.Series(header[i], dtype=pl.String) for i in keep], ())
    while block := stream.read(BYTES_PER_BLOCK):
        block += stream.readline()
        plain = _plain_lines(block, separator, len(header), quotes)
        if plain is None:
            lines = decoded_lines(chain(io.BytesIO(block), stream), name, first=line)
            rows = _rows(lines, name, separator, quotes, first=line)
            _gather_rows(rows, header, keep, name, gathering)
            break
        frame = _split(plain, separator, len(header), keep)
        height = plain.count(b"\n")
        columns = [cells.alias(header[i]) for i, cells in zip(keep, frame, strict=True)]
        gathering.add(columns, range(line, line + height))
        line += height
    return gathering.parsed(header)


def _header(stream: BinaryIO, name: str, separator: str, quotes: bool) -> tuple[list[str], int]:
    """Read the names of the columns; also return the number of the line after them."""
    lines = decoded_lines(stream, name)
    header, _, after = next(_rows(lines, name, separator, quotes), (None, 1, 1))
    if header is None:
        raise InputError(f"{name}: the file is empty, expected a header line")
    if not header:
        raise InputError(f"{name}:1: the line is empty, expected a header line")
    seen: set[str] = set()
    for position, column in enumerate(header, start=1):
        if not column.strip():
            raise InputError(f"{name}:1: column {position} of the header has no name")
        if column in seen:
            raise InputError(f"{name}:1: the header names column {quoted(column)} twice")
        seen.add(column)
    return header, after


def _plain_lines(block: bytes, separator: str, width: int, quotes: bool) -> bytes | None:
    """Return a block with ``\\n`` at the end of every line if its cells can be told by separators alone."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if not block.endswith(b"\n"):
        block += b"\n"
    if width == 1 or b"\r" in block or b"\0" in block:
        return None
    # A double quote is special only where a cell begins.
    if (
        quotes
        and b'"' in block
        and (block[:1] == b'"' or b'\n"' in block or f'{separator}"'.encode() in block)
    ):
        return None
    marks = block.translate(None, _ALL_BUT[separator])
    if marks != (separator.encode() * (width - 1) + b"\n") * (len(marks) // width):
        return None
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return block


_ALL_BUT = {separator: bytes(set(range(256)) - {ord(separator), ord("\n")}) for separator in "\t,"}


def _split(lines: bytes, separator: str, width: int, keep: Sequence[int]) -> list[pl.Series]:
    if not keep:
        return []
    # A header of our own stands before the lines: Polars gives meaning to some first bytes of a file.
    header = separator.join(map(str, range(width))) + "\n"
    frame = pl.read_csv(
        header.encode() + lines,
        separator=separator,
        columns=list(map(str, keep)),
        quote_char=None,
        infer_schema=False,
    )
    return [cells.fill_null("") for cells in frame.iter_columns()]


def _gather_rows(
    rows: Iterable[tuple[list[str], int, int]],
    header: Sequence[str],
    keep: Sequence[int],
    name: str,
    gathering: Gathering,
) -> None:
    cells: list[list[str]] = []
    lines: list[int] = []

    def flush() -> None:
        columns = [pl.Series(header[i], [row[i] for row in cells], dtype=pl.String) for i in keep]
        gathering.add(columns, lines)
        cells.clear()
        lines.clear()

    width = len(header)
    for row, line, _ in rows:
        if not row and width == 1:
            row = [""]
        if len(row) != width:
            found = counted(len(row), "column") if row else "the line is empty"
            raise InputError(f"{name}:{line}: {found}, expected {width}{'' if row else ' columns'}")
        cells.append(row)
        lines.append(line)
        if len(cells) == ROWS_PER_CHUNK:
            flush()
    flush()


def _rows(
    text: Iterable[str], name: str, separator: str, quotes: bool, first: int = 1
) -> Iterator[tuple[list[str], int, int]]:
    """Yield rows, each with the number of the line on which it begins and of the line after it."""
    quoting: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(text, delimiter=separator, strict=True, **quoting)
    line = first
    try:
        for row in reader:
            after = reader.line_num + first
            yield row, line, after
            line = after
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
    if frame.width == 1:  # "" in quotes, since many programs skip blank lines
        frame = frame.select(pl.all().cast(pl.String).fill_null(""))
    else:
        frame = frame.with_columns(pl.col(pl.String).replace("", None))
    text = frame.write_csv(separator=separator, quote_style="necessary")
    assert isinstance(text, str)
    return text
