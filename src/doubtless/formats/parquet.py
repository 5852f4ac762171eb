"""Parquet, with doubtless's own metadata in the footer."""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import Parsed, is_wanted
from doubtless.formats.guard import refused
from doubtless.formats.words import quoted

_MAGIC = b"PAR1"


def parse(stream: BinaryIO, name: str, wanted: Collection[str] | None = None) -> Parsed:
    """Read a Parquet file; rows are counted from 1, for want of lines."""
    head = stream.read(len(_MAGIC))
    if head != _MAGIC:
        raise InputError(f"{name}: the file is {'not Parquet' if head else 'empty, expected Parquet'}")
    with refused(f"{name}: the Parquet file is damaged"):
        # The file is this one, not a pattern of file names nor a part of a partitioned table.
        lazy = pl.scan_parquet(_whole(stream, head), glob=False, hive_partitioning=False)
        names = lazy.collect_schema().names()
        keep = [column for column in names if is_wanted(column, wanted)]
        # Some column has to be read, if only to count the rows.
        frame = lazy.select(keep or names[:1]).collect()
    for series in frame.iter_columns():
        _refuse_nul(series, name)
    return Parsed(frame.select(keep), np.arange(1, frame.height + 1), names)


def _whole(stream: BinaryIO, head: bytes) -> Path | io.BytesIO:
    """Return the path of a file, which lets the reader skip columns, or else everything in memory."""
    is_file = isinstance(stream, io.BufferedReader) and stream is not getattr(sys.stdin, "buffer", None)
    if is_file and stream.seekable():
        return Path(stream.name)
    return io.BytesIO(head + stream.read())


def _refuse_nul(series: pl.Series, name: str) -> None:
    if series.dtype == pl.String:
        row = series.str.contains("\0", literal=True).fill_null(False).arg_max()
        if row is not None and "\0" in (series[row] or ""):
            raise InputError(f"{name}, row {row + 1}: column {quoted(series.name)} holds a NUL character")


def render(frame: pl.DataFrame, metadata: Mapping[str, str]) -> bytes:
    """Write a Parquet file whose footer carries ``metadata``."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata=dict(metadata) or None)
    return buffer.getvalue()
