"""Segments as token sequences, each distinct one once, and the batches in which they are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from doubtless.neural.stepper import Array, TokenBatch
from doubtless.neural.tokens import Tokens

Texts = Mapping[str, Sequence[str]]

_BUSY_TOKENS = 1_024
_SIMILAR = 0.9


@dataclass(frozen=True)
class Rows:
    """Distinct rows of token sequences, and where each of the given rows is among them.

    ``first`` counts the tokens of a row's first text, the translation.
    """

    sequences: list[list[list[int]]]
    names: tuple[str, ...]
    sizes: Array
    first: Array
    origin: Array
    truncated: Array
    score: Array | None

    def batch(self, rows: Array) -> TokenBatch:
        """A batch of distinct rows; texts that several of them share stand in it once."""
        places: dict[tuple[int, ...], int] = {}
        index = {name: np.zeros(len(rows), dtype=np.int64) for name in self.names}
        for i, row in enumerate(rows):
            for name, ids in zip(self.names, self.sequences[row], strict=True):
                index[name][i] = places.setdefault(tuple(ids), len(places))
        score = None if self.score is None else self.score[rows]
        return TokenBatch(list(places), index, score)


def rows_of(
    tokens: Tokens, texts: Texts, names: Sequence[str], *, joint: bool, score: Array | None, partial: bool
) -> Rows:
    """Tokenize the texts of segments, and find those that are the same."""
    texts = {name: list(texts[name]) for name in names}
    distinct = list(dict.fromkeys(text for name in names for text in texts[name]))
    encoded = dict(zip(distinct, tokens.encode(distinct, offsets=False), strict=True))
    n = len(texts[names[0]])
    kept: dict[tuple[Any, ...], int] = {}
    sequences: list[list[list[int]]] = []
    origin = np.zeros(n, dtype=np.int64)
    examples: list[int] = []
    translations: list[int] = []
    cut: list[bool] = []
    for i in range(n):
        key = (*(texts[name][i] for name in names), None if score is None else float(score[i]))
        if key not in kept:
            kept[key] = len(sequences)
            parts = [encoded[texts[name][i]] for name in names]
            if partial:
                parts[0] = tokens.unfinished(parts[0])
            made = [tokens.join(parts)] if joint else parts
            sequences.append([part.ids for part in made])
            cut.append(any(part.truncated for part in made))
            examples.append(i)
            translations.append(len(parts[0].ids))
        origin[i] = kept[key]
    sizes = np.array([max(len(ids) for ids in row) * len(row) for row in sequences])
    given = None if score is None else np.asarray(score)[examples]
    kinds = ("joint",) if joint else tuple(names)
    return Rows(sequences, kinds, sizes, np.array(translations), origin, np.array(cut)[origin], given)


def token_batches(sizes: Array, budget: int) -> Iterator[Array]:
    """Cut rows, sorted by length, into batches whose padded size stays within a budget of tokens.

    A batch also ends where rows become much shorter than its first, once it is large enough to keep the
    processor busy: attention pays for padding. The longest come first, so that memory is at its peak at once
    and not after an hour.

    >>> [batch.tolist() for batch in token_batches(np.array([3, 9, 4, 3]), 10)]
    [[1], [2, 0], [3]]
    """
    order = np.argsort(-np.asarray(sizes), kind="stable")
    lengths = np.asarray(sizes)[order]
    start = 0
    while start < len(order):
        longest = int(lengths[start])
        most = start + max(1, budget // longest)
        enough = start + max(1, _BUSY_TOKENS // longest)
        # Lengths fall: find the first row that is too short.
        similar = start + int(np.searchsorted(-lengths[start:], -_SIMILAR * longest, side="right"))
        end = min(most, max(enough, similar))
        yield order[start:end]
        start = end
