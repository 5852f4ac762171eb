"""Errors as character spans of a translation, whatever they were before, and scores of any pieces of a text.

All kinds of marks become :class:`ErrorSpan`: MQM and ESA annotations, ``<v>`` marks, OK/BAD tags, post-edits
(:func:`doubtless.words.edits.edit_spans`), output of xCOMET. Offsets count characters from 0, the end is
exclusive. An empty span marks a gap: something is missing there.

Scores belong to pieces of a text, such as tokens or words, given by their offsets. :func:`project` carries
them from one kind of pieces to another, :func:`labels` carries spans to pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.formats.words import counted, quoted
from doubtless.neural.tokens import Offsets
from doubtless.words.subwords import placed

Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
How = Literal["max", "mean", "sum"]
Gaps = Literal["ignore", "next", "previous", "both"]

_OPEN, _CLOSE = "<v>", "</v>"


class ErrorSpan(NamedTuple):
    """An error in a translation: its first character, the one after its last, how bad it is."""

    start: int
    end: int
    severity: str = "error"


def from_lists(
    text: str, starts: Sequence[int], ends: Sequence[int], severities: Sequence[str] | None = None
) -> list[ErrorSpan]:
    """Take annotations (MQM, ESA) given as lists of offsets and severities.

    Raises
    ------
    InputError
        If a span lies outside the text or ends before it begins.

    Examples
    --------
    >>> from_lists("The cow jumped", [4], [7], ["major"])
    [ErrorSpan(start=4, end=7, severity='major')]
    """
    named = ["error"] * len(starts) if severities is None else severities
    if not len(starts) == len(ends) == len(named):
        raise InputError(f"{len(starts)} starts, {len(ends)} ends and {len(named)} severities of spans")
    spans = [ErrorSpan(int(a), int(b), str(s)) for a, b, s in zip(starts, ends, named, strict=True)]
    for start, end, _ in spans:
        if not 0 <= start <= end <= len(text):
            size = counted(len(text), "character")
            raise InputError(f"the span {start} to {end} does not lie in a text of {size}: {quoted(text)}")
    return sorted(spans)


def from_marks(marked: str, severity: str = "error") -> tuple[str, list[ErrorSpan]]:
    """Take errors between ``<v>`` and ``</v>`` out of a text.

    Examples
    --------
    >>> from_marks("The <v>cow</v> jumped.")
    ('The cow jumped.', [ErrorSpan(start=4, end=7, severity='error')])
    """
    first, *rest = marked.split(_OPEN)
    text, spans = first, []
    for part in rest:
        inside, *after = part.split(_CLOSE)
        if len(after) != 1:
            break
        spans.append(ErrorSpan(len(text), len(text) + len(inside), severity))
        text += inside + after[0]
    else:
        if _CLOSE not in first:
            return text, spans
    raise InputError(f"the marks <v> and </v> do not come in pairs in {quoted(marked)}")


def from_tags(
    text: str, tokens: Sequence[str], tags: Sequence[str], gaps: Sequence[str] | None = None
) -> list[ErrorSpan]:
    """Take OK/BAD tags of tokens, and of the gaps between them if there are any.

    Neighbours that are BAD form one span. A gap that is BAD becomes an empty span where the next token
    begins, or at the end of the text.

    Parameters
    ----------
    text
        The translation.
    tokens
        Its words, in which it may be written with other blanks.
    tags
        One tag a token.
    gaps
        One tag a gap: before the first token, between any two, after the last.

    Examples
    --------
    >>> from_tags("A cow.", ["A", "cow", "."], ["OK", "BAD", "OK"], ["OK", "OK", "OK", "BAD"])
    [ErrorSpan(start=2, end=5, severity='error'), ErrorSpan(start=6, end=6, severity='error')]
    """
    offsets = placed(text, tokens, "plain")
    wrong = _tag_flags(tags, len(tokens), "token")
    missing = _tag_flags(gaps, len(tokens) + 1, "gap") if gaps is not None else np.zeros(0, dtype=bool)
    places = [*(start for start, _ in offsets), len(text)]
    empty = [ErrorSpan(places[i], places[i]) for i in np.flatnonzero(missing)]
    return sorted([*joined(offsets, wrong), *empty])


def _tag_flags(tags: Sequence[str], expected: int, noun: str) -> Flags:
    if len(tags) != expected:
        raise InputError(f"{counted(len(tags), 'tag')} for {counted(expected, noun)}")
    other = next((tag for tag in tags if tag not in ("OK", "BAD")), None)
    if other is not None:
        raise InputError(f"a tag is OK or BAD, found {quoted(str(other))}")
    return np.array([tag == "BAD" for tag in tags], dtype=bool)


def from_model(spans: Iterable[Mapping[str, Any]]) -> list[ErrorSpan]:
    """Take spans as models report them (:class:`doubtless.neural.spans.Span`, COMET's ``error_spans``).

    Examples
    --------
    >>> from_model([{"text": "cow", "start": 4, "end": 7, "severity": "major", "confidence": 0.9}])
    [ErrorSpan(start=4, end=7, severity='major')]
    """
    return sorted(ErrorSpan(int(s["start"]), int(s["end"]), str(s.get("severity", "error"))) for s in spans)


def joined(offsets: Offsets, wrong: ArrayLike, severity: str = "error") -> list[ErrorSpan]:
    """Join neighbouring pieces that are wrong into spans.

    Examples
    --------
    >>> joined([(0, 3), (4, 7), (8, 14)], [False, True, True])
    [ErrorSpan(start=4, end=14, severity='error')]
    """
    flags = np.asarray(wrong, dtype=bool)
    spans = []
    for bad, run in groupby(range(len(flags)), key=flags.__getitem__):
        if bad:
            pieces = list(run)
            spans.append(ErrorSpan(offsets[pieces[0]][0], max(offsets[i][1] for i in pieces), severity))
    return spans


def labels(spans: Iterable[ErrorSpan], offsets: Offsets, gaps: Gaps = "ignore") -> Flags:
    """Say which pieces of a text are wrong: those that share a character with a span.

    Parameters
    ----------
    spans
        The errors.
    offsets
        First and last character of each piece, in order.
    gaps
        What an empty span between two pieces marks: nothing, the ``next`` piece (the last one, at the end
        of the text), the ``previous`` one (the first one, at the beginning), or ``both``. Inside a piece it
        marks that piece.

    Examples
    --------
    >>> labels([ErrorSpan(5, 6), ErrorSpan(14, 14)], [(0, 3), (4, 7), (8, 14)]).tolist()
    [False, True, False]
    """
    if gaps not in get_args(Gaps):
        raise InputError(f"a gap marks one of {', '.join(get_args(Gaps))}, found {quoted(gaps)}")
    starts, ends = _ends(offsets)
    wrong = np.zeros(len(starts), dtype=bool)
    for start, end, _ in spans:
        if start < end:
            wrong |= np.maximum(starts, start) < np.minimum(ends, end)
            continue
        inside = (starts < start) & (start < ends)
        wrong |= inside
        if gaps == "ignore" or inside.any() or not len(starts):
            continue
        following = int(np.searchsorted(starts, start))
        if gaps in ("next", "both"):
            wrong[min(following, len(starts) - 1)] = True
        if gaps in ("previous", "both"):
            wrong[max(following - 1, 0)] = True
    return wrong


def gap_labels(spans: Iterable[ErrorSpan], offsets: Offsets) -> Flags:
    """Say which gaps are marked by empty spans: before the first piece, between any two, after the last.

    Examples
    --------
    >>> gap_labels([ErrorSpan(14, 14)], [(0, 3), (4, 7), (8, 14)]).tolist()
    [False, False, False, True]
    """
    starts, ends = _ends(offsets)
    marked = np.zeros(len(starts) + 1, dtype=bool)
    for start, end, _ in spans:
        if start == end and not ((starts < start) & (start < ends)).any():
            marked[np.searchsorted(starts, start)] = True
    return marked


def project(
    values: ArrayLike, offsets: Offsets, onto: Offsets, how: How = "max", missing: float = np.nan
) -> Floats:
    """Carry scores of some pieces of a text, such as tokens, over to others, such as words or characters.

    Parameters
    ----------
    values
        One score a piece, or one row of scores.
    offsets, onto
        First and last character of the pieces that have scores, and of those that get them.
    how
        ``max`` and ``mean`` are over all pieces that share a character with the new one. ``sum`` splits each
        score by the shares of its characters, so that the total stays the same where the new pieces cover
        the old ones.
    missing
        The score of a new piece that none of the old ones touches.

    Examples
    --------
    >>> project([1.0, 2.0, 4.0], [(0, 3), (4, 6), (6, 7)], [(0, 3), (4, 7)], "sum").tolist()
    [1.0, 6.0]
    >>> project([1.0, 6.0], [(0, 3), (4, 7)], [(4, 6), (6, 7)], "max").tolist()
    [6.0, 6.0]
    """
    if how not in get_args(How):
        raise InputError(f"scores are joined by {', '.join(get_args(How))}, found {quoted(how)}")
    given = np.asarray(values, dtype=np.float64)
    if len(given) != len(offsets):
        raise InputError(f"{counted(len(given), 'score')} for {counted(len(offsets), 'piece')} of a text")
    starts, ends = _ends(offsets)
    new_starts, new_ends = _ends(onto)
    shared = np.minimum(new_ends[:, None], ends) - np.maximum(new_starts[:, None], starts)
    shared = np.maximum(shared, 0)
    result = np.full((len(onto), *given.shape[1:]), missing)
    touched = (shared > 0).any(axis=1)
    if how == "max":
        for piece in np.flatnonzero(touched):
            result[piece] = given[shared[piece] > 0].max(axis=0)
        return result
    if how == "mean":
        weights = (shared > 0) / np.maximum((shared > 0).sum(axis=1), 1)[:, None]
    else:
        weights = shared / np.maximum(ends - starts, 1)
    result[touched] = weights[touched] @ given
    return result


def as_far_as_read(values: Floats, offsets: Offsets, stopped: int | None) -> Floats:
    """Take away the scores of pieces that reach beyond the character at which a model stopped reading.

    Examples
    --------
    >>> as_far_as_read(np.array([1.0, 2.0]), [(0, 3), (4, 7)], 5).tolist()
    [1.0, nan]
    """
    if stopped is None:
        return values
    return np.where(_ends(offsets)[1] > stopped, np.nan, values)


def characters(text: str) -> list[tuple[int, int]]:
    """The characters of a text as pieces, for :func:`project`.

    Examples
    --------
    >>> characters("Kuh")
    [(0, 1), (1, 2), (2, 3)]
    """
    return [(i, i + 1) for i in range(len(text))]


def _ends(offsets: Offsets) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
