"""Zouhar et al. 2025, sections 3 and 4: scores of early layers, when to leave, and choosing among candidates.

The paper's model is XLM-R-large with 24 layers, judged on WMT23; ours is the bundled one (or another, by
``--models FOLDER``), judged on MLQE-PE. Each of its layers stands beside the paper's that is about as deep.
Whatever choosing costs is replayed on one recorded trace of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from doubtless.datasets import locate
from doubtless.decide.candidates import Pools, one_row_each
from doubtless.decide.rerank import Choices, Method, Trace
from doubtless.decide.rerank import replay as replay_choice
from doubtless.decide.similarity import similarities
from doubtless.errors import InputError
from doubtless.metaeval.correlation import pearson
from doubtless.neural.exits import ExitRule, replay
from doubtless.neural.runtime import open_engine
from doubtless.neural.texts import texts_of
from doubtless.reproduce import Options, Rows, Study
from doubtless.reproduce.bundled import Measured
from doubtless.segments import Floats, Table, as_table, read

# Table 5, Early-Exit COMET: correlation of layers 1, 3, … 21 and 24 with the last layer and with humans.
_PAPER_LAYERS = (*range(1, 22, 2), 24)
_PAPER_LAST = (0.15, 0.49, 0.65, 0.68, 0.69, 0.80, 0.85, 0.88, 0.89, 0.98, 0.99, 1.00)
_PAPER_HUMAN = (0.034, 0.159, 0.207, 0.221, 0.221, 0.251, 0.278, 0.281, 0.281, 0.310, 0.312, 0.309)
# Section 3.3: with half of the compute.
_PAPER_HALF = 0.292
_COSTS = tuple(round(0.15 + 0.05 * i, 2) for i in range(17))
_SIMILAR_DRAWS = 3  # of the candidates that it begins with; it is by far the slowest method
_BUDGETS = tuple(round(0.15 + 0.1 * i, 2) for i in range(9))
# Table 4, candidates by sampling.
_PAPER_TOP = {
    "ucb-paper": (0.321, 0.339, 0.443, 0.571, 0.717, 0.837, 0.927, 0.975, 0.995),
    "random": (0.151, 0.250, 0.358, 0.446, 0.559, 0.639, 0.754, 0.840, 0.952),
    "logprob-sum": (0.158, 0.256, 0.343, 0.434, 0.526, 0.624, 0.724, 0.834, 0.934),
    "logprob-avg": (0.093, 0.176, 0.271, 0.365, 0.471, 0.579, 0.688, 0.795, 0.921),
}
_PAPER_SCORE = {
    "ucb-paper": (77.87, 78.22, 78.61, 78.85, 79.04, 79.10, 79.11, 79.11, 79.11),
    "random": (77.99, 78.33, 78.58, 78.70, 78.84, 78.90, 78.98, 79.03, 79.08),
    "logprob-sum": (77.59, 78.08, 78.36, 78.54, 78.70, 78.83, 78.92, 79.00, 79.07),
    "logprob-avg": (77.41, 77.88, 78.16, 78.38, 78.54, 78.70, 78.82, 78.94, 79.04),
}
_SOURCES, _QUICK = 100, 10  # sources a pair
_BISECTIONS, _MOST = 25, 1e6


def layers(data: str | None, options: Options) -> Rows:
    """Table 2: how far each layer agrees with the last and with humans, and whether it knows."""
    measured = Measured.of(data, options)
    exits, traced = measured.engine.stepper.exits, measured.engine.trace(measured.texts)
    score, human, doubt = traced["score"], measured.human, traced["change"]
    rows: Rows = []
    for number, layer in enumerate(exits):
        moved = np.abs(score[number] - score[-1])
        own, predicted = score[number], doubt[number]

        def r(one: Floats, other: Floats) -> float:
            return measured.mean(lambda chosen: pearson(one[chosen], other[chosen]))

        last = number == len(exits) - 1
        at = beside(layer, exits[-1])
        rows.append(
            {
                "layer": layer,
                "last": r(own, score[-1]),
                "human": r(own, human),
                "moves": float(moved.mean()),
                "predicted": float(predicted.mean()),
                "predicted_r": None if last else r(predicted, moved),
                "paper_last": _PAPER_LAST[at],
                "paper_human": _PAPER_HUMAN[at],
            }
        )
    return rows


def beside(layer: int, depth: int) -> int:
    """The place in the paper's table of the layer that is as deep in its model as ours, or else nearly.

    >>> [_PAPER_LAYERS[beside(layer, 12)] for layer in (1, 2, 11, 12)], _PAPER_LAYERS[beside(8, 16)]
    ([1, 3, 21, 24], 11)
    """
    return int(np.argmin([abs(at * depth - layer * _PAPER_LAYERS[-1]) for at in _PAPER_LAYERS]))


def exit_rules(data: str | None, options: Options) -> Rows:
    """Figure 4: what rules of leaving keep at equal cost.

    The cost is the same in each language pair: thresholds are the pair's own, or else a rule that gives more
    layers to one pair than to another would be compared with one that does not. Whatever falls between two
    layers or thresholds is interpolated.
    """
    measured = Measured.of(data, options)
    exits, traced = measured.engine.stepper.exits, measured.engine.trace(measured.texts)
    rules = {
        "constant": ExitRule("constant", 0.0),
        "variance": ExitRule("variance", 0.0),
        "confidence": ExitRule("confidence", 0.0),
    }

    def at(cost: float) -> dict[str, float]:
        def figures(rows: np.ndarray) -> dict[str, float]:
            some = {name: values[:, rows] for name, values in traced.items()}
            targets = {"last": some["score"][-1], "human": measured.human[rows]}
            kept = {name: kept_at(cost, rule, exits, some, targets) for name, rule in rules.items()}
            return {f"{kind}_{name}": kept[name][kind] for kind in targets for name in rules}

        means = measured.by_pair(figures)[-1]
        return {name: means[name] for name in means if name not in ("lp", "n")}

    return [{"cost": c, **at(c), "paper_human": _PAPER_HALF if c == 0.5 else None} for c in _COSTS]


def kept_at(
    cost: float,
    rule: ExitRule,
    exits: Sequence[int],
    traced: Mapping[str, Floats],
    targets: Mapping[str, Floats],
) -> dict[str, float]:
    """How far scores agree with targets if a rule's threshold leads to this share of the full cost.

    Thresholds that lead to a little less and a little more are interpolated.
    """

    def left(value: float) -> tuple[float, list[float]]:
        found, layer = replay(replace(rule, value=value), exits, traced)
        return float(layer.mean()) / exits[-1], [pearson(found["score"], t) for t in targets.values()]

    rising = rule.kind == "constant"  # a later layer costs more, a higher tolerance less
    ends = _turn(lambda value: (left(value)[0] < cost) == rising)
    (less, cheap), (more, dear) = (left(value) for value in (ends if rising else reversed(ends)))
    share = 1.0 if more == less else (cost - less) / (more - less)
    return {name: low + share * (high - low) for name, low, high in zip(targets, cheap, dear, strict=True)}


def _turn(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Where something ceases to hold that holds of all smaller numbers: one below and one above."""
    low, high = 1e-9, 1.0
    while holds(high) and high < _MOST:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def wmt23(data: str | None, options: Options) -> Rows:
    """Figure 5 on the outputs of 12 to 17 systems a source; a fold is a hundred sources of each pair."""
    frame = pl.read_parquet(locate(data, "wmt23_candidates.parquet"))
    number, most = pl.int_range(pl.len()).over("lp"), _QUICK if options.quick else _SOURCES
    chosen = (number // _SOURCES).is_in(list(options.folds or (0,))) & (number % _SOURCES < most)
    frame = frame.filter(chosen)
    if frame.is_empty():
        raise InputError(f"there are no sources of the folds {', '.join(map(str, options.folds))}")
    table = one_row_each(replace(as_table(frame), roles={"mt": "mts"}))
    return list(_budgets(table, options))


def sampled(data: str | None, options: Options) -> Rows:
    """Table 4 on many sampled candidates of a file, the paper's figures of sampling beside."""
    if not options.sets:
        raise InputError("give a file of candidates by --sets FILE (recipes/candidates.py makes one)")
    rows: Rows = []
    for row in _budgets(read(options.sets[0]), options):
        at, method = _BUDGETS.index(row["budget"]), row["method"]
        paper = {"paper_top1": _PAPER_TOP, "paper_score": _PAPER_SCORE}
        rows.append({**row, **{k: v[method][at] if method in v else None for k, v in paper.items()}})
    return rows


def _budgets(table: Table, options: Options) -> Iterator[dict[str, object]]:
    """What each method finds at each budget."""
    folder = Path(options.models[0]) if options.models else None
    trace, pools = recorded(table, folder)
    alike = similarities(table.column("mt").to_list(), pools.rows)
    final = trace.final
    best = final.max(axis=1)
    spread = float(best.max() - final[trace.present].min())
    sources = np.arange(len(final))

    def figures(found: list[Choices]) -> dict[str, float]:
        scores = np.array([final[sources, choices.chosen] for choices in found])
        return {
            "cost": float(np.mean([choices.cost for choices in found])),
            "finishing": float(np.mean([c.finishing.sum() / c.full.sum() for c in found])),
            "top1": float((scores == best).mean()),
            "score": float(scores.mean()),
            "lost": float((best - scores).mean() / spread),
        }

    for budget in _BUDGETS:
        for name, found in _methods(trace, pools, alike, table, budget, options):
            yield {"method": name, "budget": budget, **figures(found)}


def _methods(
    trace: Trace, pools: Pools, alike: list[Floats], table: Table, budget: float, options: Options
) -> Iterator[tuple[str, list[Choices]]]:
    """Every method at a budget; exits and races have the threshold that meets it, found in hindsight."""
    for kind in ("ucb-paper", "ucb", "halving"):
        yield kind, [replay_choice(trace, Method(kind, budget=budget))]
    gamma, _ = _turn(lambda g: replay_choice(trace, Method("race", gamma=g)).cost <= budget)
    yield "race", [replay_choice(trace, Method("race", gamma=gamma))]
    latest = int(budget * len(trace.exits) + 1e-9)
    yield "constant", [replay_choice(trace, Method("constant", latest))]
    tolerance, _ = _turn(lambda v: replay_choice(trace, Method("confidence", v)).cost >= budget)
    yield "confidence", [replay_choice(trace, Method("confidence", tolerance))]
    drawn = np.random.default_rng(options.seed).random((options.splits, *trace.present.shape))
    yield "random", [replay_choice(trace, Method("random", budget=budget), chance) for chance in drawn]
    few = drawn[:_SIMILAR_DRAWS]
    yield "similar", [replay_choice(trace, Method("similar", budget=budget), chance, alike) for chance in few]
    if table.has("logprob"):
        sums = pools.matrix(table.numbers("logprob"))
        yield "logprob-sum", [replay_choice(trace, Method("logprob-sum", budget=budget), sums)]
        means = sums / pools.matrix(table.numbers("tokens"))
        yield "logprob-avg", [replay_choice(trace, Method("logprob-avg", budget=budget), means)]


def recorded(table: Table, folder: Path | None = None) -> tuple[Trace, Pools]:
    """Run all candidates of a table through all layers of a model, by default the bundled one."""
    engine, pools = open_engine(folder), Pools.of(table)
    return Trace.of(engine, texts_of(table, engine.config), pools), pools


STUDIES = [
    Study("exit-table2", "Scores of early layers against the last layer and humans", layers),
    Study("exit-figure4", "Constant, variance and confidence exits at equal cost", exit_rules),
    Study("rerank-figure5", "The best of 12 to 17 WMT23 systems, by budget", wmt23),
    Study("rerank-table4", "The best of many sampled candidates (--sets FILE), by budget", sampled),
]
