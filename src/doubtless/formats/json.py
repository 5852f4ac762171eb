"""JSON lines, JSON lists of objects, and the JSON that COMET writes (one list a system)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

import polars as pl

from doubtless.errors import InputError
from doubtless.formats.chunks import ROWS_PER_CHUNK, Gathering, Parsed, is_wanted
from doubtless.formats.text import decoded_lines

Row = dict[str, Any]

_SPACE = " \t\r\n"


def parse_lines(stream: BinaryIO, name: str, wanted: Collection[str] | None = None) -> Parsed:
    """Read JSON lines: one object a line, blank lines between them allowed."""

    def rows() -> Iterator[tuple[int, Row]]:
        for number, line in enumerate(decoded_lines(stream, name), start=1):
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
    except ValueError:
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
            cursor.fail(f"'{system}' is not a list of segments (for one object a line, name the file .jsonl)")
        for line, row in _list(cursor):
            yield line, {"system": system, **row}
        if cursor.take(",", "}") == "}":
            return


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a finite number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{next(k for k in keys if keys.count(k) > 1)}' occurs twice")
    return row


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique_keys)


def _decode(text: str, at: int, name: str, line: int) -> tuple[Any, int]:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        line += text.count("\n", at, error.pos)
        raise InputError(f"{name}:{line}: not valid JSON ({error.msg.lower()})") from None
    except RecursionError:
        raise InputError(f"{name}:{line}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{name}:{line}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _object(value: Any, name: str, line: int) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{name}:{line}: expected a JSON object, found {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
        return "a list of numbers" if numbers else "a list"
    return "null"


def _columns(rows: Iterable[tuple[int, Row]], name: str, wanted: Collection[str] | None) -> Parsed:
    """Turn objects into columns; a key that some objects lack is missing there."""
    kinds: dict[str, str] = {}
    gathering = Gathering()
    pending: list[Row] = []
    lines: list[int] = []

    def flush() -> None:
        series = [_series(key, [row.get(key) for row in pending], kinds[key], name, lines) for key in kinds]
        gathering.add(pl.DataFrame(series), lines)
        pending.clear()
        lines.clear()

    for line, row in rows:
        kept: Row = {}
        for key, value in row.items():
            if not is_wanted(key, wanted):
                continue
            kept[key] = value
            found = _kind(value)
            known = kinds.setdefault(key, found)
            if found != known and found != "null":
                kinds[key] = _common_kind(known, found, f"{name}:{line}: '{key}'")
        pending.append(kept)
        lines.append(line)
        if len(pending) == ROWS_PER_CHUNK:
            flush()
    if not kinds and not lines and not gathering.frames:
        raise InputError(f"{name}: the file holds no segments")
    flush()
    return gathering.parsed()


def _common_kind(known: str, found: str, place: str) -> str:
    if known == "null":
        return found
    if {known, found} == {"a list", "a list of numbers"}:
        return "a list"
    raise InputError(f"{place} is {found}, but {known} in the rows before")


_DTYPE: dict[str, Any] = {
    "text": pl.String,
    "a truth value": pl.Boolean,
    "a list of numbers": pl.List(pl.Float64),
}


def _series(key: str, values: list[Any], kind: str, name: str, lines: list[int]) -> pl.Series:
    try:
        if kind == "a number":
            whole = all(v is None or (isinstance(v, int) and abs(v) < 2**63) for v in values)
            return pl.Series(key, values if whole else [v if v is None else float(v) for v in values])
        if kind == "null":
            return pl.Series(key, values, dtype=pl.Null)
        if kind in ("text", "a truth value", "a list of numbers"):
            return pl.Series(key, values, dtype=_DTYPE[kind], strict=kind != "a list of numbers")
        return pl.Series(key, values, strict=False)
    except (OverflowError, UnicodeEncodeError, TypeError, ValueError, pl.exceptions.PolarsError):
        for line, value in zip(lines, values, strict=True):
            _blame(value, f"{name}:{line}: '{key}'")
        raise InputError(f"{name}: '{key}' cannot be made one column: its values differ in kind") from None


def _blame(value: Any, place: str) -> None:
    """Raise the sentence for a value that no column can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
        if isinstance(value, int):
            float(value)
    except UnicodeEncodeError:
        raise InputError(f"{place} holds half of a surrogate pair, which is not valid Unicode") from None
    except OverflowError:
        raise InputError(f"{place} is a number beyond the range of floating point") from None


def render_lines(frame: pl.DataFrame) -> str:
    """Write JSON lines."""
    return frame.write_ndjson() or ""


def render_list(frame: pl.DataFrame) -> str:
    """Write a JSON list, one object a line."""
    lines = render_lines(frame).removesuffix("\n")
    return "[\n" + lines.replace("\n", ",\n") + "\n]\n"
