"""Uncertainty of neural scores: the seven quantifiers of Zerva & Martins 2024, as forecasts.

What the model itself says (``instant``, ``hts``, ``quantile``), what many runs say (``mcd``, ``ensemble``),
what a second model says (``dup``), and what the same model says of the pair turned round (``bt``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from doubtless.errors import InputError
from doubtless.forecast import ErrorEstimate, Forecast, Gaussian, Quantiles, Samples
from doubtless.neural.config import ModelConfig
from doubtless.neural.engine import Engine, Progress, Scored
from doubtless.neural.exits import ExitRule
from doubtless.neural.rows import Texts

if TYPE_CHECKING:
    from doubtless.neural.torch_stepper import TorchStepper

KINDS = ("instant", "hts", "quantile", "mcd", "ensemble", "dup", "bt", "none")
OF_OUTPUT = {
    "score+error": "instant",
    "score+error+change": "instant",
    "mean+variance": "hts",
    "quantiles": "quantile",
}


@dataclass(frozen=True)
class Quantifier:
    """Which uncertainty is wanted; ``passes`` counts the runs of MC dropout.

    >>> Quantifier.parse("mcd:30")
    Quantifier(kind='mcd', passes=30)
    """

    kind: str
    passes: int = 0

    @classmethod
    def parse(cls, text: str) -> Quantifier:
        """Read ``mcd:30``, ``ensemble``, ``hts``, ``dup``, ``quantile``, ``bt``, ``instant`` or ``none``."""
        kind, _, number = text.partition(":")
        if kind not in KINDS or (number and kind != "mcd"):
            raise InputError(f"an uncertainty is one of {', '.join(KINDS)} (mcd:PASSES), found '{text}'")
        if kind != "mcd":
            return cls(kind)
        if not (number.isascii() and number.isdecimal()) or int(number) < 2:
            raise InputError(f"MC dropout needs a number of passes, at least 2: mcd:30, found '{text}'")
        return cls(kind, int(number))

    @classmethod
    def natural(cls, config: ModelConfig, models: int) -> Quantifier:
        """What a model, or several, offer by themselves."""
        return cls("ensemble" if models > 1 else OF_OUTPUT.get(config.outputs, "none"))


@dataclass(frozen=True)
class Quantified:
    """Forecasts of segments, the columns that hold them in a table, and the run behind them."""

    forecast: Forecast
    columns: dict[str, Any]
    scored: Scored


def quantify(
    engines: Sequence[Engine],
    texts: Texts,
    quantifier: Quantifier,
    *,
    errors: Engine | None = None,
    exit: ExitRule | None = None,
    seed: int = 0,
    partial: bool = False,
    spans: bool = False,
    words: float | None = None,
    progress: Progress | None = None,
) -> Quantified:
    """Score segments and say how sure the scores are.

    Parameters
    ----------
    engines
        One model, or the members of an ensemble.
    texts
        Lists of ``mt``, ``src`` and ``ref``, and of ``lp``.
    quantifier
        Which uncertainty.
    errors
        The model of errors for ``dup``.
    exit, partial, spans, words, progress
        As in :meth:`~doubtless.neural.engine.Engine.score`.
    seed
        Of MC dropout. The same seed and batch size give the same passes.
    """
    first, kind = engines[0], quantifier.kind
    _check(engines, quantifier, errors, exit)
    if partial and kind == "bt":
        raise InputError("bt turns source and translation round: it needs whole translations")
    if kind == "mcd":
        runs, stepper = [], cast("TorchStepper", first.stepper)
        for number in range(quantifier.passes):
            with stepper.dropout(seed + number):
                runs.append(first.score(texts, partial=partial, progress=progress))
        return _of_samples(runs)
    if kind == "ensemble":
        runs = [engine.score(texts, partial=partial, progress=progress) for engine in engines]
        return _of_samples(runs)
    scored = first.score(texts, exit=exit, partial=partial, spans=spans, words=words, progress=progress)
    if kind == "dup":
        assert errors is not None
        error = errors.score(texts, score=scored.score, partial=partial).outputs["error"]
        return _with_error(scored, error)
    if kind == "bt":
        turned = {"mt": texts["src"], "src": texts["mt"]}
        return _with_error(scored, np.abs(scored.score - first.score(turned, exit=exit).score))
    return _own(first.config, scored, kind)


def _check(
    engines: Sequence[Engine], quantifier: Quantifier, errors: Engine | None, exit: ExitRule | None
) -> None:
    config, kind = engines[0].config, quantifier.kind
    if kind in OF_OUTPUT.values() and OF_OUTPUT.get(config.outputs) != kind:
        raise InputError(f"the model gives {config.outputs}, which is no '{kind}' uncertainty")
    if kind == "ensemble" and len(engines) < 2:
        raise InputError("an ensemble needs at least two models")
    if kind != "ensemble" and len(engines) > 1:
        raise InputError(f"several models are an ensemble, not '{kind}'")
    if kind == "dup" and (errors is None or errors.config.outputs != "error"):
        raise InputError("dup needs a second model, trained on errors (outputs = error)")
    if kind == "mcd" and not hasattr(engines[0].stepper, "dropout"):
        raise InputError("mcd needs dropout, which only the runtime 'torch' has")
    if kind == "bt" and config.uses != "src+mt":
        raise InputError("bt turns source and translation round: it needs a model without references")
    if kind == "bt" and (config.language_tags or engines[0].surface is not None):
        raise InputError("bt turns source and translation round: it needs a model that is told no language")
    if exit is not None and kind in ("mcd", "ensemble"):
        raise InputError(f"early exit and '{kind}' exclude each other")


def _own(config: ModelConfig, scored: Scored, kind: str) -> Quantified:
    if kind == "instant":
        return _with_error(scored, scored.outputs["error"])
    if kind == "hts":
        sd = np.sqrt(scored.outputs["variance"])
        return Quantified(Gaussian(scored.score, sd), {"score": scored.score, "sd": sd}, scored)
    if kind == "quantile":
        values = scored.outputs["quantiles"]
        names = {f"q{level:g}": values[:, i] for i, level in enumerate(config.quantile_levels)}
        return Quantified(Quantiles(config.quantile_levels, values), {"score": scored.score, **names}, scored)
    return Quantified(
        ErrorEstimate(scored.score, np.ones(len(scored.score))), {"score": scored.score}, scored
    )


def _with_error(scored: Scored, error: np.ndarray) -> Quantified:
    return Quantified(ErrorEstimate(scored.score, error), {"score": scored.score, "error": error}, scored)


def _of_samples(runs: Sequence[Scored]) -> Quantified:
    forecast = Samples(np.stack([run.score for run in runs], axis=1))
    return Quantified(forecast, {"score": forecast.score, "sd": forecast.sd}, runs[0])
