"""Parquet, with doubtless's own metadata in the footer."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import Parsed

_MAGIC = b"PAR1"


def parse(stream: BinaryIO, name: str, wanted: Collection[str] | None = None) -> Parsed:
    """Read a Parquet file; rows are counted from 1, for want of lines."""
    head = stream.read(len(_MAGIC))
    if head != _MAGIC:
        raise InputError(f"{name}: the file is {'not Parquet' if head else 'empty, expected Parquet'}")
    source: Path | io.BytesIO
    if isinstance(stream, io.BufferedReader) and stream.seekable() and isinstance(stream.name, str):
        source = Path(stream.name)  # lets the reader skip the columns that are not wanted
    else:
        source = io.BytesIO(head + stream.read())
    try:
        names = list(pl.read_parquet_schema(source))
        columns = None if wanted is None else [c for c in names if c in wanted]
        frame = pl.read_parquet(source, columns=columns)
    except BaseException as error:
        # A damaged file can make the Rust reader panic, which is not an Exception in Python.
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise InputError(f"{name}: the Parquet file is damaged ({_first_line(error)})") from None
    return Parsed(frame, np.arange(1, frame.height + 1))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def render(frame: pl.DataFrame, metadata: Mapping[str, str]) -> bytes:
    """Write a Parquet file whose footer carries ``metadata``."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata=dict(metadata) or None)
    return buffer.getvalue()
