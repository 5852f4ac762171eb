"""From tokens to words: how suspicious each word of a translation is, in any script."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

THRESHOLD = 0.5

_JOINER = "\u200d"
# First and last letters of scripts that put no blanks between words: a tokenizer's tokens serve as words.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x9FFF),  # Chinese characters
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x20000, 0x3FFFF),
)


class Word(TypedDict):
    """A word of a translation, its characters and the probability that it is wrong."""

    text: str
    start: int
    end: int
    probability: float


def suspicious_words(
    probabilities: ArrayLike,
    offsets: Sequence[tuple[int, int]],
    text: str,
    threshold: float = THRESHOLD,
) -> list[Word]:
    """Find the words that a model doubts; a word is as suspicious as the worst of its tokens.

    Parameters
    ----------
    probabilities
        One row a token, one column a tag, of which the first means that there is no error.
    offsets
        First and last character of each token, special tokens included as ``(0, 0)``.
    text
        The translation.
    threshold
        Words that are more probably wrong than this are returned.

    Examples
    --------
    >>> offsets = [(0, 0), (0, 3), (4, 5), (5, 7), (7, 8), (0, 0)]
    >>> wrong = [0.0, 0.1, 0.2, 0.9, 0.3, 0.0]
    >>> suspicious_words([[1 - p, p] for p in wrong], offsets, "The cow.")
    [{'text': 'cow', 'start': 4, 'end': 7, 'probability': 0.9}]
    """
    wrong = 1.0 - np.asarray(probabilities, dtype=np.float64)[: len(offsets), 0]
    suspicion = np.zeros(len(text))
    for (start, end), value in zip(offsets, wrong, strict=False):
        np.maximum(suspicion[start:end], value, out=suspicion[start:end])
    found = []
    for start, end in words(text, {start for start, _ in offsets}):
        probability = round(float(suspicion[start:end].max()), 6)
        if probability > threshold:
            found.append(Word(text=text[start:end], start=start, end=end, probability=probability))
    return found


def words(text: str, cuts: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
    """Cut a text into words and runs of punctuation; return first and last character of each.

    Punctuation inside a word (*don't*, *3.5*) belongs to it. Text of scripts without blanks is cut at
    ``cuts``, but no character loses its marks.

    >>> ["I don't know."[start:end] for start, end in words("I don't know.")]
    ['I', "don't", 'know', '.']
    >>> ["我不知道。"[start:end] for start, end in words("我不知道。", cuts=[1, 2])]
    ['我', '不', '知道', '。']
    """
    kinds, marks = _kinds(text), set(cuts)
    start = None
    for place, kind in enumerate(kinds):
        if start is not None and (kind == " " or _ends(kinds, place, marks)):
            yield start, place
            start = None
        if start is None and kind != " ":
            start = place
    if start is not None:
        yield start, len(text)


def _ends(kinds: Sequence[str], place: int, cuts: set[int]) -> bool:
    """Whether a new word begins at a place that is not blank, right after a character that is not."""
    before, kind = kinds[place - 1], kinds[place]
    if kind == "+":  # belongs to the character before it
        return False
    if before == "+":
        before = next((k for k in reversed(kinds[:place]) if k != "+"), kind)
    if kind == before:
        return kind == "c" and place in cuts
    if kind == "p" and before == "w":
        return next((k for k in kinds[place + 1 : place + 3] if k != "+"), " ") != "w"
    inside = before == "p" and kind == "w" and _joins(kinds, place)
    return not inside


def _joins(kinds: Sequence[str], place: int) -> bool:
    """Whether the one punctuation mark before a place follows a word: the apostrophe of *don't*."""
    earlier = [k for k in kinds[max(0, place - 4) : place] if k != "+"]
    return len(earlier) > 1 and earlier[-2:] == ["w", "p"]


def _kinds(text: str) -> list[str]:
    """The kind of each character: blank, word, c (a script without blanks), punctuation, + (goes with it)."""
    kinds: list[str] = []
    joined = False
    for place, character in enumerate(text):
        kind = _kind(character)
        # A mark needs something to stand on; emoji that are joined are one.
        if place and kinds[-1] != " " and (kind == "+" or joined):
            kinds.append("+")
        else:
            kinds.append("p" if kind == "+" else kind)
        joined = character == _JOINER
    return kinds


def _kind(character: str) -> str:
    if character.isspace():
        return " "
    code = ord(character)
    category = unicodedata.category(character)
    if category[0] == "M" or character == _JOINER or 0x1F3FB <= code <= 0x1F3FF:
        return "+"
    if category[0] in "PSC":
        return "p"
    return "c" if any(low <= code <= high for low, high in _UNSPACED) else "w"


def marked(text: str, pieces: Iterable[Mapping[str, Any]]) -> str:
    """Put pieces of a text (words or spans) into square brackets.

    >>> marked("The cow jumped", [{"start": 4, "end": 7}])
    'The [cow] jumped'
    """
    made, done = [], 0
    for piece in sorted(pieces, key=lambda piece: int(piece["start"])):
        start, end = max(piece["start"], done), piece["end"]
        if start < end:
            made += [text[done:start], "[", text[start:end], "]"]
            done = end
    return "".join([*made, text[done:]])
