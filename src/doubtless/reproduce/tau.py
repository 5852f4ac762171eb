"""Test-time adaptation (Zhan et al. 2023) on WMT21 news and TED with MQM: before, after, and by the rule.

``--models FOLDER`` is a reference-based model with a layer mix and dropout; ``recipes/tau`` makes a small
one. A second folder, an encoder, adds greedy matching of its token embeddings (as BERTScore does) to the
baselines. Human scores are minus the MQM penalties; a system's score is its mean over the segments that have
one. The reference is the human translation that WMT21 used; others are systems of ``news+ht``. Intervals are
percentiles over 1,000 resamples of the systems; those of a gain resample both sides together.

The paper's columns for our model are those of COMET-DA 2020, which like ours learnt from direct assessments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from doubtless.conformal.calibrate import drift
from doubtless.conformal.store import load as load_calibration
from doubtless.datasets import locate
from doubtless.errors import InputError
from doubtless.metaeval.baselines import lexical
from doubtless.metaeval.bootstrap import draw_weights, interval, resampled
from doubtless.metaeval.greedy import GreedyMatcher
from doubtless.metaeval.grid import Grid, grids_of
from doubtless.metaeval.statistics import Statistic, figure
from doubtless.reproduce import Options, Rows, Study
from doubtless.segments import Floats, as_table

if TYPE_CHECKING:
    from doubtless.neural.adapt_plan import AdaptPlan
    from doubtless.neural.engine import Engine
    from doubtless.neural.noisy import Segments

DOMAINS = {"news": "wmt21_news", "news+ht": "wmt21_news", "ted": "wmt21_ted"}
REFERENCES = {
    ("wmt21_news", "en-de"): "ref.C",
    ("wmt21_news", "zh-en"): "ref.B",
    ("wmt21_news", "en-ru"): "ref.A",
    ("wmt21_ted", "en-de"): "ref",
    ("wmt21_ted", "en-ru"): "ref.A",
}
PAIRS = ("en-de", "zh-en", "en-ru")
LEXICAL = ("TER", "BLEU", "chrF")
RESAMPLES = 1_000
_QUICK, _QUICK_ABLATION = 40, 16  # segments a system

# Per cent, in the order en-de, zh-en, en-ru of each domain. Rows of COMET-DA 2020 are the reproduced ones.
PEARSON = {
    "TER": {"news": (93.0, 41.6, -4.1), "news+ht": (7.4, -8.5, -28.9), "ted": (50.6, 42.1, 69.7)},
    "BLEU": {"news": (93.7, 31.0, 50.7), "news+ht": (13.2, -15.2, -4.3), "ted": (62.0, 32.4, 82.8)},
    "chrF": {"news": (89.8, 30.2, 78.3), "news+ht": (1.7, -14.3, 12.3), "ted": (47.1, 36.3, 82.5)},
    "greedy": {"news": (93.0, 54.2, 62.9), "news+ht": (7.4, 9.5, -12.3), "ted": (50.6, 30.6, 83.1)},
    "model": {"news": (81.5, 51.1, 67.5), "news+ht": (58.0, 26.4, 56.8), "ted": (78.8, 25.0, 85.9)},
    "adapted": {"news": (85.7, 53.5, 71.0), "news+ht": (48.0, 27.4, 54.5), "ted": (85.9, 28.3, 87.3)},
}
ACCURACY = {
    "model": {"news": (82.1, 70.5, 68.1), "news+ht": (72.4, 61.5, 66.7), "ted": (82.1, 69.2, 82.4)},
    "adapted": {"news": (89.7, 69.2, 73.6), "news+ht": (76.2, 59.3, 70.5), "ted": (85.9, 67.9, 83.5)},
}
# Table 3, en-de: what is adapted, with Pearson's r and the accuracy of pairs on news and on TED.
ABLATION = {
    "layer-mix": ((85.7, 89.7), (85.9, 85.9)),
    "layernorm": ((79.5, 76.9), (79.4, 82.1)),
    "estimator": ((78.7, 80.8), (77.2, 76.9)),
    "layer-mix+layernorm": ((79.6, 76.9), (79.4, 82.1)),
    "layer-mix+estimator": ((78.6, 80.8), (77.1, 76.9)),
    "layer-mix+layernorm+estimator": ((78.0, 79.4), (76.9, 76.9)),
}


@dataclass(frozen=True, eq=False)
class Rated:
    """The rated translations of a set and language pair, and what metrics say of them.

    ``scores`` has a number a row for each metric, ``whole`` scores of systems where they are not means;
    ``before`` and ``after`` are uncertainties.
    """

    frame: pl.DataFrame
    scores: dict[str, Floats]
    whole: dict[str, dict[tuple[str, str], float]]
    before: Floats
    after: Floats

    def grid(self, humans: bool) -> Grid:
        """Scores of systems by items, with or without human translations."""
        chosen = self.frame["system"].str.starts_with("ref").to_numpy() <= humans
        human = -self.frame["mqm"].to_numpy().astype(np.float64)[chosen]
        scores = {name: values[chosen] for name, values in self.scores.items()}
        table = as_table(self.frame.filter(pl.Series(chosen)))
        (grid,) = grids_of(table, human, scores, item=("item",))
        return grid.with_systems(self.whole)


def rated_rows(path: Path, name: str, lp: str, most: int | None) -> pl.DataFrame:
    """Rated translations with their reference; of items that no machine translated nothing is left."""
    item = pl.concat_str("doc", "seg", "src", separator="\t", ignore_nulls=True)
    rows = pl.read_parquet(path).filter(pl.col("set") == name, pl.col("lp") == lp).with_columns(item=item)
    reference = pl.col("system") == REFERENCES[name, lp]
    references = rows.filter(reference).select("item", ref="mt")
    references = references.unique("item", keep="first", maintain_order=True)
    rows = rows.filter(~reference).unique(["system", "item"], keep="first", maintain_order=True)
    rows = rows.join(references, on="item", maintain_order="left")
    items = rows.filter(~pl.col("system").str.starts_with("ref"))["item"].unique(maintain_order=True)
    if most is not None:
        items = items[np.random.default_rng(0).permutation(len(items))[:most]]
    return rows.filter(pl.col("item").is_in(items.implode()))


@cache
def measured(data: str | None, options: Options) -> dict[tuple[str, str], Rated]:
    """All metrics on all sets; the four studies share them."""
    from doubtless.neural.adapt_plan import AdaptPlan

    engine, plan = _engine(options), AdaptPlan(seed=options.seed)
    matcher = GreedyMatcher(options.models[1]) if len(options.models) > 1 else None
    path, most = locate(data, "mqm_spans.parquet"), _QUICK if options.quick else None
    found = {}
    for name, lp in _chosen(options):
        frame = rated_rows(path, name, lp, most)
        texts = {role: frame[role].to_list() for role in ("mt", "ref", "src")}
        scores: dict[str, Floats] = {}
        whole: dict[str, dict[tuple[str, str], float]] = {}
        for metric in LEXICAL:
            lines = [
                *(texts[role] for role in ("mt", "ref")),
                frame["system"].to_list(),
                frame["lp"].to_list(),
            ]
            baseline = lexical(metric, *lines)
            scores[metric], whole[metric] = baseline.segments, baseline.systems
        if matcher is not None:
            scores["greedy"] = matcher.score(texts["mt"], texts["ref"])
        found[name, lp] = _adapted(engine, Path(options.models[0]), plan, frame, texts, scores, whole)
    return found


def _adapted(
    engine: Engine,
    folder: Path,
    plan: AdaptPlan,
    frame: pl.DataFrame,
    texts: Mapping[str, list[str]],
    scores: dict[str, Floats],
    whole: dict[str, dict[tuple[str, str], float]],
) -> Rated:
    """Add the model's scores: as it is, adapted to each system, and adapted where the rule says so."""
    from doubtless.neural.adapt_auto import decide
    from doubtless.neural.noisy import Segments

    segments = Segments.of(engine, texts, plan)
    outputs = segments.outputs()
    adapted, before, after = _by_system(segments, frame, plan)
    scores |= {"model": outputs["score"], "adapted": adapted}
    drifts = _drifts(folder / "calibration.json", frame, outputs)
    if drifts is not None:
        scores["auto"] = outputs["score"].copy()
        for rows in _systems(frame):
            if decide(segments.take(rows), plan, drifts(rows)).adapt:
                scores["auto"][rows] = adapted[rows]
    return Rated(frame, scores, whole, before, after)


