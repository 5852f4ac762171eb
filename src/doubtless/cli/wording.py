"""The work of ``doubtless words``: a tagger, a translation model or recorded probabilities over a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import doubtless
from doubtless.cli.progress import progress_bar
from doubtless.cli.words_threshold import MADE_WITH, Threshold
from doubtless.errors import InputError
from doubtless.formats import values
from doubtless.formats.words import counted, listed, quoted
from doubtless.neural.engine import Engine
from doubtless.neural.texts import texts_of
from doubtless.neural.tokens import Offsets
from doubtless.neural.words import words
from doubtless.segments import Floats, Table
from doubtless.words.signals import (
    TokenSignals,
    every_layer,
    parse_signal,
    recorded_signals,
    require_torch,
    token_signals,
)
from doubtless.words.spans import How
from doubtless.words.tagger import Form, TaggedWords, open_tagger, tag_words

if TYPE_CHECKING:
    from doubtless.words.forced import TranslationModel

TAGGER, MODEL = "tagger", "model"
UNITS, LOGPROBS = "nmt_tok", "nmt_logprobs"
_DROPPED = {"mcd-avg", "mcd-var"}


@dataclass(frozen=True)
class Worded:
    """A translation, its words, and what is said about them: one value a word under each name.

    Values are rounded as they are written, so that thresholds mean the same when they are read again. Flags
    say what is odd: ``truncated`` if the segment did not fit into a model, which has no values for the words
    that it did not read; ``unrecorded`` if there are no recorded log-probabilities.
    """

    text: str
    words: Offsets
    values: dict[str, Floats]
    flags: str = ""


@dataclass(frozen=True)
class Wording:
    """The words of a table's translations with their suspicion, and how it was come by.

    ``made_with`` says for each name which weights and options its values depend on.
    """

    table: Table
    segments: list[Worded]
    names: list[str]
    signature: str
    made_with: dict[str, str]
    threshold: Threshold | None = None

    @property
    def shown(self) -> str:
        """The name whose values people see first."""
        return self.names[0] if self.threshold is None else str(self.threshold.signal)

    @cached_property
    def bad(self) -> list[list[bool | None]]:
        """Which words are bad by the threshold, if there is one; None where that is not known."""
        if self.threshold is None:
            return []
        return [self.threshold.bad(segment.values[self.shown]) for segment in self.segments]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know."""
        found = []
        cut = sum("truncated" in segment.flags for segment in self.segments)
        if cut:
            size = f"{cut} of {counted(len(self.segments), 'segment')}"
            found.append(
                f"{size} did not fit into a model: flagged, and without values where it read nothing"
            )
        if self.threshold is not None and self.threshold.is_vague:
            found.append(
                f"{self.threshold.name} does not say which model it is for"
                " (`words evaluate` knows if its table is the Parquet file that `words` wrote)"
            )
        return found

    @cached_property
    def levels(self) -> dict[str, list[Floats]]:
        """How far each word is shaded, from 0 to 1.

        A tagger's probability as it is; of another signal, the share of all words here with a lower value.
        """
        ends = np.cumsum([len(segment.words) for segment in self.segments])[:-1]
        made = {}
        for name in self.names:
            values = np.concatenate([segment.values[name] for segment in self.segments])
            known = np.isfinite(values)
            shares = np.where(known, values, 0.0)
            if name != TAGGER:
                below = np.searchsorted(np.sort(values[known]), values[known])
                shares[known] = below / max(int(known.sum()) - 1, 1)
            made[name] = np.split(shares, ends)
        return made

    def frame(self) -> pl.DataFrame:
        """One row a word: where it stands, and its values."""
        counts = [len(s.words) for s in self.segments]
        places = np.array([place for s in self.segments for place in s.words], dtype=np.int64).reshape(-1, 2)
        columns: dict[str, Any] = {"row": np.repeat(np.arange(1, len(counts) + 1), counts)}
        for name in ("lp", "system", "seg"):
            if self.table.has(name):
                column = self.table.column(name)
                columns[name] = column.gather(columns["row"] - 1)
        columns["word"] = [s.text[start:end] for s in self.segments for start, end in s.words]
        columns |= {"start": places[:, 0], "end": places[:, 1]}
        for name in self.names:
            columns[name] = pl.Series(np.concatenate([s.values[name] for s in self.segments])).fill_nan(None)
        if self.threshold is not None:
            columns["bad"] = pl.Series([one for own in self.bad for one in own], dtype=pl.Boolean)
        columns["flags"] = pl.Series([s.flags for s in self.segments for _ in s.words], dtype=pl.String)
        return pl.DataFrame(columns)

    def summary(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        sources = self.table.column("src").to_list() if self.table.has("src") else [None] * len(self.segments)
        segments = [
            {"src": source, "mt": segment.text, "flags": segment.flags, "words": self._described(row)}
            for row, (source, segment) in enumerate(zip(sources, self.segments, strict=True))
        ]
        found: dict[str, Any] = {"n": len(segments), "words": self.count, "signals": self.names}
        if self.threshold is not None:
            found |= {"threshold": self.threshold.as_json(), "bad": self.bad_count}
        return found | {"segments": segments, "warnings": self.warnings, "signature": self.signature}

    def _described(self, row: int) -> list[dict[str, Any]]:
        """The words of a segment as plain data."""
        segment = self.segments[row]
        return [
            {"text": segment.text[start:end], "start": start, "end": end}
            | {name: float(segment.values[name][i]) for name in self.names}
            | ({"bad": self.bad[row][i]} if self.threshold is not None else {})
            for i, (start, end) in enumerate(segment.words)
        ]

    @property
    def footer(self) -> dict[str, str]:
        """What a Parquet file says of itself, for thresholds that are found on it."""
        return {"doubtless.signature": self.signature, MADE_WITH: json.dumps(self.made_with)}

    @property
    def count(self) -> int:
        """How many words there are."""
        return sum(len(segment.words) for segment in self.segments)

    @property
    def bad_count(self) -> int:
        """How many of them are bad by the threshold."""
        return sum(one is True for own in self.bad for one in own)


@dataclass(frozen=True)
class Wishes:
    """What to ask about words, and whom."""

    signals: Sequence[str] = ()
    model: str | None = None
    tagger: str | None = None
    form: Form = "confidence"
    join: How = "max"
    passes: int = 10
    probes: int = 4
    seed: int = 0
    languages: tuple[str, str] | None = None
    prompt: str | None = None
    threshold: Threshold | None = None

    @property
    def names(self) -> list[str]:
        """What each word gets a value of."""
        return [*([TAGGER] if self.tagger else []), *self.signals]


def word_table(table: Table, wishes: Wishes, options: Mapping[str, Any]) -> Wording:
    """Find the suspicion of all words of a table's translations."""
    for name in every_layer(wishes.signals, layers=1):
        parse_signal(name)
    tagger = open_tagger(wishes.tagger, **options) if wishes.tagger else None
    model = _opened(table, wishes, options) if wishes.model else None
    if model is not None:
        wishes = replace(wishes, signals=every_layer(wishes.signals, len(model.layers)))
    threshold = None if wishes.threshold is None else wishes.threshold.among(wishes.names)
    asked = {kind: own for kind, own in ((TAGGER, tagger), (MODEL, model)) if own is not None}
    weights = {kind: f"weights:{own.fingerprint()}" for kind, own in asked.items()}
    made_with = _made_with(wishes, weights)
    if threshold is not None:  # before anything is computed
        threshold.refuse_other(made_with)
    texts = ["" if text is None else str(text) for text in table.column("mt")]
    tagged = None if tagger is None else _tagged(table, tagger)
    found: Sequence[TokenSignals | None] | None = None
    if model is not None:
        found = _asked(table, texts, model, wishes, options)
    elif wishes.signals:
        found = _recorded(table, texts)
    segments = [
        _worded(text, wishes, None if tagged is None else tagged[row], None if found is None else found[row])
        for row, text in enumerate(texts)
    ]
    names = {kind: own.name for kind, own in asked.items()}
    signature = _signature(wishes, names, weights, threshold)
    return Wording(table, segments, wishes.names, signature, made_with, threshold)


def _worded(text: str, wishes: Wishes, tagged: TaggedWords | None, found: TokenSignals | None) -> Worded:
    """The words of one translation, with what a tagger and token signals say."""
    if tagged is not None:
        pieces = tagged.words
    else:
        pieces = list(words(text, {start for start, _ in found.offsets} if found else ()))
    said = {} if tagged is None else {TAGGER: tagged.on(pieces, wishes.form)}
    for name in wishes.signals:
        said[name] = np.full(len(pieces), np.nan) if found is None else found.on(name, pieces, wishes.join)
    cut = (tagged is not None and tagged.truncated) or (found is not None and found.stopped is not None)
    flags = ["truncated"] if cut else []
    flags += ["unrecorded"] if wishes.signals and found is None else []
    return Worded(text, pieces, {name: values.round(6) for name, values in said.items()}, " ".join(flags))


def _signature(
    wishes: Wishes, names: Mapping[str, str], weights: Mapping[str, str], threshold: Threshold | None
) -> str:
    parts = [part for kind, name in names.items() for part in (f"{kind}:{name}", weights[kind])]
    parts += _form(wishes) if TAGGER in names else []
    asked = {parse_signal(name)[0] for name in wishes.signals} if MODEL in names else set()
    parts += [f"passes:{wishes.passes}"] if asked & _DROPPED else []
    parts += [f"probes:{wishes.probes}"] if "blood" in asked else []
    parts += [f"seed:{wishes.seed}"] if asked & {*_DROPPED, "blood"} else []
    parts.append(f"join:{wishes.join}")
    parts += [] if threshold is None else [f"threshold:{threshold.signal},{threshold.value:g}"]
    return "|".join([*parts, f"version:{doubtless.__version__}"])


def _made_with(wishes: Wishes, weights: Mapping[str, str]) -> dict[str, str]:
    """What the values of each name depend on, beside the texts and chance: thresholds are for these."""
    made = {name: "|".join([own, *_form(wishes)]) for name, own in weights.items() if name == TAGGER}
    for name in wishes.signals:
        signal, parts = parse_signal(name)[0], [weights.get(MODEL, "recorded"), f"join:{wishes.join}"]
        parts += [f"passes:{wishes.passes}"] if signal in _DROPPED else []
        parts += [f"probes:{wishes.probes}"] if signal == "blood" else []
        parts += [f"prompt:{wishes.prompt}"] if wishes.prompt is not None else []
        made[name] = "|".join(parts)
    return made


def _form(wishes: Wishes) -> list[str]:
    """How a tagger is asked, where that is not the common way."""
    return [] if wishes.form == "confidence" else [f"form:{wishes.form}"]


def _tagged(table: Table, tagger: Engine) -> list[TaggedWords]:
    """All words with the tagger's probability that they are wrong."""
    pairs = table.column("lp").cast(pl.String).to_list() if table.has("lp") else None
    with progress_bar(len(table), "tagging") as progress:
        return tag_words(tagger, texts_of(table, tagger.config), pairs, progress)


def _opened(table: Table, wishes: Wishes, options: Mapping[str, Any]) -> TranslationModel:
    """The translation model; languages may be known from the table."""
    require_torch()
    from doubtless.words.forced import open_translation_model

    pairs = list(_by_pair(table))
    running = {name: options[name] for name in ("device", "dtype", "threads")}
    model = open_translation_model(
        str(wishes.model), languages=wishes.languages, lp=pairs[0], template=wishes.prompt, **running
    )
    if wishes.languages is not None and model.is_told_languages and len(pairs) > 1:
        raise InputError(f"{table.name}: --languages are one pair, found {listed([str(p) for p in pairs])}")
    return model


def _by_pair(table: Table) -> dict[str | None, list[int]]:
    """The rows of each language pair; without any, all rows."""
    pairs = table.column("lp").cast(pl.String).to_list() if table.has("lp") else [None] * len(table)
    found: dict[str | None, list[int]] = {}
    for row, pair in enumerate(pairs):
        found.setdefault(pair, []).append(row)
    return found or {None: []}


def _asked(
    table: Table, texts: list[str], model: TranslationModel, wishes: Wishes, options: Mapping[str, Any]
) -> list[TokenSignals]:
    """The signals of a translation model, which is told the languages of each row if it cares."""
    sources = ["" if text is None else str(text) for text in table.column("src")]
    groups = _by_pair(table)
    if len(groups) == 1 or not model.is_told_languages:
        spoken = [(model, list(range(len(texts))))]
    else:
        spoken = [(model.told(pair), rows) for pair, rows in groups.items()]
    found: dict[int, TokenSignals] = {}
    with progress_bar(len(texts), "reading") as progress:
        for own, rows in spoken:
            signals = token_signals(
                own,
                [sources[row] for row in rows],
                [texts[row] for row in rows],
                wishes.signals,
                passes=wishes.passes,
                probes=wishes.probes,
                seed=wishes.seed,
                batch_tokens=options["batch_tokens"],
                progress=progress,
            )
            found |= dict(zip(rows, signals, strict=True))
    return [found[row] for row in range(len(texts))]


def _recorded(table: Table, texts: list[str]) -> list[TokenSignals | None]:
    """Surprisal from recorded log-probabilities; rows without any have none."""
    for column in (UNITS, LOGPROBS):
        if not table.has(column):
            raise InputError(
                f"{table.name}: signals need --model, or surprisal recorded in columns {UNITS} and {LOGPROBS}"
            )
    logs = table.column(LOGPROBS)
    if logs.dtype == pl.String:
        cells = logs.replace("", None)
        logs, wrong = values.number_lists(cells)
        wrong &= cells.is_not_null()
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise InputError(f"{table.place(row)}: {quoted(cells[row])} is not a list of log-probabilities")
    found: list[TokenSignals | None] = []
    rows = zip(texts, table.column(UNITS).to_list(), logs.to_list(), strict=True)
    for row, (text, units, own) in enumerate(rows):
        try:
            unknown = units in (None, "", []) or own is None
            found.append(None if unknown else recorded_signals(text, units, own))
        except InputError as error:
            raise InputError(f"{table.place(row)}: {error}") from None
    return found
