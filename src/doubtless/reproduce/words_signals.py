"""Sarti et al. 2025, table 2: how well a translation model's own doubts find the errors that people marked.

The paper asks each model about its own translations. Here a Chinese-English model (OPUS-MT) reads the output
of other systems (WMT21 news, MQM spans), so that not the figures can be compared, only their order. As in the
paper, a token is wrong if a character of it was marked, and F1 is that of the best threshold on the judged
rows themselves; ``f1_calibrated`` has its threshold from rows of other sources, as layers have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from doubtless.datasets import locate
from doubtless.errors import InputError
from doubtless.metaeval.correlation import spearman
from doubtless.metaeval.detection import detection_curve
from doubtless.reproduce import Options, Rows, Study
from doubtless.segments import Floats
from doubtless.words.signals import SIGNALS, TokenSignals, best_layer, require_torch, token_signals
from doubtless.words.spans import Flags, from_lists, labels

_ROWS, _QUICK = 300, 24  # segments to judge; half as many more to calibrate
_LONGEST = 600  # characters of a translation

# Average precision and best F1 on QE4PE, the set with several annotators, averaged over both languages.
_PAPER = {
    "random": (0.17, 0.27),
    "surprisal": (0.23, 0.32),
    "entropy": (0.23, 0.31),
    "mcd-avg": (0.24, 0.33),
    "mcd-var": (0.26, 0.34),
    "ll-surprisal": (0.23, 0.32),
    "ll-kl": (0.20, 0.29),
    "depth": (0.20, 0.29),
    "attention-avg": (0.18, 0.28),
    "attention-max": (0.16, 0.28),
    "blood": (0.17, 0.28),
}


def table2(data: str | None, options: Options) -> Rows:
    """Average precision and F1 of all signals, with the random baseline and the paper's figures."""
    if not options.models:
        raise InputError("a Chinese-English translation model of Hugging Face is needed: --models FOLDER")
    require_torch()
    from doubtless.words.forced import open_translation_model

    segments = sampled(pl.read_parquet(locate(data, "mqm_spans.parquet")), options)
    model = open_translation_model(options.models[0])
    found = token_signals(
        model, segments["src"].to_list(), segments["mt"].to_list(), list(SIGNALS), seed=options.seed
    )
    wrong = [
        labels(from_lists(row["mt"], row["starts"], row["ends"]), own.offsets)
        for row, own in zip(segments.iter_rows(named=True), found, strict=True)
    ]
    judging = segments["judging"].to_numpy()
    bad, other = (_joined(wrong, judging == part) for part in (True, False))
    share = float(bad.mean())
    rows = [_row("random", None, share, 2 * share / (1 + share), None)]
    for name, signal in SIGNALS.items():
        values, calibrating = (_values(found, name, judging == part) for part in (True, False))
        layer = best_layer(calibrating, other) if signal.layered else None
        if layer is not None:
            values, calibrating = values[:, layer], calibrating[:, layer]
        curve, known = detection_curve(values, bad), detection_curve(calibrating, other)
        threshold = known.best(known.f1)[1]
        flagged = values >= threshold
        hits = int((flagged & bad).sum())
        calibrated = 2 * hits / max(int(flagged.sum() + bad.sum()), 1)
        rows.append(_row(name, layer, curve.average_precision, curve.best(curve.f1)[0], calibrated))
    rows = [{**row, "segments": int(judging.sum()), "tokens": len(bad)} for row in rows]
    return [*rows, _order(rows[1:])]


def sampled(spans: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Rows of machine translations to judge and to calibrate by (``judging``), which share no source."""
    rows = spans.filter(
        (pl.col("lp") == "zh-en")
        & (pl.col("set") == "wmt21_news")
        & ~pl.col("system").str.starts_with("ref")
        & pl.col("span_ok")
        & (pl.col("mt").str.len_chars() <= _LONGEST)
    )
    if rows.is_empty():
        raise InputError("mqm_spans.parquet holds no Chinese-English rows of wmt21_news")
    rng = np.random.default_rng(options.seed)
    sources = rng.permutation(rows["src"].unique().sort().to_numpy())
    first = set(sources[: 2 * len(sources) // 3].tolist())
    rows = rows.with_columns(judging=pl.Series([src in first for src in rows["src"]]))
    wanted = _QUICK if options.quick else _ROWS
    parts = []
    for judging, count in ((True, wanted), (False, wanted // 2)):
        part = rows.filter(pl.col("judging") == judging)
        parts.append(part[np.sort(rng.permutation(len(part))[:count])])
    return pl.concat(parts)


def _values(found: Sequence[TokenSignals], name: str, chosen: np.ndarray) -> Floats:
    return np.concatenate([own.values[name] for own, used in zip(found, chosen, strict=True) if used])


def _joined(wrong: Sequence[Flags], chosen: np.ndarray) -> Flags:
    return np.concatenate([own for own, used in zip(wrong, chosen, strict=True) if used])


def _row(signal: str, layer: int | None, ap: float, f1: float, calibrated: float | None) -> dict[str, object]:
    paper_ap, paper_f1 = _PAPER[signal]
    figures = {"ap": ap, "paper_ap": paper_ap, "f1": f1, "paper_f1": paper_f1, "f1_calibrated": calibrated}
    return {"signal": signal, "layer": layer, **figures}


def _order(rows: Rows) -> dict[str, object]:
    """How well the order of the signals agrees with the paper's (Spearman)."""
    agreement = {
        name: spearman(*(np.array([row[column] for row in rows]) for column in (name, f"paper_{name}")))
        for name in ("ap", "f1")
    }
    empty = dict.fromkeys(rows[0])
    return {**empty, "signal": "order (Spearman with the paper's)", **agreement}


STUDIES = [
    Study("words-table2", "A Chinese-English model's doubts about other systems' words (MQM)", table2),
]