def _systems(frame: pl.DataFrame) -> list[np.ndarray]:
    """The rows of each system."""
    names = frame["system"].to_numpy()
    return [np.flatnonzero(names == name) for name in np.unique(names)]


def _drifts(path: Path, frame: pl.DataFrame, outputs: Mapping[str, Floats]) -> Any:
    """P-values of the tests of drift for some rows, if the model has a calibration."""
    if not path.is_file():
        return None
    calibration = load_calibration(path)
    named = {name: pl.Series(values) for name, values in outputs.items() if values.ndim == 1}
    table = as_table(frame.with_columns(**named))
    forecast = calibration.forecast(table)

    def found(rows: np.ndarray) -> dict[str, float]:
        tests = drift(calibration, table.take(rows), forecast[rows])
        return {name: test.p_value for name, test in tests.items()}

    return found


def _engine(options: Options) -> Engine:
    from doubtless.neural.runtime import open_engine

    if not options.models:
        raise InputError("the study needs a model with a layer mix: --models FOLDER (recipes/tau makes one)")
    engine = open_engine(options.models[0], runtime="torch")
    if engine.config.uses != "src+mt+ref":
        raise InputError(f"{options.models[0]}: the study needs a model that reads src+mt+ref")
    return engine


def _chosen(options: Options) -> list[tuple[str, str]]:
    wanted = [key for key in REFERENCES if not options.sets or {key[0], "/".join(key)} & set(options.sets)]
    if not wanted:
        names = ", ".join("/".join(key) for key in REFERENCES)
        raise InputError(f"no set is called {', '.join(options.sets)}, expected some of: {names}")
    return wanted


