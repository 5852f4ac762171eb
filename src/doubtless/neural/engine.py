"""Scoring segments: token batches, each distinct text once, order restored, memory bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.exits import ExitRule, run
from doubtless.neural.pairs import corrected, correction_of, told
from doubtless.neural.rows import Rows, Texts, rows_of, token_batches
from doubtless.neural.spans import Span, decode_spans, mqm_score, word_probabilities, xcomet_score
from doubtless.neural.stepper import Array, Stepper, VectorStepper
from doubtless.neural.tokens import Offsets, Tokens
from doubtless.neural.words import Word, suspicious_words
from doubtless.surface.model import Surface

Progress = Callable[[int], None]

_ROWS_AT_ONCE = 2_048
_STORE_BYTES = 256 << 20


@dataclass(frozen=True)
class Scored:
    """Outputs of the segments, in their order.

    ``outputs`` maps ``score`` and whatever else the model gives to arrays; ``layer`` is where each row was
    read, ``truncated`` whether some of its text did not fit. Models that tag words also give, if they are
    asked for them, ``spans``, the errors that they see in each translation, and ``words``, those that they
    doubt.
    """

    outputs: dict[str, Array]
    layer: Array
    truncated: Array
    spans: list[list[Span]] | None = None
    words: list[list[Word]] | None = None

    @property
    def score(self) -> Array:
        """The scores."""
        return self.outputs["score"]


@dataclass(frozen=True)
class _Marks:
    """What a model that tags words is to report of each row."""

    spans: bool
    words: float | None

    def wanted(self, config: ModelConfig, exit: ExitRule | None) -> bool:
        """Whether words are to be tagged at all: tags may also be part of the score."""
        asked = self.spans or self.words is not None or config.combination == "xcomet"
        return asked and bool(config.word_tags) and exit is None


@dataclass(frozen=True)
class Engine:
    """A model ready to score; :func:`doubtless.neural.runtime.open_engine` makes one.

    Parameters
    ----------
    stepper
        The model itself, on whichever runtime.
    tokens, config
        Its tokenizer, and what it is made of.
    name, fingerprint
        For signatures: what it is called, and a function that gives eight hex digits of the weights.
    batch_tokens
        Most tokens of a batch, padding included. Scores do not depend on it (to 1e-6 in float32).
    surface
        What corrects the scores of some language pairs, if there is such.

    Examples
    --------
    >>> engine = open_engine("model")  # doctest: +SKIP
    >>> engine.score({"src": ["Haus"], "mt": ["house"]}).score  # doctest: +SKIP
    """

    stepper: Stepper
    tokens: Tokens
    config: ModelConfig
    name: str
    fingerprint: Callable[[], str]
    batch_tokens: int = 4_096
    surface: Surface | None = None

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise InputError(f"batch_tokens must be positive, found {self.batch_tokens}")

    def score(
        self,
        texts: Texts,
        *,
        exit: ExitRule | None = None,
        score: Array | None = None,
        partial: bool = False,
        spans: bool = False,
        words: float | None = None,
        progress: Progress | None = None,
    ) -> Scored:
        """Score segments.

        Parameters
        ----------
        texts
            Lists of ``mt``, ``src`` and ``ref``, as the model uses them; ``lp``, if the language pairs are
            known, for models that are told the language or correct some pairs.
        exit
            Rule by which rows leave before the last layer.
        score
            For models of errors: the scores whose errors are predicted.
        partial
            Translations are unfinished: the model says how good they are so far, and nothing corrects it.
        spans, words
            For models that tag words: whether to report the errors that they see; report the words that are
            more probably wrong than this.
        progress
            Called with the number of rows that were just scored.
        """
        names = [name for name in self.config.texts if name in texts]
        self._check(texts, names, exit, score)
        if partial and not self.config.partial:
            raise InputError("the model was not trained on unfinished translations")
        n = len(texts["mt"])
        parts = []
        # Texts are embedded apart, and once, unless rows leave early or translations are marked.
        apart = self.config.inputs == "separate" and exit is None and not partial
        cache = _VectorStore(self) if apart else None
        for start in range(0, n, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            chunk = {name: values[rows] for name, values in texts.items() if name in (*names, "lp")}
            read = told(self.config, chunk)
            given = None if score is None else score[rows]
            if cache is not None:
                found = cache.score(read, given)
            else:
                found = self._score_passes(read, exit, given, partial, _Marks(spans, words))
            if not partial:
                found = replace(found, outputs=corrected(found.outputs, correction_of(self.surface, chunk)))
            parts.append(found)
            if progress is not None:
                progress(len(chunk["mt"]))
        scored = _concatenated(parts)
        _refuse_not_finite(scored)
        return scored

    def trace(self, texts: Texts) -> dict[str, Array]:
        """Outputs of every exit (exits, rows), for models that read a segment in one pass.

        Any rule of leaving early can be played through on them (:func:`doubtless.neural.exits.replay`).
        """
        rows = self.rows(texts)
        found: dict[str, Array] = {}
        for batch in token_batches(rows.sizes, self.batch_tokens):
            state = self.stepper.start(rows.batch(batch))
            for number, layer in enumerate(self.stepper.exits):
                state = self.stepper.advance(state, layer)
                for name, values in self.stepper.read(state).items():
                    shape = (len(self.stepper.exits), len(rows.sizes), *values.shape[1:])
                    found.setdefault(name, np.zeros(shape))[number, batch] = values
        traced = {name: values[:, rows.origin] for name, values in found.items()}
        return corrected(traced, correction_of(self.surface, texts))

    def rows(self, texts: Texts) -> Rows:
        """The token sequences of segments, for models that read a segment in one pass."""
        names = [name for name in self.config.texts if name in texts]
        self._check(texts, names, None, None)
        joint = self.config.inputs == "joint"
        if joint and len(self.config.passes) > 1:
            raise InputError("a model that reads a segment in three ways has no single trace")
        read = told(self.config, {name: texts[name] for name in (*names, "lp") if name in texts})
        return rows_of(self.tokens, read, names, joint=joint, score=None, partial=False)

    def _check(self, texts: Texts, names: list[str], exit: ExitRule | None, score: Array | None) -> None:
        optional = {"ref"} if self.config.inputs == "joint" and "src" in self.config.texts else set()
        missing = [name for name in self.config.texts if name not in texts and name not in optional]
        if missing:
            raise InputError(f"the model needs '{missing[0]}'")
        lengths = {len(texts[name]) for name in (*names, "lp") if name in texts}
        if lengths == {0} or len(lengths) != 1:
            raise InputError("there is nothing to score" if lengths == {0} else "texts of different numbers")
        if score is not None and {len(score)} != lengths:
            raise InputError(f"{len(score)} scores for {lengths.pop()} segments")
        if exit is not None and self.config.exits != "every":
            raise InputError("the model has no exits before its last layer")

    def _score_passes(
        self, texts: Texts, exit: ExitRule | None, score: Array | None, partial: bool, marks: _Marks
    ) -> Scored:
        """Rows as batches; a joint model that has source and reference reads them in three ways."""
        tag = marks.wanted(self.config, exit)
        if self.config.inputs == "separate":
            return self._score_rows(texts, self.config.texts, exit, score, partial, tag)[0]
        passes = self.config.passes if "ref" in texts or len(self.config.passes) == 1 else (("mt", "src"),)
        runs = [self._score_rows(texts, names, exit, score, partial, tag) for names in passes]
        found = [run[0] for run in runs]
        outputs = {name: np.mean([f.outputs[name] for f in found], axis=0) for name in found[0].outputs}
        spans = doubted = None
        if tag:
            tags, rows = self.config.word_tags, self._tagged(texts["mt"], [run[1] for run in runs])
            spans = [decode_spans(*row, tags) for row in rows] if marks.spans else None
            if marks.words is not None:
                doubted = [suspicious_words(*row, marks.words) for row in rows]
            if self.config.combination == "xcomet":
                # Scores are COMET's, and it forgets spans that reach the end; those reported are whole.
                counted = [mqm_score(decode_spans(*row, tags, flush_open=False)) for row in rows]
                outputs["score"] = xcomet_score([f.score for f in found], counted)
        layer = np.max([f.layer for f in found], axis=0)
        return Scored(outputs, layer, np.any([f.truncated for f in found], axis=0), spans, doubted)

    def _tagged(
        self, translations: Sequence[str], passes: Sequence[list[Array]]
    ) -> list[tuple[Array, Offsets, str]]:
        """Probabilities of the tokens of each translation, from all passes, their offsets and the text."""
        distinct = list(dict.fromkeys(translations))
        encoded = dict(zip(distinct, self.tokens.encode(distinct), strict=True))
        return [
            (word_probabilities(rows), encoded[mt].offsets, mt)
            for mt, rows in zip(translations, zip(*passes, strict=True), strict=True)
        ]

    def _score_rows(
        self,
        texts: Texts,
        names: Sequence[str],
        exit: ExitRule | None,
        score: Array | None,
        partial: bool,
        tag: bool,
    ) -> tuple[Scored, list[Array]]:
        """Score rows by one pass; if words are to be tagged also the probabilities of each row's tokens."""
        joint = self.config.inputs == "joint"
        rows = rows_of(self.tokens, texts, names, joint=joint, score=score, partial=partial)
        found: dict[str, Array] = {}
        layer = np.zeros(len(rows.sizes), dtype=np.int64)
        words: list[Array] = [np.empty(0)] * len(rows.sizes)
        for batch in token_batches(rows.sizes, self.batch_tokens):
            if tag:
                state = self.stepper.advance(self.stepper.start(rows.batch(batch)), self.stepper.depth)
                outputs, layers = self.stepper.read(state), np.full(len(batch), self.stepper.depth)
                for row, probabilities in zip(batch, self.stepper.read_words(state), strict=True):
                    words[row] = probabilities[: rows.first[row]]
            else:
                outputs, layers = run(self.stepper, rows.batch(batch), exit)
            for name, values in outputs.items():
                found.setdefault(name, np.zeros((len(layer), *values.shape[1:])))
                found[name][batch] = values
            layer[batch] = layers
        # Identical rows were scored once.
        outputs = {name: values[rows.origin] for name, values in found.items()}
        scored = Scored(outputs, layer[rows.origin], rows.truncated)
        return scored, [words[row] for row in rows.origin]


