"""The work of ``doubtless words``: a tagger, a translation model or recorded probabilities over a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

import doubtless
from doubtless.cli.progress import progress_bar
from doubtless.errors import InputError
from doubtless.formats import values
from doubtless.formats.words import quoted
from doubtless.neural.engine import texts_of
from doubtless.neural.tokens import Offsets
from doubtless.neural.words import words
from doubtless.segments import Floats, Table
from doubtless.words.signals import TokenSignals, parse_signal, recorded_signals, require_torch, token_signals
from doubtless.words.spans import How
from doubtless.words.tagger import TaggedWords, open_tagger, tag_words

TAGGER = "tagger"
UNITS, LOGPROBS = "nmt_tok", "nmt_logprobs"


@dataclass(frozen=True)
class Worded:
    """A translation, its words, and what is said about them: one value a word under each name."""

    text: str
    words: Offsets
    values: dict[str, Floats]


@dataclass(frozen=True)
class Wording:
    """The words of a table's translations with their suspicion, and how it was come by."""

    table: Table
    segments: list[Worded]
    names: list[str]
    signature: str

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
            values = np.concatenate([s.values[name] for s in self.segments])
            columns[name] = pl.Series(values.round(6)).fill_nan(None)
        return pl.DataFrame(columns)

    def summary(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        sources = self.table.column("src").to_list() if self.table.has("src") else [None] * len(self.segments)
        segments = [
            {
                "src": source,
                "mt": segment.text,
                "words": [
                    {"text": segment.text[start:end], "start": start, "end": end}
                    | {name: float(segment.values[name][i]) for name in self.names}
                    for i, (start, end) in enumerate(segment.words)
                ],
            }
            for source, segment in zip(sources, self.segments, strict=True)
        ]
        counted = sum(len(s.words) for s in self.segments)
        found = {"n": len(segments), "words": counted, "signals": self.names, "segments": segments}
        return found | {"signature": self.signature}


@dataclass(frozen=True)
class Wishes:
    """What to ask about words, and whom."""

    signals: Sequence[str] = ()
    model: str | None = None
    tagger: str | None = None
    join: How = "max"
    passes: int = 10
    probes: int = 4
    seed: int = 0
    languages: tuple[str, str] | None = None
    prompt: str | None = None


def word_table(table: Table, wishes: Wishes, options: Mapping[str, Any]) -> Wording:
    """Find the suspicion of all words of a table's translations."""
    for name in wishes.signals:
        parse_signal(name)
    texts = ["" if text is None else str(text) for text in table.column("mt")]
    tagged, signed = _tagged(table, wishes.tagger, options) if wishes.tagger else (None, [])
    found: Sequence[TokenSignals | None] | None = None
    if wishes.model:
        found, asked = _asked(table, texts, wishes, options)
        signed += asked
    elif wishes.signals:
        found = _recorded(table, texts)
    segments = []
    for row, text in enumerate(texts):
        own = None if found is None else found[row]
        if tagged is not None:
            pieces = tagged[row].words
        else:
            pieces = list(words(text, {start for start, _ in own.offsets} if own else ()))
        said: dict[str, Floats] = {}
        if tagged is not None:
            said[TAGGER] = tagged[row].probability
        for name in wishes.signals:
            missing = np.full(len(pieces), np.nan)
            said[name] = missing if own is None else own.on(name, pieces, wishes.join)
        segments.append(Worded(text, pieces, said))
    names = [*([TAGGER] if tagged is not None else []), *wishes.signals]
    signature = "|".join([*signed, f"join:{wishes.join}", f"version:{doubtless.__version__}"])
    return Wording(table, segments, names, signature)


def _tagged(table: Table, tagger: str, options: Mapping[str, Any]) -> tuple[list[TaggedWords], list[str]]:
    """All words with the tagger's probability that they are wrong."""
    engine = open_tagger(tagger, **options)
    pairs = table.column("lp").cast(pl.String).to_list() if table.has("lp") else None
    with progress_bar(len(table), "tagging") as progress:
        found = tag_words(engine, texts_of(table, engine.config), pairs, progress)
    return found, [f"tagger:{engine.name}", f"weights:{engine.fingerprint()}"]


def _asked(
    table: Table, texts: list[str], wishes: Wishes, options: Mapping[str, Any]
) -> tuple[list[TokenSignals], list[str]]:
    """The signals of a translation model."""
    require_torch()
    from doubtless.words.forced import open_translation_model

    pairs = table.column("lp").cast(pl.String).unique().to_list() if table.has("lp") else [None]
    running = {name: options[name] for name in ("device", "dtype", "threads")}
    model = open_translation_model(
        str(wishes.model),
        languages=wishes.languages,
        lp=pairs[0] if len(pairs) == 1 else None,
        template=wishes.prompt,
        **running,
    )
    sources = ["" if text is None else str(text) for text in table.column("src")]
    with progress_bar(len(texts), "reading") as progress:
        found = token_signals(
            model,
            sources,
            texts,
            wishes.signals,
            passes=wishes.passes,
            probes=wishes.probes,
            seed=wishes.seed,
            batch_tokens=options["batch_tokens"],
            progress=progress,
        )
    signed = [f"model:{model.name}"]
    asked = {parse_signal(name)[0] for name in wishes.signals}
    signed += [f"passes:{wishes.passes}"] if asked & {"mcd-avg", "mcd-var"} else []
    signed += [f"probes:{wishes.probes}"] if "blood" in asked else []
    signed += [f"seed:{wishes.seed}"] if asked & {"mcd-avg", "mcd-var", "blood"} else []
    return found, signed


def _recorded(table: Table, texts: list[str]) -> list[TokenSignals | None]:
    """Surprisal from recorded log-probabilities; rows without any have none."""
    for column in (UNITS, LOGPROBS):
        if not table.has(column):
            raise InputError(
                f"{table.name}: signals need --model, or surprisal recorded in columns {UNITS} and {LOGPROBS}"
            )
    logs = table.column(LOGPROBS)
    if logs.dtype == pl.String:
        logs, wrong = values.number_lists(logs.replace("", None))
        if (wrong & logs.is_not_null()).any():
            raise InputError(
                f"{table.name}: column {quoted(LOGPROBS)} holds something else than lists of numbers"
            )
    found: list[TokenSignals | None] = []
    for row, (text, units, own) in enumerate(zip(texts, table.column(UNITS), logs, strict=True)):
        try:
            found.append(None if not units or own is None else recorded_signals(text, units, own))
        except InputError as error:
            raise InputError(f"{table.place(row)}: {error}") from None
    return found
