"""Which formats there are, and how to tell them."""

from __future__ import annotations

import codecs
import io
from collections.abc import Collection
from typing import BinaryIO

from doubtless.errors import InputError
from doubtless.formats import delimited, json, parquet
from doubtless.formats.chunks import Parsed
from doubtless.formats.words import quoted

ENDINGS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


def parse(kind: str, stream: BinaryIO, name: str, wanted: Collection[str] | None, quotes: bool) -> Parsed:
    """Read a table in one of the formats."""
    if kind in ("tsv", "csv"):
        return delimited.parse(stream, name, "\t" if kind == "tsv" else ",", wanted, quotes)
    if kind == "jsonl":
        return json.parse_lines(stream, name, wanted)
    if kind == "json":
        return json.parse_document(stream, name, wanted)
    if kind == "parquet":
        return parquet.parse(stream, name, wanted)
    raise unknown_format(kind)


def unknown_format(format: str) -> InputError:
    """Return the error for a format that is none of these."""
    known = ", ".join(sorted(set(ENDINGS.values())))
    return InputError(f"unknown format {quoted(format)}, expected one of: {known}")


def sniffed(stream: BinaryIO) -> tuple[str, BinaryIO]:
    """Tell the format from the first line that is not blank; also return the stream from its beginning."""
    data = io.BytesIO(stream.read())
    line = next(filter(bytes.strip, data), b"").removeprefix(codecs.BOM_UTF8)
    data.seek(0)
    start = line.lstrip()
    if start.startswith(b"PAR1"):
        kind = "parquet"
    elif start.startswith(b"["):
        kind = "json"
    elif start.startswith(b"{"):
        kind = "jsonl" if json.is_segment(line) else "json"
    else:
        kind = "tsv" if b"\t" in line else "csv"
    return kind, data
