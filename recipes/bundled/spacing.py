"""Text from tokens: which neighbours are written without a space between them, learnt from texts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

FULL_WIDTH = str.maketrans("，。！？：；（）％“”‘’", ",.!?:;()%\"\"''")
CLITIC = re.compile(r"['’](?:s|m|d|t|ll|re|ve)|n['’]t", re.IGNORECASE)
IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Spacing:
    """How the tokens of one language pair are written.

    Post-edits come as tokens; were they written otherwise than machine translations, a model would learn the
    spaces and not the words.
    """

    glued: frozenset[tuple[str, str]]
    full_width: bool  # whether punctuation of ideographic texts is full-width

    @classmethod
    def learn(cls, rows: Iterable[tuple[str, Sequence[str]]]) -> Spacing:
        """From texts with their tokens; a pair of neighbours is glued if it is so more often than not."""
        counts: dict[tuple[str, str], Counter[bool]] = {}
        wide = narrow = 0
        for text, tokens in rows:
            for pair, near in zip(neighbours(tokens), gaps(text, tokens), strict=True):
                counts.setdefault(pair, Counter())[near] += 1
            wide += text.count("。")
            narrow += text.endswith(".")
        glued = frozenset(pair for pair, found in counts.items() if found[True] > found[False])
        return cls(glued, wide > narrow)

    def marks(self, tokens: Sequence[str]) -> list[str]:
        """Tokens with punctuation of the width that the texts have."""
        return list(tokens) if self.full_width else [token.translate(FULL_WIDTH) for token in tokens]

    def write(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        tokens = self.marks(tokens)
        parts = tokens[:1]
        for token, pair in zip(tokens[1:], neighbours(tokens), strict=True):
            parts.append(token if pair in self.glued else f" {token}")
        return "".join(parts)


def neighbours(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The kinds of adjacent tokens: marks are themselves (quotes with their side), words of three kinds."""
    kinds, opened = [], Counter[str]()
    for token in tokens:
        if token in {'"', "'"}:
            opened[token] += 1
            kinds.append(token + ("open" if opened[token] % 2 else "close"))
        elif all(unicodedata.category(character)[0] in "PS" for character in token):
            kinds.append(token)
        elif CLITIC.fullmatch(token):
            kinds.append("clitic")
        else:
            kinds.append("ideograph" if IDEOGRAPH.search(token) else "word")
    return pairwise(kinds)


def gaps(text: str, tokens: Sequence[str]) -> Iterator[bool]:
    """For each pair of adjacent tokens, whether the text has no space between them."""
    at = 0
    for number, token in enumerate(tokens):
        found = text.find(token, at)
        if number:
            yield found == at
        at = (found if found >= 0 else at) + len(token)
