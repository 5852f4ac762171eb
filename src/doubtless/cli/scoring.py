"""The work of ``doubtless score``: models over a table, intervals, flags, and what is worth a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import doubtless
from doubtless.cli.adapting import Adapted, AdaptWish, adapt_systems, drift_from, reference
from doubtless.cli.look import Look
from doubtless.cli.progress import progress_bar
from doubtless.conformal.calibrate import apply
from doubtless.conformal.grouped import FittedGrouped
from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.engine import Engine
from doubtless.neural.exits import ExitRule
from doubtless.neural.runtime import open_engine
from doubtless.neural.texts import Column, pairs_of, sanity_flags, texts_of
from doubtless.neural.uncertainty import Quantified, Quantifier, quantify
from doubtless.neural.words import marked
from doubtless.segments import Floats, Table
from doubtless.systems import SystemTable, interval_of_mean, segment_numbers, system_tables
from doubtless.systems import matrix as by_system

if TYPE_CHECKING:
    from doubtless.conformal.split import Intervals
    from doubtless.conformal.store import Calibration

_UNKNOWN = "unknown"
_PIECE = {"text": pl.String, "start": pl.Int64, "end": pl.Int64}
_WORDS = pl.List(pl.Struct({**_PIECE, "probability": pl.Float64}))
_SPANS = pl.List(pl.Struct({**_PIECE, "severity": pl.String, "confidence": pl.Float64}))


@dataclass(frozen=True)
class Wishes:
    """How to score: what the options say about models and their doubt."""

    models: Sequence[str] = ()
    error_model: str | None = None
    uncertainty: str | None = None
    exit: str | None = None
    partial: bool = False
    spans: bool = False
    words: float | None = None
    seed: int = 0
    adapt: AdaptWish | None = None


@dataclass(frozen=True)
class Run:
    """What the models said; ``own`` tells whether the doubt is the one that the model offers by itself."""

    found: Quantified
    flags: list[str]
    signature: str
    config: ModelConfig
    depth: int
    own: bool
    adapted: Adapted | None = None


def run_models(
    table: Table, wishes: Wishes, options: Mapping[str, Any], calibration: Calibration | None = None
) -> Run:
    """Score a table; the calibration is what ``--adapt auto`` looks for drift from."""
    rule = None if wishes.exit is None else ExitRule.parse(wishes.exit)
    asked = None if wishes.uncertainty is None else Quantifier.parse(wishes.uncertainty)
    dropped = wishes.adapt is not None or (asked is not None and asked.kind == "mcd")
    if dropped and options["runtime"] == "auto":
        options = {**options, "runtime": "torch"}  # dropout is something that only PyTorch can do
    sources: Sequence[str | None] = wishes.models or [None]  # None is the bundled model
    engines = [open_engine(name, **options) for name in sources]
    errors = None if wishes.error_model is None else open_engine(wishes.error_model, **options)
    config = engines[0].config
    natural = Quantifier("dup") if errors else Quantifier.natural(config, len(engines))
    quantifier = asked or natural
    if errors and quantifier.kind != "dup":
        raise InputError(f"a model of errors serves dup, not '{quantifier.kind}'")
    single = len(engines) == 1 and quantifier.kind != "mcd" and rule is None
    if (wishes.spans or wishes.words is not None) and not (single and config.word_tags):
        name = "--spans" if wishes.spans else "--words"
        raise InputError(f"nothing marks errors here: {name} needs one model with word tags, without --exit")
    texts: dict[str, Column] = {}
    everyone = [*engines, *([errors] if errors else [])]
    for engine in everyone:
        texts |= texts_of(table, engine.config)
    adapted = None
    if wishes.adapt is not None:
        if len(engines) > 1 or rule is not None or wishes.partial:
            raise InputError("--adapt needs one model, all of its layers and whole translations")
        drift_of = None
        if wishes.adapt.auto:
            known = reference(calibration)
            before = forecast_table(table, quantify(engines, texts, natural, errors=errors), known)
            drift_of = drift_from(before, known, wishes.seed)
        engines[0], adapted = adapt_systems(engines[0], texts, table, wishes.adapt, drift_of)
    with progress_bar(len(table) * (quantifier.passes or len(engines))) as progress:
        found = quantify(
            engines,
            texts,
            quantifier,
            errors=errors,
            exit=rule,
            seed=wishes.seed,
            partial=wishes.partial,
            spans=wishes.spans,
            words=wishes.words,
            progress=progress,
        )
    flags = sanity_flags(texts, found.scored.truncated, pairs_of(table))
    signature = _signature(engines, asked, quantifier, wishes)
    own = errors is None and len(engines) == 1 and quantifier == natural
    return Run(found, flags, signature, config, engines[0].stepper.depth, own, adapted)


def _signature(
    engines: Sequence[Engine], asked: Quantifier | None, quantifier: Quantifier, wishes: Wishes
) -> str:
    weights = "+".join(engine.fingerprint() for engine in engines)
    parts = [f"model:{engines[0].name}", f"weights:{weights}"]
    parts.append(f"uncertainty:{wishes.uncertainty if asked else quantifier.kind}")
    parts += [f"exit:{wishes.exit}"] if wishes.exit else []
    parts += ["partial"] if wishes.partial else []
    parts += [f"adapt:{wishes.adapt}|seed:{wishes.seed}"] if wishes.adapt else []
    return "|".join([*parts, f"version:{doubtless.__version__}"])


@dataclass(frozen=True)
class Result:
    """A scored table, with intervals if there is a calibration, and what its reader should know."""

    table: Table
    run: Run
    calibration: Calibration | None
    intervals: Intervals | None
    flags: list[str]
    look: Look
    warnings: list[str]
    signature: str
    seed: int = 0

    @property
    def score(self) -> Floats:
        """The scores."""
        return self.run.found.forecast.score

    @property
    def worth_a_look(self) -> np.ndarray:
        """Which segments are worth a look."""
        worse = self.score
        if self.intervals is not None:
            worse = self.intervals.lower if self.look.higher else self.intervals.upper
        return self.look.rows(worse, self.flags)

    @property
    def higher(self) -> bool:
        """Whether higher scores are better."""
        return self.run.config.direction == "higher"

    def frame(self, *, spans: bool = False, words: bool = False, as_lists: bool = False) -> pl.DataFrame:
        """The table with its new columns; words as lists, or as the translation with marks."""
        scored, columns = self.run.found.scored, dict(self.run.found.columns)
        new: dict[str, Any] = {"score": columns.pop("score")}
        if self.intervals is not None:
            new |= {"lower": self.intervals.lower, "upper": self.intervals.upper}
        new |= columns
        if self.run.config.exits == "every":
            new["layer"] = scored.layer
        if self.run.adapted is not None:
            new["adapted"] = self.run.adapted.column()
        if words and scored.words is not None:
            texts = self.table.column("mt").cast(pl.String).fill_null("")
            shown = [marked(text, found) for text, found in zip(texts, scored.words, strict=True)]
            new["words"] = pl.Series(scored.words, dtype=_WORDS) if as_lists else shown
        if spans and scored.spans is not None:
            new["spans"] = pl.Series(scored.spans, dtype=_SPANS)
        new["flags"] = self.flags
        self.table.check_free(new)
        return self.table.frame.with_columns(**{name: pl.Series(values) for name, values in new.items()})

    @cached_property
    def systems(self) -> list[SystemTable]:
        """The table of systems, within each language pair; none where there is only one system."""
        if not self.table.has("system") or self.table.column("system").n_unique() < 2:
            return []
        return system_tables(self.table, self.score, seed=self.seed, higher=self.higher)

    @cached_property
    def mean(self) -> tuple[float, float, float]:
        """The mean score and its 95% interval, segments drawn with all their systems."""
        segments = segment_numbers(self.table)
        systems = self.table.column("system").cast(pl.String) if self.table.has("system") else None
        names = [""] * len(self.table) if systems is None else systems.fill_null("").to_list()
        return interval_of_mean(by_system(names, segments, self.score)[1], seed=self.seed)

    def summary(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        mean, lower, upper = self.mean
        chosen = self.worth_a_look
        found: dict[str, Any] = {
            "n": len(self.table),
            "mean": mean,
            "mean_interval": [lower, upper],
            "worth_a_look": int(chosen.sum()),
            "share_worth_a_look": float(chosen.mean()),
            "rule": self.look.rule(self.intervals is not None),
            "layers": float(self.run.found.scored.layer.mean()),
        }
        if self.calibration is not None and self.intervals is not None:
            found |= {"alpha": self.calibration.fitted.alpha, "width": float(self.intervals.width.mean())}
        if self.run.adapted is not None:
            found["adaptation"] = self.run.adapted.as_json()
        if self.systems:
            found["systems"] = [row for table in self.systems for row in table.rows()]
            found["comparisons"] = [pair for table in self.systems for pair in table.pairs()]
        return found | {"warnings": self.warnings, "signature": self.signature}


def with_doubt(
    table: Table, run: Run, calibration: Calibration | None, threshold: float | None, seed: int = 0
) -> Result:
    """Add intervals, and the rule by which segments are worth a look."""
    look = Look.of(run.config, calibration, threshold)
    if calibration is None:
        return Result(table, run, None, None, run.flags, look, [], run.signature, seed)
    applied = apply(calibration, forecast_table(table, run.found, calibration), keep_score=True)
    pairs = zip(run.flags, applied.frame["flags"], strict=True)
    flags = [intern(" ".join(filter(None, pair))) for pair in pairs]  # few are different
    warnings = [*applied.warnings, *_unseen(table, applied.intervals)]
    signature = f"{run.signature}|{calibration.signature}"
    return Result(table, run, calibration, applied.intervals, flags, look, warnings, signature, seed)


def forecast_table(table: Table, found: Quantified, calibration: Calibration) -> Table:
    """A table with the columns of its forecasts, as a calibration reads them."""
    columns = {name: pl.Series(values) for name, values in found.columns.items()}
    return _with_pairs(replace(table, frame=table.frame.with_columns(**columns)), calibration)


def _with_pairs(table: Table, calibration: Calibration) -> Table:
    """Let rows of no known language pair count as an unseen one, if the calibration allows unseen ones."""
    fitted = calibration.fitted
    if calibration.reading.by != ("lp",) or not isinstance(fitted, FittedGrouped) or fitted.unseen == "error":
        return table
    pairs = table.column("lp").cast(pl.String) if table.has("lp") else pl.Series([None] * len(table))
    known = pairs.cast(pl.String).replace("", None).fill_null(_UNKNOWN).alias(table.roles.get("lp", "lp"))
    return replace(table, frame=table.frame.with_columns(known))


def _unseen(table: Table, intervals: Intervals) -> list[str]:
    count = int(intervals.unseen.sum())
    if not count:
        return []
    hint = "" if table.has("lp") else " (--lp says the pair)"
    return [
        f"the language pair of {count} of {len(table)} rows is not known to the calibration:"
        f" for these the promise holds on average over pairs only{hint}"
    ]
