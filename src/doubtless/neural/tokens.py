"""Texts to token sequences, with what truncation cut off and where each token stands in its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

Offsets = list[tuple[int, int]]

_AT_ONCE = 512
"""Texts that the tokenizer gets in one call: what it gives takes far more room than the tokens."""


@dataclass(frozen=True)
class Tokenized:
    """Tokens of a text, special ones included; character offsets, if asked for; whether the text was cut."""

    ids: list[int]
    offsets: Offsets
    truncated: bool


@dataclass(frozen=True)
class Joined:
    """One sequence of several texts; the first ``first`` tokens belong to the first of them."""

    ids: list[int]
    first: int
    truncated: bool


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer and the special tokens of its encoder.

    Parameters
    ----------
    definition
        The content of a ``tokenizer.json``.
    begin, end, padding
        Ids of the special tokens around and after a text.
    separators
        How many ``end`` tokens stand between two texts of one sequence: 2 for XLM-R, 1 for BERT.
    most
        Most tokens of a sequence; a single text has at most two fewer, as in COMET.
    more
        Id of the token that stands at the end of an unfinished translation (-1: there is none).
    """

    definition: str
    begin: int
    end: int
    padding: int
    separators: int
    most: int
    more: int = -1

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_str(self.definition)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def encode(self, texts: Sequence[str], *, offsets: bool = True) -> list[Tokenized]:
        """Tokenize texts, each with its special tokens and cut to the most that one text may have.

        Offsets take ten times the memory of the tokens: whoever does not need them can do without.
        """
        most = self.most - 4
        found = []
        for start in range(0, len(texts), _AT_ONCE):
            some = list(texts[start : start + _AT_ONCE])
            for encoding in self._tokenizer.encode_batch(some, add_special_tokens=False):
                ids = encoding.ids
                places = [(0, 0), *encoding.offsets[:most], (0, 0)] if offsets else []
                found.append(Tokenized([self.begin, *ids[:most], self.end], places, len(ids) > most))
        return found

    def unfinished(self, text: Tokenized) -> Tokenized:
        """Mark a text as one that goes on: the model is told that what is missing may still come."""
        if self.more < 0:
            return text
        return replace(text, ids=[*text.ids[:-1], self.more, text.ids[-1]], offsets=[*text.offsets, (0, 0)])

    def join(self, texts: Sequence[Tokenized]) -> Joined:
        """One sequence of several texts; what is too long loses its end, that is of the last text."""
        between = [self.end] * self.separators
        ids = list(texts[0].ids[:-1])
        for text in texts[1:]:
            ids += [*between, *text.ids[1:-1]]
        ids.append(self.end)
        inner = sum(len(text.ids) - 2 for text in texts)
        cut = inner > self.most - (1 + len(texts) * self.separators)
        truncated = any(text.truncated for text in texts) or len(ids) > self.most
        return Joined(ids[: self.most] if cut else ids, len(texts[0].ids), truncated)

    def as_json(self) -> dict[str, Any]:
        """Return the special tokens (the definition is a file of its own)."""
        return {
            "begin": self.begin,
            "end": self.end,
            "padding": self.padding,
            "separators": self.separators,
            "most": self.most,
            "more": self.more,
        }


def tokens_of(tokenizer: Any, most: int) -> Tokens:
    """Take over a fast Hugging Face tokenizer."""
    begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    # What stands between two texts is best asked of the tokenizer itself.
    pair = tokenizer("a", "a")["input_ids"]
    separators = sum(token == end for token in pair) - 1
    more = -1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id
    definition = tokenizer.backend_tokenizer.to_str()
    return Tokens(definition, begin, end, tokenizer.pad_token_id, separators, most, more)
