"""JSON lines, JSON lists of objects, and the JSON that COMET writes (one list a system)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import ROWS_PER_CHUNK, Gathering, Parsed, is_wanted
from doubtless.formats.kinds import KindError, column, described, joined
from doubtless.formats.text import decoded_lines
from doubtless.formats.words import quoted, reason

Row = dict[str, Any]

_SPACE = " \t\r\n"


def parse_lines(stream: BinaryIO, name: str, wanted: Collection[str] | None = None) -> Parsed:
    """Read JSON lines: one object a line, blank lines between them allowed."""

    def rows() -> Iterator[tuple[int, Row]]:
        for number, line in enumerate(decoded_lines(stream, name), start=1):
            line = line.rstrip("\r\n")  # so that no error is placed on the next line
            if line.strip(_SPACE):
                value, end = _decode(line, 0, name, number)
                if line[end:].strip(_SPACE):
                    raise InputError(f"{name}:{number}: text follows the JSON object")
                yield number, _object(value, name, number)

    return _columns(rows(), name, wanted)


def parse_document(stream: BinaryIO, name: str, wanted: Collection[str] | None = None) -> Parsed:
    """Read a JSON list of objects, or an object of such lists (its keys become the column ``system``)."""
    text = "".join(decoded_lines(stream, name))
    if not text.strip(_SPACE):
        raise InputError(f"{name}: the file is empty, expected a JSON list")
    return _columns(_document_rows(_Cursor(text, name)), name, wanted)


def is_segment(line: bytes) -> bool:
    """Whether a line is one segment of JSON lines, and not the start or the whole of a document."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    lists_of_objects = [
        isinstance(v, list) and v and all(isinstance(x, dict) for x in v) for v in row.values()
    ]
    return not (lists_of_objects and all(lists_of_objects))


class _Cursor:
    """A place in a JSON text that knows its line; values are decoded one by one to keep their lines."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.at, self.line, self._counted = 0, 1, 0
        self.skip_space()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        self.line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at

    def take(self, *expected: str) -> str:
        found = self.peek()
        if found not in expected or not found:
            wish = " or ".join(f"'{mark}'" for mark in expected)
            self.fail(f"expected {wish}, found {repr(found) if found else 'the end of the file'}")
        self.at += 1
        self.skip_space()
        return found

    def value(self) -> Any:
        value, self.at = _decode(self.text, self.at, self.name, self.line)
        self.skip_space()
        return value

    def fail(self, what: str) -> NoReturn:
        raise InputError(f"{self.name}:{self.line}: {what}")


def _document_rows(cursor: _Cursor) -> Iterator[tuple[int, Row]]:
    if cursor.peek() == "{":
        yield from _systems(cursor)
    else:
        yield from _list(cursor)
    if cursor.peek():
        cursor.fail("text follows the JSON value")


def _list(cursor: _Cursor) -> Iterator[tuple[int, Row]]:
    cursor.take("[")
    if cursor.peek() == "]":
        cursor.take("]")
        return
    while True:
        line = cursor.line
        yield line, _object(cursor.value(), cursor.name, line)
        if cursor.take(",", "]") == "]":
            return


def _systems(cursor: _Cursor) -> Iterator[tuple[int, Row]]:
    """One list of segments a key, as COMET's ``--to_json`` writes one a translation file."""
    cursor.take("{")
    if cursor.peek() == "}":
        cursor.take("}")
        return
    while True:
        if cursor.peek() != '"':
            cursor.fail("expected a key in double quotes")
        system = cursor.value()
        cursor.take(":")
        if cursor.peek() != "[":
            cursor.fail(f"{quoted(system)} is not a list of segments (is this JSON lines, format jsonl?)")
        for line, row in _list(cursor):
            yield line, {"system": system, **row}
        if cursor.take(",", "}") == "}":
            return


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a finite number")


def _integer(digits: str) -> int | float:
    """Read a whole number; beyond 64 bits it becomes a floating-point number."""
    if len(digits) < 19:
        return int(digits)
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"a number of {len(digits)} digits is {_TOO_LARGE}")
    return int(digits) if -(2**63) <= int(digits) < 2**63 else value


def _unique_keys(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"key {quoted(counts.most_common(1)[0][0])} occurs twice")
    return row


_TOO_LARGE = "beyond the range of floating point"
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer, object_pairs_hook=_unique_keys)


def _decode(text: str, at: int, name: str, line: int) -> tuple[Any, int]:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    try:
        value, end = _DECODER.raw_decode(text, at)
        if text.find("\\u", at, end) >= 0:  # only an escape can bring in what is not text
            _check_texts(value)
        return value, end
    except json.JSONDecodeError as error:
        line += text.count("\n", at, error.pos)
        position = error.pos - text.rfind("\n", 0, error.pos)
        what = error.msg.lower().removesuffix(" at").removesuffix(" starting")
        raise InputError(f"{name}:{line}: not valid JSON ({what}, column {position})") from None
    except RecursionError:
        raise InputError(f"{name}:{line}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{name}:{line}: {reason(error)}") from None


def _check_texts(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_texts(key)
            _check_texts(item)
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)
    elif isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text holds a NUL character")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError("a text holds half of a surrogate pair, which is not valid Unicode")


def _object(value: Any, name: str, line: int) -> Row:
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else described(joined(pl.Null, value))
        raise InputError(f"{name}:{line}: expected a JSON object, found {found}")
    return value


def _columns(rows: Iterable[tuple[int, Row]], name: str, wanted: Collection[str] | None) -> Parsed:
    """Turn objects into columns; a key that some objects lack is missing there."""
    names: dict[str, None] = {}
    dtypes: dict[str, Any] = {}
    gathering = Gathering()
    pending: list[Row] = []
    lines: list[int] = []

    def flush() -> None:
        columns = [
            _series(key, [row.get(key) for row in pending], dtypes[key], name, lines) for key in dtypes
        ]
        gathering.add(columns, lines)
        pending.clear()
        lines.clear()

    for line, row in rows:
        for key, value in row.items():
            if key not in names:
                names[key] = None
                if is_wanted(key, wanted):
                    dtypes[key] = pl.Null
            if (known := dtypes.get(key)) is not None:
                try:
                    dtypes[key] = joined(known, value)
                except KindError as error:
                    raise InputError(f"{name}:{line}: {quoted(key)} {error}") from None
        pending.append(row)
        lines.append(line)
        if len(pending) == ROWS_PER_CHUNK:
            flush()
    flush()
    return gathering.parsed(list(names))


def _series(key: str, values: list[Any], dtype: Any, name: str, lines: list[int]) -> pl.Series:
    series = column(key, values, dtype)
    if dtype == pl.Float64 and series.is_infinite().any():
        line = lines[int(series.is_infinite().fill_null(False).arg_max() or 0)]
        raise InputError(f"{name}:{line}: {quoted(key)} is {_TOO_LARGE}")
    return series


def render_lines(frame: pl.DataFrame) -> str:
    """Write JSON lines."""
    return frame.write_ndjson() or ""


def render_list(frame: pl.DataFrame) -> str:
    """Write a JSON list, one object a line."""
    lines = render_lines(frame).removesuffix("\n")
    return "[\n" + lines.replace("\n", ",\n") + "\n]\n"
