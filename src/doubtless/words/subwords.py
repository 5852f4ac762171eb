"""Where subword units stand in a text: BPE (``hou@@ se``), sentencepiece, byte-level BPE, WordPiece.

Tokenizers change blanks, and some change characters as well. Units are first matched letter by letter; what
does not match is aligned, so that each unit still gets the characters that it most probably stands for.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

from doubtless.errors import InputError
from doubtless.formats.words import counted, quoted
from doubtless.neural.tokens import Offsets
from doubtless.words.align import align

Scheme = Literal["auto", "plain", "bpe", "wordpiece", "sentencepiece", "bytes"]

_UNKNOWN = ("<unk>", "[UNK]", "⁇")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_MOST_UNLIKE = 0.34


def placed(text: str, units: Sequence[str], scheme: Scheme = "auto") -> Offsets:
    """Find subword units in their text.

    Parameters
    ----------
    text
        The text.
    units
        Its units, in order, without special tokens.
    scheme
        How units say where a blank was: ``plain`` (not at all), ``bpe`` (``@@`` where there was none),
        ``wordpiece`` (``##`` where there was none), ``sentencepiece`` (``▁``, and single bytes as
        ``<0xE7>``), ``bytes`` (``Ġ``, each letter a byte), or found out by ``auto``.

    Returns
    -------
    list of tuple
        First and last character of each unit, blanks left out. Units that hold a part of a character get
        that character; those that hold blanks only get the first character of the next unit; unknown units
        get what lies between their neighbours.

    Raises
    ------
    InputError
        If more than a third of the letters differ: these are not the units of this text.

    Examples
    --------
    >>> placed("The houses", ["The", "hou@@", "ses"])
    [(0, 3), (4, 7), (7, 10)]
    >>> placed("你 好", ["ä½ł", "Ġå¥", "½"])
    [(0, 1), (2, 3), (2, 3)]
    """
    if scheme not in get_args(Scheme):
        raise InputError(f"subword units are one of {', '.join(get_args(Scheme))}, found {quoted(scheme)}")
    ink = [place for place, character in enumerate(text) if not character.isspace()]
    letters = [text[place] for place in ink]
    spelt = _spelt(units, scheme, "".join(letters))
    if [letter for letter, _ in spelt] == letters:
        matched: list[tuple[int, int] | None] = [(place, place) for place in range(len(ink))]
    else:
        matched = _aligned([letter for letter, _ in spelt], letters, text)
    first: list[int | None] = [None] * len(units)
    last = [0] * len(units)
    for (_, owners), places in zip(spelt, matched, strict=True):
        if places is None:
            continue
        for unit in owners:
            first[unit] = places[0] if first[unit] is None else first[unit]
            last[unit] = places[1] + 1
    return _filled(text, units, ink, first, last)


def _filled(
    text: str, units: Sequence[str], ink: list[int], first: list[int | None], last: list[int]
) -> Offsets:
    """Turn places among the letters into offsets; units without letters get those of their neighbours."""
    offsets: list[tuple[int, int]] = []
    following = len(ink)
    for unit in range(len(units) - 1, -1, -1):
        start, end = first[unit], last[unit]
        if start is None and units[unit] in _UNKNOWN:
            before = max((last[i] for i in range(unit) if first[i] is not None), default=0)
            start, end = (before, following) if before < following else (following, following + 1)
        elif start is None:
            start, end = following, following + 1
        following = min(following, start)
        inside = start < len(ink)
        offsets.append((ink[start], ink[min(end, len(ink)) - 1] + 1) if inside else (len(text), len(text)))
    return offsets[::-1]


def _spelt(units: Sequence[str], scheme: Scheme, letters: str) -> list[tuple[str, range]]:
    """The letters that the units spell, blanks left out, each with the units that hold a part of it."""
    if scheme == "auto":
        scheme = _guessed(units, letters)
    parts = [_bytes_of(unit, scheme) for unit in units]
    owner = [unit for unit, part in enumerate(parts) for _ in part]
    spelt, done = [], 0
    for letter in b"".join(parts).decode("utf-8", "surrogateescape"):
        end = done + len(letter.encode("utf-8", "surrogateescape"))
        if not letter.isspace():
            spelt.append((letter, range(owner[done], owner[end - 1] + 1)))
        done = end
    return spelt


def _guessed(units: Sequence[str], letters: str) -> Scheme:
    """The scheme by its marks; text without any blank may have none."""
    joined = "".join(units)
    if "▁" in joined:
        return "sentencepiece"
    escaped = joined != letters and ("&" in joined or "@-@" in units)
    if escaped or any(unit.endswith("@@") for unit in units):
        return "bpe"
    if any(unit.startswith("##") and len(unit) > 2 for unit in units):
        return "wordpiece"
    byte_level = joined != letters and all(letter in _byte_alphabet() for letter in joined)
    if byte_level and ("Ġ" in joined or not letters.isascii()):
        return "bytes"
    return "sentencepiece" if _BYTE.search(joined) else "plain"


def _bytes_of(unit: str, scheme: Scheme) -> bytes:
    """What a unit spells, as bytes of UTF-8; an unknown one spells nothing."""
    if unit in _UNKNOWN:
        return b""
    if scheme == "bytes":
        alphabet = _byte_alphabet()
        return b"".join(
            bytes([alphabet[letter]]) if letter in alphabet else letter.encode() for letter in unit
        )
    if scheme == "sentencepiece":
        byte = _BYTE.fullmatch(unit)
        return bytes([int(byte[1], 16)]) if byte else unit.replace("▁", " ").encode()
    if scheme == "bpe":
        # Tools of the BPE age escape what they take for markup: &apos; &quot; @-@.
        unit = html.unescape(unit.removesuffix("@@"))
        unit = unit[1:-1] if unit in ("@-@", "@/@") else unit
    elif scheme == "wordpiece":
        unit = unit.removeprefix("##")
    return unit.encode("utf-8", "surrogateescape")


@cache
def _byte_alphabet() -> dict[str, int]:
    """The letters that byte-level BPE writes for bytes: printable ones as they are, others from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _aligned(spelt: list[str], letters: list[str], text: str) -> list[tuple[int, int] | None]:
    """First and last place of each spelt letter in the text, by the shortest edit between them."""
    # One letter may become several (ﬁ, …), so each side is normalised with the origin of every letter.
    old = [(part, i) for i, letter in enumerate(spelt) for part in _folded(letter)]
    new = [(part, i) for i, letter in enumerate(letters) for part in _folded(letter)]
    found: list[tuple[int, int] | None] = [None] * len(spelt)
    same = 0
    for i, j in align([part for part, _ in old], [part for part, _ in new]):
        if i is not None and j is not None:
            same += old[i][0] == new[j][0]
            letter, place = old[i][1], new[j][1]
            found[letter] = ((found[letter] or (place, place))[0], place)
    if same < (1 - _MOST_UNLIKE) * len(old):
        units = counted(len(spelt), "letter")
        raise InputError(f"{units} of subword units are not those of the text {quoted(text)}")
    return found


def _folded(letter: str) -> str:
    # Marks are kept apart, so that composed and decomposed accents agree in their letters.
    return unicodedata.normalize("NFKD", letter).casefold().strip() or letter
