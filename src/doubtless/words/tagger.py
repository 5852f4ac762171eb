"""Suspicion of words from models that were trained to tag them: the bundled one, our own, xCOMET.

Such a model gives every token a probability for each tag. It can be asked in two ways. *Binary*: each token
has its most probable tag, runs of errors are spans, and a word that a span touches is wrong: the common use
of xCOMET. *Confidence*: the suspicion of a token is the sum of the probabilities of all tags that mean
an error, ``p(minor) + p(major) + p(critical)``, and a word is as suspicious as the worst of its tokens. Only
the second has a threshold that can be chosen (:mod:`doubtless.words.control`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from doubtless.errors import InputError
from doubtless.formats.words import quoted
from doubtless.neural.engine import Engine, Scored
from doubtless.neural.runtime import open_engine
from doubtless.neural.tokens import Offsets
from doubtless.words.spans import ErrorSpan, Floats, as_far_as_read, from_model, labels, project

Form = Literal["confidence", "binary"]

BUNDLED = "bundled"


@dataclass(frozen=True, eq=False)
class TaggedWords:
    """What a tagger says about the words of one translation.

    Parameters
    ----------
    words
        First and last character of each word; a tokenizer's tokens where a script has no blanks.
    probability
        That each of them is wrong; 0 for words that were not read.
    spans
        The errors, as runs of tokens that are most probably wrong.
    truncated
        Whether some of the source or the translation did not fit into the model.
    stopped
        The character from which on the translation was not read; None: all of it was.
    """

    words: Offsets
    probability: Floats
    spans: list[ErrorSpan]
    truncated: bool = False
    stopped: int | None = None

    def on(self, pieces: Offsets, form: Form = "confidence") -> Floats:
        """The suspicion of pieces of the translation, such as words that were cut in another way.

        Pieces that the model did not read to their end have NaN.

        Examples
        --------
        >>> found = TaggedWords([(0, 3), (4, 7)], np.array([0.2, 0.7]), [ErrorSpan(4, 7)])
        >>> found.on([(0, 3), (4, 6), (6, 7)]).tolist(), found.on([(0, 3), (4, 7)], "binary").tolist()
        ([0.2, 0.7, 0.7], [0.0, 1.0])
        """
        if checked_form(form) == "binary":
            values = labels(self.spans, pieces).astype(np.float64)
        else:
            values = project(self.probability, self.words, pieces, "max", missing=0.0)
        return as_far_as_read(values, pieces, self.stopped)


def checked_form(text: str) -> Form:
    """Read the name of a form.

    Examples
    --------
    >>> checked_form("binary")
    'binary'
    """
    for form in get_args(Form):
        if form == text:
            return form
    raise InputError(f"a tagger is asked for {' or '.join(get_args(Form))}, found {quoted(text)}")


def open_tagger(source: str | os.PathLike[str] = BUNDLED, **options: Any) -> Engine:
    """Open a model that tags words.

    Parameters
    ----------
    source
        ``bundled``, a folder (ours or xCOMET's) or a name on the hub.
    options
        As of :func:`doubtless.neural.runtime.open_engine`.

    Raises
    ------
    InputError
        If the model tags no words.

    Examples
    --------
    >>> engine = open_tagger()  # doctest: +SKIP
    """
    engine = open_engine(None if source == BUNDLED else source, **options)
    if not engine.config.word_tags:
        raise InputError(f"{os.fspath(source)}: the model tags no words")
    return engine


def tag_words(
    engine: Engine,
    texts: Mapping[str, Sequence[str]],
    pairs: Sequence[str | None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[TaggedWords]:
    """Tag the words of translations.

    Parameters
    ----------
    engine
        A model that tags words (:func:`open_tagger`).
    texts
        Lists of ``src``, ``mt`` and ``ref``, as the model uses them.
    pairs
        The language pair of each segment, for models that are told the language.
    progress
        Called with the number of segments that are done.

    Examples
    --------
    >>> found = tag_words(open_tagger(), {"src": ["Haus"], "mt": ["mouse"]}, ["de-en"])  # doctest: +SKIP
    >>> found[0].on([(0, 5)])  # doctest: +SKIP
    array([0.93])
    """
    told = dict(texts)
    if pairs is not None:
        told["lp"] = [pair or "" for pair in pairs]
    # Every probability is above -1: all words are reported.
    found = engine.score(told, spans=True, words=-1.0, progress=progress)
    return tagged_words(engine, found, told["mt"])


def tagged_words(engine: Engine, scored: Scored, translations: Sequence[str]) -> list[TaggedWords]:
    """Take the words from what a model said when it was asked for all of them (``spans=True, words=-1.0``).

    Examples
    --------
    >>> scored = engine.score(texts, spans=True, words=-1.0)  # doctest: +SKIP
    >>> tagged_words(engine, scored, texts["mt"])[0].probability  # doctest: +SKIP
    """
    if scored.words is None or scored.spans is None:
        raise InputError(f"{engine.name}: the model tags no words")
    rows = zip(scored.words, scored.spans, scored.truncated, translations, strict=True)
    return [
        TaggedWords(
            [(word["start"], word["end"]) for word in own],
            np.array([word["probability"] for word in own], dtype=np.float64),
            from_model(spans),
            bool(cut),
            _stopped(engine, text) if cut else None,
        )
        for own, spans, cut, text in rows
    ]


def _stopped(engine: Engine, text: str) -> int | None:
    """The end of the last token of a translation that was read; None if all were, and the source was cut."""
    (kept,) = engine.tokens.encode([text])
    return max(end for _, end in kept.offsets) if kept.truncated else None
