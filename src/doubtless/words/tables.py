"""Tables of word scores and annotations, in the shapes they come in, as words judged by annotators.

A table has one row a word, as ``doubtless words`` writes it, or one row a segment. In the latter a cell holds
a list: a number a word (scores), a tag a word (``OK`` and ``BAD``, 0 and 1), or spans with ``start`` and
``end`` over the characters of the translation. Text formats hold lists as JSON, or tags with blanks between
them. An annotator's empty cell means that they did not see the segment, an empty list that all is right.

Spans of an annotator can also stand in two columns of offsets (``NAME=STARTS+ENDS``), as marks ``<v>`` in the
translation (``NAME=v:COLUMN``), or be what a post-editor changed (``NAME=pe:COLUMN``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any, TypeVar

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.words import counted, quoted
from doubtless.neural.tokens import Offsets
from doubtless.neural.words import words as cut
from doubtless.segments import Table
from doubtless.words.edits import edit_spans
from doubtless.words.judged import Floats, Judged
from doubtless.words.spans import from_lists, from_marks, labels, project
from doubtless.words.subwords import placed

Item = TypeVar("Item")

_RIGHT, _WRONG = ("OK", "0", "0.0", "FALSE"), ("BAD", "1", "1.0", "TRUE")
_LABELS = dict.fromkeys(_RIGHT, 0.0) | dict.fromkeys(_WRONG, 1.0) | {"": nan}
_SPANS = pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "score": pl.Float64}))
_CONFIDENCES = ("probability", "confidence", "score")


def judged_words(
    table: Table,
    scores: Sequence[str],
    annotators: Sequence[str],
    *,
    by: str | None = None,
    words: str | None = None,
    segment: str = "row",
) -> Judged:
    """Read the words of a table with what metrics and annotators say about them.

    Parameters
    ----------
    table
        One row a word, or one row a segment.
    scores, annotators
        Columns. An annotator may also be ``NAME=STARTS+ENDS``, two columns of lists of offsets,
        ``NAME=v:COLUMN``, the translation with its errors between ``<v>`` and ``</v>``, or
        ``NAME=pe:COLUMN``, a post-edited translation.
    by
        Column of groups, such as languages; without one, ``lp`` if there is one.
    words
        For spans: column of the words of each translation, a list or with blanks between them. Without one
        the translation is cut into words and punctuation.
    segment
        For tables with one row a word: the column that tells segments apart.

    Raises
    ------
    InputError
        One sentence with file and line.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> table = as_table([{"mt": "A cow.", "m": [0.1, 0.9, 0.2], "a": [{"start": 2, "end": 5}]}])
    >>> judged_words(table, ["m"], ["a"]).labels["a"].tolist()
    [0.0, 1.0, 0.0]
    """
    if not annotators:
        raise InputError("who says what is wrong? (--annotators)")
    by = by or ("lp" if table.has("lp") else None)
    group = table.labels([by]).to_list() if by else ["all"] * len(table)
    if _one_row_a_word(table, [*scores, *annotators], segment):
        return _from_words(table, scores, annotators, group, segment)
    return _from_segments(table, scores, annotators, group, words)


def with_word_scores(segments: Table, words: Table, scores: Sequence[str]) -> Table:
    """Add the suspicions that ``doubtless words`` wrote, one row a word, to the table they were made of.

    Each becomes a column of spans. ``row`` counts the rows of the segments from 1. Segments with a word that
    has no value, such as one that a model could not read, are left out.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> words = as_table([{"row": 1, "start": 0, "end": 3, "tagger": 0.9}])
    >>> with_word_scores(as_table([{"mt": "cow"}]), words, ["tagger"]).frame["tagger"].to_list()
    [[{'start': 0, 'end': 3, 'score': 0.9}]]
    """
    row, start, end = (words.numbers(name).astype(np.int64) for name in ("row", "start", "end"))
    outside = (row < 1) | (row > len(segments))
    if outside.any():
        at = int(outside.argmax())
        raise InputError(f"{words.place(at)}: {segments.name} has no row {row[at]}")
    made = []
    known = np.ones(len(segments), dtype=bool)
    for name in scores:
        if segments.has(name):
            raise InputError(f"{segments.name}: there is a column {quoted(name)} already")
        cells: list[list[dict[str, Any]]] = [[] for _ in range(len(segments))]
        values = words.numbers(name, missing=True)
        known[row[np.isnan(values)] - 1] = False
        for place, value in enumerate(values):
            span = {"start": int(start[place]), "end": int(end[place]), "score": float(value)}
            cells[row[place] - 1].append(span)
        made.append(pl.Series(name, cells, dtype=_SPANS))
    return replace(segments, frame=segments.frame.with_columns(made)).take(np.flatnonzero(known))


def _one_row_a_word(table: Table, columns: Sequence[str], segment: str) -> bool:
    """Whether cells hold single values and not lists; where all are empty, words tell their segments."""
    if any("=" in column for column in columns):
        return False
    filled = [series for series in map(table.column, columns) if not _is_empty(series)]
    return not any(map(_holds_lists, filled)) if filled else table.has(segment)


def _is_empty(series: pl.Series) -> bool:
    absent = series.is_null()
    if series.dtype == pl.String:
        absent |= series.str.strip_chars() == ""
    return bool(absent.all())


def _holds_lists(series: pl.Series) -> bool:
    if series.dtype != pl.String:
        return series.dtype.is_nested()
    return bool(series.str.strip_chars().str.contains(r"^\[|\s").any())


def _from_words(
    table: Table, scores: Sequence[str], annotators: Sequence[str], group: list[str], segment: str
) -> Judged:
    keys = list(zip(group, table.labels([segment]), strict=True))
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    marks = {}
    for name in annotators:
        cells = table.column(name).cast(pl.String).fill_null("").str.strip_chars().to_list()
        with _located(table, name) as at:
            marks[name] = np.array([_label(cell) for cell in at(cells)], dtype=np.float64)
    values = {name: table.numbers(name) for name in scores}
    return Judged(values, marks, np.array([number[key] for key in keys]), [key[0] for key in number])


@dataclass(frozen=True)
class _Column:
    """A column of lists, whether these are spans, and what makes values of words of a cell."""

    name: str
    cells: list[list[Any] | None]
    spans: bool
    score: bool

    @classmethod
    def of(cls, table: Table, text: str, score: bool) -> _Column:
        """Read a column, or what stands behind ``NAME=``."""
        name, equals, columns = text.partition("=")
        if not equals:
            cells = _cells(table, name)
            # Empty lists only: somebody who marked nothing.
            kinds = {isinstance(cell[0], Mapping) for cell in cells if cell} or {True}
            return cls(name, cells, True in kinds, score)
        if score:
            raise InputError(f"NAME= is for annotators, not for scores: {quoted(text)}")
        kind, colon, column = columns.partition(":")
        if colon and kind in _FROM_TEXT:
            series = table.column(column)
            if series.dtype not in (pl.String, pl.Null):
                raise InputError(
                    f"{table.name}: column {quoted(column)} holds {series.dtype}, expected texts"
                )
            with _located(table, name) as at:
                made = [_FROM_TEXT[kind](*both) for both in at(zip(_texts(table), series, strict=True))]
            return cls(name, made, True, score)
        if columns.count("+") != 1:
            raise InputError(
                f"an annotator is NAME=STARTS+ENDS, NAME=v:COLUMN or NAME=pe:COLUMN, found {quoted(text)}"
            )
        starts, ends = (_cells(table, column) for column in columns.split("+"))
        with _located(table, name) as at:
            pairs = [_paired(*both) for both in at(zip(starts, ends, strict=True))]
        return cls(name, pairs, True, score)

    def values(self, cell: list[Any] | None, text: str, words: Offsets) -> Floats | None:
        """One value a word; None where there is no cell."""
        if cell is None:
            if self.score:
                raise InputError("the cell is empty (rows without scores can be left out: --where)")
            return None
        if not self.spans:
            made = np.array(
                [_number(item) if self.score else _label(item) for item in cell], dtype=np.float64
            )
            return made
        places = [(int(span["start"]), int(span["end"])) for span in cell]
        spans = from_lists(text, *zip(*places, strict=True)) if places else []
        if not self.score:
            return labels(spans, words).astype(np.float64)
        return project([_confidence(span) for span in cell], places, words, "max", missing=0.0)


def _texts(table: Table) -> list[str]:
    return table.column("mt").cast(pl.String).fill_null("").to_list()


def _marked(text: str, marked: str | None) -> list[Any] | None:
    """Spans of the translation with marks; None for an empty cell."""
    if not marked:
        return None
    bare, spans = from_marks(marked)
    if bare != text:
        raise InputError(f"without its marks {quoted(marked)} is not the translation {quoted(text)}")
    return [span._asdict() for span in spans]


def _edited(text: str, edited: str | None) -> list[Any] | None:
    """Spans of what a post-editor changed; None for an empty cell."""
    return [span._asdict() for span in edit_spans(text, edited)] if edited else None


_FROM_TEXT = {"v": _marked, "pe": _edited}


def _paired(starts: list[Any] | None, ends: list[Any] | None) -> list[Any] | None:
    """Spans from two lists of offsets; None where one of them is missing."""
    if starts is None or ends is None:
        return None
    if len(starts) != len(ends):
        raise InputError(f"{counted(len(starts), 'start')}, but {counted(len(ends), 'end')} of spans")
    return [{"start": start, "end": end} for start, end in zip(starts, ends, strict=True)]


def _from_segments(
    table: Table, scores: Sequence[str], annotators: Sequence[str], group: list[str], words: str | None
) -> Judged:
    columns = [_Column.of(table, name, True) for name in scores]
    columns += [_Column.of(table, name, False) for name in annotators]
    texts, pieces = [""] * len(table), None
    if words or any(column.spans for column in columns):
        texts = _texts(table)
        pieces = _words(table, texts, words)
    rows: dict[str, list[Floats | None]] = {}
    for column in columns:
        if column.name in rows:
            raise InputError(f"two columns are called {quoted(column.name)}")
        with _located(table, column.name) as at:
            rows[column.name] = [
                column.values(cell, texts[row], pieces[row] if pieces else [])
                for row, cell in enumerate(at(column.cells))
            ]
    sizes = [_size(table, row, rows, pieces) for row in range(len(table))]
    found = {
        name: np.concatenate(
            [np.full(size, np.nan) if own is None else own for own, size in zip(values, sizes, strict=True)]
        )
        for name, values in rows.items()
    }
    names = [column.name for column in columns]
    parts = [
        {name: found[name] for name in chosen} for chosen in (names[: len(scores)], names[len(scores) :])
    ]
    return Judged(parts[0], parts[1], np.repeat(np.arange(len(sizes)), sizes), group)


def _size(
    table: Table, row: int, columns: Mapping[str, Sequence[Floats | None]], pieces: Sequence[Offsets] | None
) -> int:
    """How many words a segment has, on which all columns must agree."""
    sizes = {} if pieces is None else {"the translation": len(pieces[row])}
    sizes |= {name: len(own) for name, values in columns.items() if (own := values[row]) is not None}
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            clash = f"{quoted(first)} has {counted(size, 'word')}, {quoted(name)} has {other}"
            raise InputError(f"{table.place(row)}: {clash}")
    return size


def _words(table: Table, texts: Sequence[str], column: str | None) -> list[Offsets]:
    """The words of each translation."""
    if column is None:
        return [list(cut(text)) for text in texts]
    with _located(table, column) as at:
        return [placed(texts[row], cell or [], "plain") for row, cell in enumerate(at(_cells(table, column)))]


def _cells(table: Table, column: str) -> list[list[Any] | None]:
    """The lists of a column; None where a cell is empty."""
    series = table.column(column)
    if isinstance(series.dtype, pl.List | pl.Array):
        return series.to_list()
    if series.dtype == pl.Null:
        return [None] * len(series)
    if series.dtype != pl.String:
        raise InputError(f"{table.name}: column {quoted(series.name)} holds {series.dtype}, expected lists")
    with _located(table, column) as at:
        return [_parsed(cell) for cell in at(series.to_list())]


def _parsed(cell: str | None) -> list[Any] | None:
    text = (cell or "").strip()
    if not text.startswith("["):
        return text.split() or None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{quoted(text)} is no JSON list") from None
    return list(found)


def _label(item: Any) -> float:
    """A word's label; an empty cell is none."""
    text = "" if item is None else str(item).upper()
    if text not in _LABELS:
        raise InputError(f"{quoted(str(item))} is no label (OK, BAD, 0 or 1)")
    return _LABELS[text]


def _number(item: Any) -> float:
    try:
        value = float(item)
    except (TypeError, ValueError):
        raise InputError(f"{quoted(str(item))} is not a number") from None
    if not isfinite(value):
        raise InputError(f"{value} is not a finite number")
    return value


def _confidence(span: Mapping[str, Any]) -> float:
    """How probable a span is; one without a number is sure."""
    known = [span[name] for name in _CONFIDENCES if span.get(name) is not None]
    return _number(known[0]) if known else 1.0


@contextmanager
def _located(table: Table, column: str) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """Say file, line and column of what goes wrong while the items of a column are gone through."""
    row = -1

    def rows(items: Iterable[Item]) -> Iterator[Item]:
        nonlocal row
        for item in items:
            row += 1
            yield item

    try:
        yield rows
    except (InputError, LookupError, TypeError, ValueError) as error:
        known = isinstance(error, InputError)
        reason = str(error) if known else "expected spans with start and end"
        raise InputError(f"{table.place(row)}: column {quoted(column)}: {reason}") from None
