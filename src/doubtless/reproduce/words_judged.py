"""Sarti et al. 2025: word-level metrics judged by post-editors and by several raters.

The paper's sets are not at hand. MLQE-PE has one post-editor a segment and the log-probabilities of the very
model that translated. The WMT23 English-German translations that three raters each marked (MQM spans) come
from systems whose insides are not known, so that only metrics of the text can be judged there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from doubtless.datasets import locate
from doubtless.neural.words import words
from doubtless.reproduce import Options, Rows, Study
from doubtless.reproduce.bundled import Measured, judged_words
from doubtless.segments import Floats
from doubtless.words.agreement import MEAN, annotator_agreement, edit_count_correlations, judge
from doubtless.words.difference import differences
from doubtless.words.judged import Judged
from doubtless.words.spans import from_lists, labels
from doubtless.words.tagger import BUNDLED, open_tagger, tag_words

_QUICK = 60  # translations
_SPLITS = ("dev", "test20")


def mlqe(data: str | None, options: Options) -> Rows:
    """Average precision and best F1 by pair: chance, recorded surprisal, the bundled tagger and its spans.

    ``gain`` is by how much the tagger's average precision is above that of surprisal.
    """
    rows: Rows = []
    for split in options.sets or _SPLITS:
        judged = judged_words(Measured.of(data, replace(options, sets=(split,))))
        for group, part in _by_group(judge(judged, seed=options.seed)):
            own = {"split": split, "lp": group, "words": part["surprisal"]["words"]}
            own |= {f"{m}_ap": part[m]["ap"] for m in ("random", "surprisal", "spans", "tagger")}
            own |= {f"{m}_f1": part[m]["f1"] for m in ("random", "surprisal", "tagger")}
            rows.append(own | {"gain": part["tagger"]["ap"] - part["surprisal"]["ap"]})
    return rows


def _by_group(rows: Rows) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """Figures of the metrics, averaged over annotators, of each group and of their mean."""
    means = [row for row in rows if row["annotator"] == MEAN]
    for group in dict.fromkeys(row["group"] for row in means):
        yield group, {row["metric"]: row for row in means if row["group"] == group}


def figure3(data: str | None, options: Options) -> Rows:
    """Correlation of metrics with edit counts, for more and more annotators."""
    found = edit_count_correlations(_several_raters(data, options), options.seed)
    # No four of the ten raters saw the same translation.
    return [row for row in found if row["subsets"]]


def raters(data: str | None, options: Options) -> Rows:
    """Metrics by rater, averaged, beside what the raters achieve as metrics of each other."""
    judged = _several_raters(data, options)
    found = dict(_by_group(judge(judged, seed=options.seed)))[MEAN]
    alpha = annotator_agreement(judged)[0]
    names = ("ap", "f1", "f1_calibrated", "matthews")
    rows = [{"metric": metric} | {name: row[name] for name in names} for metric, row in found.items()]
    return [row | {"alpha_words": alpha["alpha_words"], "words": alpha["words"]} for row in rows]


def compared(data: str | None, options: Options) -> Rows:
    """Differences of average precision, segments and raters drawn again."""
    judged = _several_raters(data, options)
    found = differences(judged, resamples=100 if options.quick else 1_000, seed=options.seed)
    names = ("first", "second", "value", "low", "high", "p", "p_holm", "annotator_share")
    return [{name: getattr(difference, name) for name in names} for difference in found]


def _several_raters(data: str | None, options: Options) -> Judged:
    """Words of translations that three raters marked, each by three of ten."""
    source = pl.read_parquet(locate(data, "mqm_multirater.parquet"))
    ratings = source.filter((pl.col("set") == "generalMT2023") & (pl.col("system") != "refA"))
    items = ratings.unique(["pairing", "seg"], maintain_order=True)
    if options.quick:  # whole segments, with all their systems
        items = items.sort("seg", maintain_order=True).head(_QUICK)
    texts = {name: items[name].to_list() for name in ("src", "mt")}
    engine = open_tagger(options.models[0] if options.models else BUNDLED)
    tagged = tag_words(engine, texts, items["lp"].to_list())
    # Words behind the end of what the tagger could read are nobody's to judge.
    pieces = [[word for word in own.words if own.stopped is None or word[1] <= own.stopped] for own in tagged]
    sizes = [len(own) for own in pieces]
    scores = {
        "tagger": np.concatenate([own.on(cut) for own, cut in zip(tagged, pieces, strict=True)]),
        "spans": np.concatenate([own.on(cut, "binary") for own, cut in zip(tagged, pieces, strict=True)]),
        "unshared": np.concatenate(list(_unshared(items, pieces))),
        "length": np.array([end - start for own in pieces for start, end in own], dtype=np.float64),
    }
    marks: dict[str, Floats] = {name: np.full(sum(sizes), np.nan) for name in sorted(set(ratings["rater"]))}
    starts = np.cumsum([0, *sizes])
    place = {key: row for row, key in enumerate(zip(items["pairing"], items["seg"], strict=True))}
    for row in ratings.iter_rows(named=True):
        item = place.get((row["pairing"], row["seg"]))
        if item is not None:
            own = labels(from_lists(row["mt"], row["starts"], row["ends"]), pieces[item])
            marks[row["rater"]][starts[item] : starts[item + 1]] = own
    return Judged(scores, marks, np.repeat(np.arange(len(sizes)), sizes), items["lp"].to_list())


def _unshared(items: pl.DataFrame, pieces: list[list[tuple[int, int]]]) -> Iterator[Floats]:
    """The share of the other systems' translations of a segment that lack each word."""

    @cache
    def vocabulary(text: str) -> frozenset[str]:
        return frozenset(text[start:end].casefold() for start, end in words(text))

    by_segment = items.group_by("seg").agg("mt", "system").to_dict(as_series=False)
    others = {
        seg: list(zip(systems, texts, strict=True))
        for seg, texts, systems in zip(*(by_segment[name] for name in ("seg", "mt", "system")), strict=True)
    }
    for row, own in zip(items.iter_rows(named=True), pieces, strict=True):
        known = [vocabulary(text) for system, text in others[row["seg"]] if system != row["system"]]
        cut = [row["mt"][start:end].casefold() for start, end in own]
        yield np.array([np.mean([word not in other for other in known]) if known else 0.0 for word in cut])


STUDIES = [
    Study("words-mlqe", "MLQE-PE: recorded surprisal and the bundled tagger, by pair", mlqe),
    Study("words-figure3", "WMT23 en-de, ten raters: correlation with edit counts by annotators", figure3),
    Study("words-raters", "WMT23 en-de, ten raters: metrics beside the raters themselves", raters),
    Study("words-compared", "WMT23 en-de, ten raters: do two metrics differ?", compared),
]
