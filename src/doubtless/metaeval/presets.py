"""The rules of the WMT metrics tasks, by year: which figures, on which scores, and how they become one.

Facts are those of the official scripts of each year: standard references, human scores, outliers that are
left out, and whether other human translations count as systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from doubtless.errors import InputError
from doubtless.metaeval.compare import Comparison, Plan, clusters, compare
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pairs import Floats
from doubtless.metaeval.statistics import Statistic
from doubtless.metaeval.swaps import Swap, Verdict, mean_of, verdict


@dataclass(frozen=True)
class Rules:
    """What is official for a language pair.

    Parameters
    ----------
    gold
        Kind of human scores.
    reference
        The standard reference.
    outliers
        Systems that are left out.
    humans
        Whether other references count as systems; None: both ways, each its own task.
    """

    gold: str = "mqm"
    reference: str = "refA"
    outliers: tuple[str, ...] = ()
    humans: bool | None = False


@dataclass(frozen=True)
class Task:
    """One figure on one language pair (or on several, pooled), and its weight in the whole."""

    statistic: Statistic
    pairs: tuple[str, ...]
    humans: bool = False
    domain: str | None = None
    average: str = "macro"
    weight: float = 1.0

    def __str__(self) -> str:
        extra = f":{self.domain}" if self.domain else ""
        return f"{'+'.join(self.pairs)}{extra} {self.statistic}{' with humans' if self.humans else ''}"


@dataclass(frozen=True)
class Preset:
    """The rules of a year.

    Parameters
    ----------
    name
        ``wmt22``, ``wmt23`` or ``wmt24``.
    rules
        By language pair, of those that make the official results.
    more
        Of the other language pairs, by what they were rated with; pairs in neither follow the defaults.
    pooled
        From how many language pairs on pairwise accuracy over all of them is a task of its own; 0: never.
    segment, system
        Figures of each language pair.
    domains
        Whether every domain is evaluated too.
    combine
        ``figures`` are averaged (correlations brought to the range of accuracies), or ``ranks``.
    unit
        What tests within items swap.
    """

    name: str
    rules: Mapping[str, Rules]
    more: Mapping[str, Rules]
    pooled: int
    segment: tuple[str, ...]
    system: tuple[str, ...]
    domains: bool = False
    combine: str = "figures"
    unit: str = "pairs"
    default: Rules = field(default_factory=Rules)

    def rules_of(self, pair: str) -> Rules:
        """The rules of a language pair."""
        return self.rules.get(pair) or self.more.get(pair, self.default)


def _alike(rules: Rules, pairs: str) -> dict[str, Rules]:
    return dict.fromkeys(pairs.split(), rules)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "wmt22",
            {
                "en-de": Rules(outliers=("M2M100_1.2B-B4",), humans=None),
                "en-ru": Rules(humans=None),
                "zh-en": Rules(humans=None),
            },
            _alike(Rules("wmt", humans=None), "de-en ja-en ru-en uk-en")
            | _alike(Rules("wmt", "refB", humans=None), "cs-en")
            | _alike(Rules("wmt-appraise", "refB", humans=None), "en-cs")
            | _alike(
                Rules("wmt-appraise", humans=None),
                "cs-uk en-hr en-ja en-liv en-uk en-zh liv-en sah-ru uk-cs",
            ),
            pooled=2,
            segment=tuple(
                f"segment:{name}/{by}" for by in ("none", "system", "item") for name in ("pearson", "kendall")
            ),
            system=("system:pearson", "system:kendall"),
            domains=True,
            combine="ranks",
            unit="scores",
        ),
        Preset(
            "wmt23",
            {
                "en-de": Rules(outliers=("synthetic_ref",)),
                "he-en": Rules(reference="refB", humans=True),
                "zh-en": Rules(outliers=("synthetic_ref",)),
            },
            _alike(Rules("da-sqm"), "cs-uk de-en en-cs en-ja en-zh ja-en"),
            pooled=1,
            segment=("segment:pearson", "segment:acc_eq*/item"),
            system=("system:pearson",),
        ),
        Preset(
            "wmt24",
            {
                "en-de": Rules(reference="refB", outliers=("MSLC",), humans=True),
                "en-es": Rules(outliers=("MSLC",)),
                "ja-zh": Rules(outliers=("MSLC",)),
            },
            _alike(Rules("esa"), "cs-uk en-cs en-hi en-is en-ja en-ru en-uk en-zh"),
            pooled=0,
            segment=("segment:acc_eq*/item",),
            system=("system:spa",),
        ),
    )
}


def preset(name: str) -> Preset:
    """Find the rules of a year.

    >>> preset("wmt24").system
    ('system:spa',)
    """
    if name not in PRESETS:
        raise InputError(f"there are no rules '{name}', expected one of: {', '.join(PRESETS)}")
    return PRESETS[name]


def tasks_of(
    rules: Preset,
    pairs: Sequence[str],
    domains: Mapping[str, Sequence[str]] | None = None,
    several_references: Sequence[str] = (),
) -> list[Task]:
    """The tasks of a year on some language pairs, their weights adding up to 1.

    Parameters
    ----------
    rules
        The preset.
    pairs
        Language pairs.
    domains
        Domains of each pair, where the rules ask for them.
    several_references
        Pairs with more than one reference, whose human translations can be systems.

    Examples
    --------
    >>> [(str(task), task.weight) for task in tasks_of(preset("wmt24"), ["en-es"])]
    [('en-es system:spa', 0.5), ('en-es segment:acc_eq*/item', 0.5)]
    """
    ordered = tuple(sorted(pairs))
    tasks = []
    if rules.pooled and len(ordered) >= rules.pooled:
        humans = any(rules.rules_of(p).humans for p in ordered)
        tasks.append(Task(Statistic("accuracy", "system"), ordered, humans, average="micro"))
    figures = [Statistic.parse(text) for text in (*rules.system, *rules.segment)]
    for pair in ordered:
        choice = rules.rules_of(pair).humans
        ways = [choice] if choice is not None else [True, False] if pair in several_references else [False]
        for domain in [None, *((domains or {}).get(pair, ()) if rules.domains else ())]:
            tasks += [Task(statistic, (pair,), bool(way), domain) for way in ways for statistic in figures]
    if rules.combine == "ranks":
        return _spread(tasks, ["pairs", "domain", "statistic.level", "humans", "statistic.by"])
    # Pooled accuracy weighs as much as the language pairs it pools.
    raw = [len(ordered) if task.average == "micro" else 1 for task in tasks]
    return [replace(task, weight=w / sum(raw)) for task, w in zip(tasks, raw, strict=True)]


def _spread(tasks: list[Task], attributes: Sequence[str], weight: float = 1.0) -> list[Task]:
    """Share a weight equally among the values of the first attribute, and so on within each."""
    if not attributes:
        return [replace(task, weight=weight / len(tasks)) for task in tasks]
    parts: dict[Any, list[Task]] = {}
    for task in tasks:
        parts.setdefault(attrgetter(attributes[0])(task), []).append(task)
    return [task for part in parts.values() for task in _spread(part, attributes[1:], weight / len(parts))]


@dataclass(frozen=True)
class Overall:
    """All tasks of a year, and what they make together: a figure (or mean rank) and a rank of each metric."""

    tasks: tuple[tuple[Task, Comparison], ...]
    values: Mapping[str, float]
    ranks: Mapping[str, int]
    signature: str


Load = Callable[[str, bool, str | None], Grid]


def run(rules: Preset, tasks: Sequence[Task], load: Load, metrics: Sequence[str], plan: Plan) -> Overall:
    """Run all tasks.

    Parameters
    ----------
    rules, tasks
        The preset, and its tasks on the language pairs at hand.
    load
        Gives the grid of a language pair, with or without human translations, of a domain or of all.
    metrics
        Metrics to compare. One that lacks a task, or has no figure there, has no place in the whole.
    plan
        Intervals and tests; what they swap follows the rules.
    """
    done = []
    for task in tasks:
        grids = [load(pair, task.humans, task.domain) for pair in task.pairs]
        own = [m for m in metrics if all(_has(grid, task.statistic, m) for grid in grids)]
        as_ruled = replace(plan, average=task.average, unit=rules.unit, test="permutation")
        done.append((task, compare(task.statistic, grids, own, as_ruled)))
    everywhere = [
        m
        for m in metrics
        if all(any(s.metric == m and not np.isnan(s.value) for s in found.standings) for _, found in done)
    ]
    if rules.combine == "ranks":
        values = {m: _mean_rank(done, m) for m in everywhere}
        order = sorted(everywhere, key=lambda m: (values[m], m))
        ranks = {m: 1 + sum(values[o] < values[m] for o in everywhere) for m in order}
    else:
        values = {m: sum(task.weight * _accuracy_of(found, m) for task, found in done) for m in everywhere}
        order = sorted(everywhere, key=lambda m: (-values[m], m))
        ranks = _ranks_of_means(done, order, plan)
    signature = f"preset:{rules.name}|tasks:{len(tasks)}|combine:{rules.combine}|{done[0][1].signature}"
    return Overall(tuple(done), {m: values[m] for m in order}, ranks, signature)


def _has(grid: Grid, statistic: Statistic, metric: str) -> bool:
    needs_segments = statistic.level == "segment" or statistic.name == "spa"
    return metric in (grid.metrics if needs_segments else grid.names)


def _standing(found: Comparison, metric: str) -> Any:
    return next(s for s in found.standings if s.metric == metric)


def _mean_rank(done: Sequence[tuple[Task, Comparison]], metric: str) -> float:
    total = 0.0
    for task, found in done:
        place = _standing(found, metric).rank or 1 + [s.metric for s in found.standings].index(metric)
        total += task.weight * place
    return total


def _accuracy_of(found: Comparison, metric: str) -> float:
    """A figure brought to the range of accuracies, 0 to 1."""
    low = found.statistic.lowest
    return (_standing(found, metric).value - low) / (1 - low)


def _ranks_of_means(
    done: Sequence[tuple[Task, Comparison]], order: Sequence[str], plan: Plan
) -> dict[str, int]:
    if not plan.draws:
        return {m: i + 1 for i, m in enumerate(order)}
    weights = np.array([task.weight for task, _ in done])
    verdicts: dict[tuple[str, str], Verdict] = {}
    for i, first in enumerate(order):
        for second in order[i + 1 :]:
            swaps = [_turned(found, first, second) for _, found in done]
            verdicts[first, second] = verdict(
                mean_of(swaps, weights), draws=plan.draws, seed=plan.seed, stop=plan.stop
            )
    return dict(zip(order, clusters(order, verdicts, plan.level), strict=True))


def _turned(found: Comparison, first: str, second: str) -> Swap:
    """The swap of two metrics of a task in the range of accuracies, in the order of the whole."""
    scale = 1 / (1 - found.statistic.lowest)
    if (first, second) in found.swaps:
        swap = found.swaps[first, second]
    else:
        swap, scale = found.swaps[second, first], -scale
    return Swap(scale * swap.delta, partial(_scaled, swap, scale), unit=swap.unit)


def _scaled(swap: Swap, scale: float, rng: np.random.Generator, size: int) -> Floats:
    return scale * swap.draw(rng, size)