def _agreement(name: str, key: str, paper: Mapping[str, Any], data: str | None, options: Options) -> Rows:
    """A figure of systems for every metric, domain and pair, the paper's beside it, and means over both."""
    statistic = Statistic(name, "system")
    rows: Rows = []
    for (source, lp), rated in measured(data, options).items():
        for domain in (d for d, own in DOMAINS.items() if own == source):
            grid = rated.grid(humans=domain == "news+ht")
            rng = np.random.default_rng(options.seed)
            weights = draw_weights(rng, len(grid.systems), RESAMPLES)
            drawn = {metric: resampled(statistic, grid, metric, weights) for metric in grid.names}
            plain = figure(statistic, grid, "model").value
            for metric in grid.names:
                value = figure(statistic, grid, metric).value
                lower, upper = interval(drawn[metric])
                row: dict[str, Any] = {"domain": domain, "lp": lp, "systems": len(grid.systems)}
                row |= {"metric": metric, key: value, "lower": lower, "upper": upper}
                row[f"paper_{key}"] = _per_cent(paper, metric, domain, lp)
                changed = metric in ("adapted", "auto")
                ends = interval(drawn[metric] - drawn["model"]) if changed else (None, None)
                row |= {"gain": value - plain if changed else None}
                row |= {"gain_lower": ends[0], "gain_upper": ends[1]}
                rows.append(row)
    return [*rows, *_means(rows, key)]


def _per_cent(paper: Mapping[str, Any], metric: str, domain: str, lp: str) -> float | None:
    return paper[metric][domain][PAIRS.index(lp)] / 100 if metric in paper else None


def _means(rows: Rows, key: str) -> Rows:
    """The mean of each metric over domains and pairs, and the paper's over the same ones."""
    found: Rows = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        own = [row for row in rows if row["metric"] == metric]
        mean: dict[str, Any] = dict.fromkeys(rows[0])
        for name in (key, f"paper_{key}", "gain"):
            known = [row[name] for row in own if row[name] is not None]
            mean[name] = float(np.mean(known)) if known else None
        found.append(mean | {"domain": "mean", "metric": metric})
    return found


def table1(data: str | None, options: Options) -> Rows:
    """Pearson's correlation of systems with MQM."""
    return _agreement("pearson", "r", PEARSON, data, options)


def table2(data: str | None, options: Options) -> Rows:
    """Pairs of systems that are ordered as by MQM."""
    return _agreement("accuracy", "acc", ACCURACY, data, options)