class _VectorStore:
    """Vectors of distinct texts, for models that embed each text apart.

    A source or reference that several systems share is encoded once; the store is bounded, and emptied when
    it is full.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.stepper = engine, cast(VectorStepper, engine.stepper)
        size = self.stepper.size
        capacity = max(_STORE_BYTES // (4 * size), 4 * _ROWS_AT_ONCE)
        self.places: dict[str, int] = {}
        self.truncated: dict[str, bool] = {}
        self.table = np.empty((capacity, size), dtype=np.float32)  # memory that is not used is not taken

    def score(self, texts: Texts, score: Array | None) -> Scored:
        """Score a chunk of rows."""
        names = list(texts)
        distinct = list(dict.fromkeys(text for name in names for text in texts[name]))
        self._add([text for text in distinct if text not in self.places], distinct)
        vectors = {name: self.table[[self.places[text] for text in texts[name]]] for name in names}
        outputs = self.stepper.read_vectors(vectors, score)
        n = len(texts["mt"])
        truncated = [any(self.truncated[texts[name][i]] for name in names) for i in range(n)]
        return Scored(outputs, np.full(n, self.stepper.depth), np.array(truncated))

    def _add(self, new: list[str], needed: list[str]) -> None:
        if len(self.places) + len(new) > len(self.table):
            self.places.clear()
            self.truncated.clear()
            new = needed
        encoded = self.engine.tokens.encode(new, offsets=False)
        sizes = np.array([len(text.ids) for text in encoded])
        for batch in token_batches(sizes, self.engine.batch_tokens):
            places = range(len(self.places), len(self.places) + len(batch))
            self.table[places.start : places.stop] = self.stepper.vectors([encoded[i].ids for i in batch])
            self.places.update(zip((new[i] for i in batch), places, strict=True))
        self.truncated.update((text, found.truncated) for text, found in zip(new, encoded, strict=True))


def _concatenated(parts: list[Scored]) -> Scored:
    outputs = {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs}
    layer = np.concatenate([part.layer for part in parts])
    truncated = np.concatenate([part.truncated for part in parts])
    spans = None if parts[0].spans is None else [row for part in parts for row in part.spans or []]
    words = None if parts[0].words is None else [row for part in parts for row in part.words or []]
    return Scored(outputs, layer, truncated, spans, words)


def _refuse_not_finite(scored: Scored) -> None:
    for name, values in scored.outputs.items():
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            raise InputError(f"the model's {name} of row {int(bad.argmax()) + 1} is not a finite number")
