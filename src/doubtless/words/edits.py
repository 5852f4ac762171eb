"""Which words a post-editor changed: the shortest edit between two texts, as spans of the first one.

The edit is Levenshtein's over words: replace, remove, add. Words never move, unlike in TER, so that a moved
phrase counts as removed in one place and added in another.
"""

from __future__ import annotations

import numpy as np

from doubtless.neural.tokens import Offsets
from doubtless.neural.words import words
from doubtless.words.align import align
from doubtless.words.spans import ErrorSpan, joined


def edit_spans(
    text: str,
    edited: str,
    *,
    offsets: Offsets | None = None,
    edited_offsets: Offsets | None = None,
) -> list[ErrorSpan]:
    """Mark what a post-editor changed in a translation.

    Words that were replaced or removed are marked; neighbours form one span. Words that were added mark the
    gap that they went into by an empty span, which stands where the next word of the translation begins, or
    at the end of the text.

    Parameters
    ----------
    text, edited
        The translation and its post-edited version.
    offsets, edited_offsets
        First and last character of their words, for texts that are tokenised already. By default words are
        those of :func:`doubtless.neural.words.words`, and in scripts without blanks single characters.

    Examples
    --------
    >>> edit_spans("He jumped a moon.", "He jumped over the moon.")
    [ErrorSpan(start=10, end=10, severity='error'), ErrorSpan(start=10, end=11, severity='error')]
    """
    old = list(words(text, range(len(text)))) if offsets is None else offsets
    new = list(words(edited, range(len(edited)))) if edited_offsets is None else edited_offsets
    before, after = [text[a:b] for a, b in old], [edited[a:b] for a, b in new]
    wrong = np.zeros(len(old), dtype=bool)
    gaps = set()
    place = 0
    for i, j in align(before, after):
        if i is None:
            gaps.add(old[place][0] if place < len(old) else len(text))
        else:
            place = i + 1
            wrong[i] = j is None or before[i] != after[j]
    return sorted([*joined(old, wrong), *(ErrorSpan(gap, gap) for gap in gaps)])