def table3(data: str | None, options: Options) -> Rows:
    """What is adapted: layer mix, layer normalisation, estimator and all together, on en-de."""
    from doubtless.neural.adapt_plan import AdaptPlan
    from doubtless.neural.noisy import Segments

    engine, path = _engine(options), locate(data, "mqm_spans.parquet")
    rows: Rows = []
    for number, (domain, name) in enumerate((("news", "wmt21_news"), ("ted", "wmt21_ted"))):
        frame = rated_rows(path, name, "en-de", _QUICK_ABLATION if options.quick else None)
        frame = frame.filter(~pl.col("system").str.starts_with("ref"))
        texts = {role: frame[role].to_list() for role in ("mt", "ref", "src")}
        encoded: dict[bool, Segments] = {}  # with and without what the encoder made of the texts
        for parameters, paper in ABLATION.items():
            plan = AdaptPlan(parameters=tuple(parameters.split("+")), seed=options.seed)
            inside = "layernorm" in plan.parameters
            if inside not in encoded:
                encoded[inside] = Segments.of(engine, texts, plan)
            scores = {"plain": encoded[inside].outputs()["score"]}
            scores["adapted"], before, after = _by_system(encoded[inside], frame, plan)
            nothing = np.zeros(len(frame))
            grid = Rated(frame, scores, {}, nothing, nothing).grid(humans=False)
            row: dict[str, Any] = {"domain": domain, "parameters": parameters, "systems": len(grid.systems)}
            weights = draw_weights(np.random.default_rng(options.seed), len(grid.systems), RESAMPLES)
            for key, kind, place in (("r", "pearson", 0), ("acc", "accuracy", 1)):
                statistic = Statistic(kind, "system")
                row[key] = figure(statistic, grid, "adapted").value
                row[f"{key}_lower"], row[f"{key}_upper"] = interval(
                    resampled(statistic, grid, "adapted", weights)
                )
                row[f"plain_{key}"] = figure(statistic, grid, "plain").value
                row[f"paper_{key}"] = paper[number][place] / 100
            rows.append(row | {"before": float(before.mean()), "after": float(after.mean())})
    return rows


def _by_system(segments: Segments, frame: pl.DataFrame, plan: AdaptPlan) -> tuple[Floats, Floats, Floats]:
    """Scores adapted to each system, and uncertainties before and after."""
    from doubtless.neural.adapt import adapt_segments, applied

    score, before, after = np.empty((3, len(frame)))
    for rows in _systems(frame):
        part = segments.take(rows)
        found = adapt_segments(part, plan)
        before[rows], after[rows] = found.before, found.after
        with applied(segments.estimator, found):
            score[rows] = part.outputs()["score"]
    return score, before, after


def figure4(data: str | None, options: Options) -> Rows:
    """Uncertainty of segments before and after; the paper draws its distribution and gives no numbers."""
    rows: Rows = []
    for (name, lp), rated in measured(data, options).items():
        human = rated.frame["system"].str.starts_with("ref").to_numpy()
        for kind, chosen in (("systems", ~human), ("human translations", human)):
            if not chosen.any() or (name == "wmt21_ted" and kind != "systems"):
                continue
            before, after = rated.before[chosen], rated.after[chosen]
            fall = before - after
            draws = draw_weights(np.random.default_rng(options.seed), len(fall), RESAMPLES) @ fall / len(fall)
            lower, upper = interval(draws)
            row: dict[str, Any] = {"set": name, "lp": lp, "of": kind, "n": len(fall)}
            for key, values in (("before", before), ("after", after)):
                quarter, median, three = np.quantile(values, [0.25, 0.5, 0.75])
                row |= {
                    key: float(values.mean()),
                    f"{key}_25": quarter,
                    f"{key}_50": median,
                    f"{key}_75": three,
                }
            row |= {"fall": float(fall.mean()), "lower": lower, "upper": upper}
            rows.append(row | {"share_that_fell": float((fall > 0).mean())})
    return rows


STUDIES = [
    Study("tau-table1", "Test-time adaptation: correlation of systems with MQM", table1),
    Study("tau-table2", "Test-time adaptation: accuracy of pairs of systems", table2),
    Study("tau-table3", "Test-time adaptation: what is adapted (en-de)", table3),
    Study("tau-figure4", "Test-time adaptation: uncertainty before and after", figure4),
]
