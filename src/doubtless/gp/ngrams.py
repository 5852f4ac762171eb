"""Words and n-grams of a corpus: how frequent they are, and how probable a sentence is.

Everything is counted and looked up for all sentences at once: words become numbers, n-grams become one number
each, and a table of n-grams is a sorted array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.warp import Floats

Ints = np.ndarray[Any, np.dtype[np.int64]]

# A character of a script without spaces, a word (with its apostrophes and hyphens), or any other sign.
_TOKEN = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|[\p{L}\p{M}\p{N}\x{200C}\x{200D}]+(?:['’\-.,][\p{L}\p{M}\p{N}]+)*"
    r"|\S"
)
ORDER = 3
# Unknown words, beginnings and ends have numbers too, and three numbers make one of 63 bits.
_OTHERS = 3
MOST_WORDS = 2 ** (63 // ORDER) - _OTHERS


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences as one row of tokens: ``owner`` says which sentence each token belongs to.

    >>> Sentences.of(pl.Series(["Don't panic!", ""])).words.to_list()
    ["don't", 'panic', '!']
    """

    words: pl.Series
    owner: Ints
    count: int

    @classmethod
    def of(cls, texts: pl.Series) -> Sentences:
        """Cut texts into lower-cased tokens."""
        lists = texts.fill_null("").str.to_lowercase().str.extract_all(_TOKEN)
        lengths = lists.list.len().to_numpy().astype(np.int64)
        return cls(lists.explode().drop_nulls(), np.repeat(np.arange(len(texts)), lengths), len(texts))

    @cached_property
    def lengths(self) -> Ints:
        """How many tokens each sentence has."""
        return np.bincount(self.owner, minlength=self.count)

    def mean(self, of_tokens: Floats) -> Floats:
        """The mean over the tokens of each sentence; 0 where there are none."""
        return self.total(of_tokens) / np.maximum(self.lengths, 1)

    def total(self, of_tokens: Floats) -> Floats:
        """The sum over the tokens of each sentence."""
        return np.bincount(self.owner, weights=of_tokens, minlength=self.count).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each n-gram occurs: sorted numbers of n-grams and their counts."""

    keys: Ints
    counts: Ints

    @classmethod
    def of(cls, keys: Ints, weights: Ints | None = None) -> Counts:
        """Count keys; or sum their weights."""
        distinct, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        if weights is not None:
            counts = np.bincount(place, weights=weights).astype(np.int64)
        return cls(distinct, counts)

    def look_up(self, keys: Ints) -> Ints:
        """How often each key occurs; 0 if never."""
        if not len(self.keys):
            return np.zeros(len(keys), dtype=np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Counts that cut off the rarest and the most frequent quarter of all distinct n-grams."""
        low, high = np.quantile(self.counts, [0.25, 0.75], method="lower") if len(self.counts) else (0, 0)
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """Words and n-grams up to three of a corpus in one language.

    Parameters
    ----------
    words
        The distinct words, sorted; a word's number is its place.
    tables
        Counts of words, pairs and triples, with the marks of beginnings and ends.

    Examples
    --------
    >>> model = NgramModel.train(Sentences.of(pl.Series(["a b", "a b", "a c"])))
    >>> seen, unseen = model.log10_probability(Sentences.of(pl.Series(["a b", "c c"])))
    >>> bool(seen > unseen)
    True
    """

    words: pl.Series
    tables: tuple[Counts, ...]

    @classmethod
    def train(cls, corpus: Sentences) -> NgramModel:
        """Count the n-grams of a corpus."""
        words = corpus.words.unique().sort()
        model = cls(words, ())
        if len(words) > MOST_WORDS:
            raise InputError(
                f"the corpus has {len(words):,} distinct words, at most {MOST_WORDS:,} can be counted:"
                " take a part of it"
            )
        padded, ends = model._padded(corpus)
        return cls(words, tuple(Counts.of(model._keys(padded, ends, n)) for n in range(1, ORDER + 1)))

    @property
    def _unknown(self) -> int:
        return len(self.words)

    @property
    def _base(self) -> int:
        """One more than the largest number."""
        return len(self.words) + _OTHERS

    def numbers(self, words: pl.Series) -> Ints:
        """The number of each word."""
        known = pl.DataFrame({"word": self.words, "number": np.arange(len(self.words))})
        asked = pl.DataFrame({"word": words})
        found = asked.join(known, on="word", how="left", maintain_order="left")["number"]
        return found.fill_null(self._unknown).to_numpy().astype(np.int64)

    def _padded(self, sentences: Sentences) -> tuple[Ints, Ints]:
        """Numbers of words with two beginnings and an end a sentence; and the places that are predicted."""
        beginning, end = self._unknown + 1, self._unknown + 2
        lengths = sentences.lengths + ORDER
        starts = np.cumsum(lengths) - lengths
        padded = np.full(int(lengths.sum()), beginning, dtype=np.int64)
        padded[starts + lengths - 1] = end
        places = np.arange(len(sentences.words)) + ORDER * sentences.owner + ORDER - 1
        padded[places] = self.numbers(sentences.words)
        return padded, np.sort(np.concatenate([places, starts + lengths - 1]))

    def _keys(self, padded: Ints, ends: Ints, n: int) -> Ints:
        """The n-grams that end at given places, as numbers."""
        keys = padded[ends - n + 1]
        for back in range(n - 2, -1, -1):
            keys = keys * self._base + padded[ends - back]
        return keys

    @cached_property
    def _histories(self) -> list[tuple[Counts, Counts]]:
        """For words and pairs: how often they are continued, and by how many different words."""
        keys = [table.keys // self._base for table in self.tables[1:]]
        return [
            (Counts.of(key, table.counts), Counts.of(key))
            for key, table in zip(keys, self.tables[1:], strict=True)
        ]

    def log10_probability(self, sentences: Sentences) -> Floats:
        """The logarithm to base 10 of each sentence's probability, its end included."""
        owner = np.repeat(np.arange(sentences.count), sentences.lengths + 1)
        logs = np.log10(self.probabilities(sentences))
        return np.bincount(owner, weights=logs, minlength=sentences.count).astype(np.float64)

    def probabilities(self, sentences: Sentences) -> Floats:
        """The probability of each word and of each end, given the two words before it.

        Triples are interpolated with pairs and words by the rule of Witten and Bell: a history that has been
        continued in many ways leaves more to the shorter history.
        """
        padded, ends = self._padded(sentences)
        words = self.tables[0]
        total, types = int(words.counts.sum()), self._base - 1  # a beginning is never predicted
        probability: Floats = (words.look_up(padded[ends]) + 1) / (total + types)
        for n in range(2, ORDER + 1):
            keys = self._keys(padded, ends, n)
            often, ways = (table.look_up(keys // self._base) for table in self._histories[n - 2])
            seen = self.tables[n - 1].look_up(keys)
            mixed = (seen + ways * probability) / np.maximum(often + ways, 1)
            probability = np.where(often > 0, mixed, probability)
        return probability

    def frequencies(self, sentences: Sentences, n: int) -> tuple[Ints, Ints]:
        """How often each n-gram inside the sentences occurs in the corpus, and whose it is."""
        numbers = self.numbers(sentences.words)
        inside = np.arange(n - 1, len(numbers))
        inside = inside[sentences.owner[inside] == sentences.owner[inside - n + 1]]
        counts = self.tables[n - 1].look_up(self._keys(numbers, inside, n))
        return counts, sentences.owner[inside]

    def quartiles(self, n: int) -> tuple[float, float]:
        """Counts that cut off the rarest and the most frequent quarter of n-grams without marks."""
        table = self.tables[n - 1]
        plain = np.ones(len(table.keys), dtype=bool)
        keys = table.keys
        for _ in range(n):
            plain &= keys % self._base < self._unknown
            keys = keys // self._base
        return Counts(table.keys[plain], table.counts[plain]).quartiles

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays of numbers and bytes, for a file."""
        text = "\n".join(self.words.to_list()).encode()
        found: dict[str, np.ndarray] = {"words": np.frombuffer(text, dtype=np.uint8)}
        for n, table in enumerate(self.tables, start=1):
            found |= {f"keys{n}": table.keys, f"counts{n}": table.counts}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> NgramModel:
        """Make a model again from :meth:`arrays`."""
        text = arrays["words"].tobytes().decode()
        words = pl.Series(text.split("\n") if text else [], dtype=pl.String)
        tables = (Counts(arrays[f"keys{n}"], arrays[f"counts{n}"]) for n in range(1, ORDER + 1))
        return cls(words, tuple(tables))
