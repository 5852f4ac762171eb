"""Beck, Specia & Cohn 2016, section 4: what decisions about post-editing time cost when mistakes are unequal.

The forecasts are those of :mod:`doubtless.reproduce.gp`. Beside the paper's estimators stand the decisions
that are exact for warped forecasts, and the plain score.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from doubtless.decide.losses import Loss
from doubtless.decide.risk import decide
from doubtless.errors import UndefinedError
from doubtless.reproduce import Options, Rows, Study, gp

MODELS = tuple(f"{warp}-mat52" for warp in gp.WARPS)


def losses_of(name: str) -> list[Loss]:
    """The losses of a set, in the order of the paper's columns: optimistic, then pessimistic.

    >>> losses_of("wmt16_en-de_ed2")[-1]
    Loss(kind='linex', w=0.25, costly='under')
    """
    # With 0.75 the paper met losses of the order of 10^7 on this set.
    pessimistic = 0.25 if name == "wmt16_en-de_ed2" else 0.75
    optimistic = [Loss("al", 3, "over"), Loss("linex", 0.75, "over")]
    return [*optimistic, Loss("al", 3, "under"), Loss("linex", pessimistic, "under")]


def mean_loss(folds: Sequence[gp.Fold], loss: Loss, method: str) -> float | None:
    """The mean over the folds of the mean loss of decisions; none if no decision is better than another."""
    try:
        costs = [loss(decide(fold.forecast, loss, method=method), fold.y).mean() for fold in folds]
    except UndefinedError:
        return None
    return float(np.mean(costs))


def table2(data: str | None, options: Options) -> Rows:
    """Mean loss of decisions, by the paper's estimators and exactly, and of the plain score."""
    rows = []
    models = gp._chosen(options.models or (("log-mat52",) if options.quick else ()), MODELS, "model")
    for name in gp._chosen(options.sets or ((gp.SETS[0],) if options.quick else ()), gp.SETS, "set"):
        paper = dict(zip(MODELS, gp._numbers(gp._PAPER_TABLE2[name]).tolist(), strict=True))
        for model in models:
            folds = list(gp._fitted(data, name, model, options))
            for loss, theirs in zip(losses_of(name), paper[model], strict=True):
                plain = [loss(fold.forecast.score, fold.y).mean() for fold in folds]
                rows.append(
                    {
                        "set": name,
                        "model": model,
                        "scenario": "pessimistic" if loss.costly == "under" else "optimistic",
                        "kind": loss.kind,
                        "w": loss.w,
                        "loss": mean_loss(folds, loss, "paper"),
                        "paper_loss": theirs,
                        "exact_loss": mean_loss(folds, loss, "exact"),
                        "score_loss": float(np.mean(plain)),
                    }
                )
    return rows


STUDIES = (Study("risk-table2", "Asymmetric losses of decisions about post-editing time", table2),)
