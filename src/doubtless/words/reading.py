"""A segment as a translation model reads it: its tokens, where they stand, and how much of it fits.

A model reads a limited number of tokens. Of a translation that is longer the beginning is read, whose values
are those of the whole: no prediction depends on what comes after it. Of a source that is longer nothing can
be said: every word of the translation may stand for what the model did not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from doubtless.errors import InputError
from doubtless.neural.tokens import Offsets
from doubtless.words.subwords import placed


@dataclass(frozen=True)
class Forced:
    """A segment as a model reads it.

    ``source`` is what the encoder reads (nothing, in a decoder-only model) and ``target`` what the decoder
    predicts, special tokens included; ``text`` are the places of the translation's own tokens in it, which
    are called ``tokens`` and stand at ``offsets`` of the translation. ``stopped`` is the character of the
    translation from which on nothing is read, None if all of it is.
    """

    source: list[int]
    target: list[int]
    text: range
    tokens: list[str]
    offsets: Offsets
    stopped: int | None = None


def as_pair(tokenizer: Any, source: str, translation: str, most: int | None) -> Forced:
    """Cut a segment into the tokens of an encoder and a decoder, each of which reads at most so many."""
    asked = tokenizer(source)["input_ids"]
    target = tokenizer(text_target=translation)["input_ids"]
    bare = tokenizer(text_target=translation, add_special_tokens=False)["input_ids"]
    # Tags and ends stand around the text: before it in mBART-50 and NLLB, after it in mBART and Marian.
    first = next(i for i in range(len(target) + 1) if target[i : i + len(bare)] == bare)
    before, after = target[:first], target[first + len(bare) :]
    tokens = tokenizer.convert_ids_to_tokens(bare)
    offsets = placed(translation, tokens) if tokens else []
    room = len(bare)
    if most is not None:
        room = 0 if len(asked) > most else max(0, min(room, most - len(before) - len(after)))
    stopped = offsets[room][0] if room < len(bare) else None
    text = range(first, first + room)
    target = [*before, *bare[:room], *after]
    return Forced(asked[:most], target, text, tokens[:room], offsets[:room], stopped)


def as_one(tokenizer: Any, prompt: str, translation: str, most: int | None) -> Forced:
    """Cut a prompt and a translation into tokens together, as a model would have met them."""
    encoded = tokenizer(prompt + translation, return_offsets_mapping=True)
    ids, places, shift = encoded["input_ids"], encoded["offset_mapping"], len(prompt)
    own = [i for i, (start, end) in enumerate(places) if end > max(start, shift)]
    if own and own[0] == 0:
        raise InputError("a prompt must stand before the translation: the first token cannot be predicted")
    whole = range(own[0], own[-1] + 1) if own else range(len(ids), len(ids))
    text = whole[: max(0, (len(ids) if most is None else most) - whole.start)]
    offsets = [
        _inked(translation, max(start - shift, 0), end - shift) for start, end in (places[i] for i in whole)
    ]
    stopped = offsets[len(text)][0] if len(text) < len(whole) else None
    tokens = tokenizer.convert_ids_to_tokens([ids[i] for i in text])
    return Forced([], ids[:most], text, tokens, offsets[: len(text)], stopped)


def _inked(text: str, start: int, end: int) -> tuple[int, int]:
    """A piece of a text without the blanks at its ends; nothing but blanks: the letter after them."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else (start, min(start + 1, len(text)))
