"""Zouhar et al. 2025: deferring to humans (section 5, figure 6) and unfinished translations (table 6).

The paper's model and its WMT23 scores are not at hand. Recorded COMET ensembles (WMT20) and the bundled model
(WMT21 and WMT22 to English) take its place, so that the figures show the same effect and not the same
numbers. Figure 6 of the paper gives no numbers in its text.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from doubtless.datasets import locate
from doubtless.decide.budget import PRICES, word_counts
from doubtless.decide.defer import Case
from doubtless.decide.prune import Plan, fertility, pieces
from doubtless.decide.simulate import DRAWN, SHARES, Setting, curves
from doubtless.errors import InputError
from doubtless.forecast import ErrorEstimate, Floats, Forecast, Samples
from doubtless.metaeval.correlation import pearson
from doubtless.neural.runtime import open_engine
from doubtless.reproduce import Options, Rows, Study
from doubtless.reproduce.bundled import Measured

RULES = ("random", "score", "confidence", "chance", "loss", "oracle-score", "oracle-error")
_MEMBERS = ("ens3", "ens7", "ens89", "ens891")
_BAD = -0.5  # of a standardised score: about the worst third
_SEGMENTS = 150  # of a pair, scored by the bundled model
_QUICK_SEGMENTS = 20
_RESAMPLES = 100
_PAPER_TABLE6 = {0.25: (0.097, 0.210), 0.5: (0.108, 0.250), 0.75: (0.155, 0.283), 1.0: (0.327, 0.318)}


def _recorded(data: str | None, options: Options) -> tuple[pl.DataFrame, Forecast]:
    """WMT20 with four members of a COMET ensemble, without human translations."""
    frame = pl.read_parquet(locate(data, "wmt20_comet.parquet"))
    frame = frame.filter(~pl.col("mt_is_ref"), ~pl.col("system").str.starts_with("Human"))
    if options.quick:
        frame = frame.filter(pl.col("lp") == "en-pl")
    return frame, Samples(frame.select(_MEMBERS).to_numpy())


def _scored(data: str | None, options: Options) -> tuple[pl.DataFrame, Forecast]:
    """WMT21 and WMT22 to English, some segments of each test set, scored by the bundled model."""
    frame = pl.read_parquet(locate(data, "wmt_da.parquet"))
    frame = frame.filter(
        pl.col("source_set").is_in(["wmt21", "wmt22"]), ~pl.col("system").str.starts_with("HUMAN")
    )
    frame = frame.with_columns(lp=pl.col("source_set") + " " + pl.col("lp"))
    rng = np.random.default_rng(options.seed)
    kept = []
    for _, part in frame.group_by("lp", maintain_order=True):
        segments = part["seg"].unique().sort().to_numpy()
        count = min(_QUICK_SEGMENTS if options.quick else _SEGMENTS, len(segments))
        kept.append(part.filter(pl.col("seg").is_in(rng.choice(segments, count, replace=False).tolist())))
    frame = pl.concat(kept)
    engine = open_engine(options.models[0] if options.models else None)
    pairs = frame["lp"].str.split(" ").list.last().to_list()
    scored = engine.score({"src": frame["src"].to_list(), "mt": frame["mt"].to_list(), "lp": pairs})
    return frame, ErrorEstimate(scored.score, scored.outputs["error"])


SETS: dict[str, Callable[[str | None, Options], tuple[pl.DataFrame, Forecast]]] = {
    "wmt20": _recorded,
    "wmt21-22": _scored,
}


def _chosen(options: Options) -> list[str]:
    for name in options.sets:
        if name not in SETS:
            raise InputError(f"there is no set '{name}', expected one of: {', '.join(SETS)}")
    return list(options.sets or SETS)


def _settings(frame: pl.DataFrame, forecast: Forecast, unit: str) -> list[Setting]:
    pairs, human = frame["lp"].to_numpy(), frame["da_z"].to_numpy().astype(np.float64)
    cost = PRICES[unit].of(word_counts(frame["mt"]))
    made = []
    for lp in dict.fromkeys(pairs.tolist()):
        own = np.flatnonzero(pairs == lp)
        _, system = np.unique(frame["system"].to_numpy()[own], return_inverse=True)
        _, segment = np.unique(frame["seg"].to_numpy()[own], return_inverse=True)
        case = Case(forecast[own], human=human[own], threshold=_BAD)
        made.append(Setting(case, system, segment, cost[own]))
    return made


def figure6(data: str | None, options: Options) -> Rows:
    """System-level Spearman when people score a part, by rule and budget in segments and in words."""
    rows: Rows = []
    for name in _chosen(options):
        frame, forecast = SETS[name](data, options)
        for unit in PRICES:
            settings = _settings(frame, forecast, unit)
            shares = SHARES[1:-1:3] if options.quick else SHARES
            resamples = 10 if options.quick else _RESAMPLES
            found = curves(settings, RULES, shares=shares, resamples=resamples, seed=options.seed)
            # Each draw is an estimate of its own, too slow to be resampled as well.
            found += curves(settings, [DRAWN], shares=shares, resamples=0, seed=options.seed)
            rows += [{"set": name, "unit": unit, **row} for row in found]
    return rows


def lengths(data: str | None, options: Options) -> Rows:
    """Whether what rules send to people is long: correlations of urgency with the number of words."""
    rows: Rows = []
    for name in _chosen(options):
        frame, forecast = SETS[name](data, options)
        words, pairs = word_counts(frame["mt"]), frame["lp"].to_numpy()
        low, doubt = -forecast.score, forecast.uncertainty(0.1)
        by_pair = [
            (pearson(low[own], words[own]), pearson(doubt[own], words[own]))
            for own in (pairs == lp for lp in dict.fromkeys(pairs.tolist()))
        ]
        low_score, low_confidence = np.mean(by_pair, axis=0)
        rows.append(
            {
                "set": name,
                "low_score": float(low_score),
                "paper_low_score": 0.243,
                "low_confidence": float(low_confidence),
                "paper_low_confidence": -0.087,
            }
        )
    return rows


def table6(data: str | None, options: Options) -> Rows:
    """Agreement with people of scores of beginnings, marked as unfinished or taken as whole.

    Beginnings are cut as a generator would have to: at shares of source length times fertility.
    """
    measured = Measured.of(data, options)
    sources, targets = measured.segments["src"].to_list(), measured.segments["mt"].to_list()
    pairs = measured.segments["lp"].to_numpy()
    cut = [pieces(text) for text in targets]
    looks = np.zeros((len(cut), len(Plan().at)), dtype=np.int64)
    for lp in dict.fromkeys(pairs.tolist()):
        own = np.flatnonzero(pairs == lp)
        length = [len(pieces(sources[row])) for row in own]
        plan = Plan(fertility=fertility(length, [len(cut[row]) for row in own]))
        looks[own] = plan.looks(length)
    human = measured.human
    rows: Rows = []
    for number, share in enumerate((*Plan().at, 1.0)):
        begun = targets
        if share < 1:
            begun = ["".join(text[:look]) for text, look in zip(cut, looks[:, number], strict=True)]
        found = {"full": measured.score(texts={"mt": begun}).score}
        if share < 1:
            found["partial"] = measured.score(texts={"mt": begun}, partial=True).score
        agreement = {name: measured.mean(_agreement(score, human)) for name, score in found.items()}
        theirs = _PAPER_TABLE6[share]
        rows.append(
            {
                "share": share,
                "full": agreement["full"],
                "paper_full": theirs[0],
                # A whole translation is not marked: one model, one score.
                "partial": agreement.get("partial", agreement["full"]),
                "paper_partial": theirs[1],
            }
        )
    return rows


def _agreement(score: Floats, human: Floats) -> Callable[[np.ndarray], float]:
    return lambda rows: pearson(score[rows], human[rows])


STUDIES = (
    Study("defer-figure6", "Ranking systems when people score a part of the segments", figure6),
    Study("defer-length", "Whether rules of deferral send long segments to people", lengths),
    Study("partial-table6", "Scores of unfinished translations against people", table6),
)
