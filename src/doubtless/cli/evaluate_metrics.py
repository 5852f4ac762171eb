"""The part of ``doubtless evaluate`` that compares metrics: figures, intervals, clusters, and doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.cli import options as o
from doubtless.cli.render import new_console, number, print_json, warn
from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import with_human
from doubtless.conformal.doubt import doubt_of
from doubtless.conformal.evaluate import Evaluation
from doubtless.errors import InputError
from doubtless.forecast import Forecast
from doubtless.formats.words import quoted
from doubtless.metaeval.baselines import lexical
from doubtless.metaeval.compare import Comparison, Plan, compare
from doubtless.metaeval.folder import PairFolder, Scores, language_pairs, read_scores
from doubtless.metaeval.greedy import GreedyMatcher
from doubtless.metaeval.grid import Grid, grids_of
from doubtless.metaeval.presets import Overall, Rules, preset, run, tasks_of
from doubtless.metaeval.statistics import Statistic
from doubtless.segments import Floats, Table

DEFAULTS = {
    "segment": ("segment:pearson", "segment:kendall/item", "segment:acc_eq*/item"),
    "system": ("system:pearson", "system:spearman", "system:accuracy", "system:spa"),
}


@dataclass(frozen=True)
class Column:
    """A metric in a table: its name, its columns, and whether lower is better."""

    name: str
    columns: ForecastColumns
    negated: bool

    @classmethod
    def parse(cls, text: str) -> Column:
        """Read ``COLUMN``, ``NAME=SAMPLE+SAMPLE``, ``NAME=SCORE:SD``; a minus before: lower is better."""
        name, equals, rest = text.removeprefix("-").partition("=")
        rest = rest if equals else name
        score, colon, sd = rest.partition(":")
        if "+" in rest:
            columns = ForecastColumns(samples=tuple(part.strip() for part in rest.split("+")))
        else:
            columns = ForecastColumns(score=score, sd=sd) if colon else ForecastColumns(score=rest)
        return cls(name, columns, text.startswith("-"))

    def read(self, table: Table, alpha: float) -> Forecast:
        """Read the forecasts; a column of lists holds samples."""
        columns = self.columns
        if columns.score and not columns.sd and table.column(columns.score).dtype.is_nested():
            columns = ForecastColumns(samples=(columns.score,))
        return columns.read(table, alpha)

    def uncertain(self, table: Table) -> bool:
        """Whether the metric has an uncertainty of its own."""
        score = self.columns.score
        return self.columns.has_uncertainty or bool(score and table.column(score).dtype.is_nested())


def evaluate_metrics(given: Mapping[str, Any]) -> None:
    """Compare metrics as the options ask, and print it."""
    numbers = {name: given[name] for name in ("resamples", "draws", "seed")}
    plan = Plan(given["average"], unit=given["swap"], **numbers)
    if Path(given["file"]).is_dir():
        grids, overall, metrics = _from_folder(given, plan)
        doubt: dict[str, dict[str, float | None]] = {}
        signatures: list[str] = []
    else:
        grids, metrics, doubt, signatures = _from_table(given)
        overall = None
        if given["preset"]:
            by_name = {grid.name: grid for grid in grids}
            rules = preset(given["preset"])
            tasks = tasks_of(rules, list(by_name))
            overall = run(rules, tasks, lambda pair, humans, domain: by_name[pair], metrics, plan)
    if overall is not None:
        _show_overall(overall, doubt, given["json"])
        return
    statistics = _statistics(given)
    found = [compare(s, grids, _with(s, grids, metrics), plan) for s in statistics]
    if given["json"]:
        rows = [comparison.as_json() for comparison in found]
        missing = sum(grid.missing for grid in grids)
        print_json({"comparisons": rows, "doubt": doubt, "missing": missing, "metrics": signatures})
    else:
        _show(given["file"], grids, found, doubt, signatures)


def _statistics(given: Mapping[str, Any]) -> list[Statistic]:
    if given["statistics"]:
        return [Statistic.parse(text) for text in o.names(given["statistics"])]
    levels = o.names(given["levels"]) or ("segment", "system")
    for level in levels:
        if level not in DEFAULTS:
            raise InputError(f"a level is segment or system, found '{level}'")
    return [Statistic.parse(text) for level in levels for text in DEFAULTS[level]]


def _with(statistic: Statistic, grids: Sequence[Grid], metrics: Sequence[str]) -> list[str]:
    """The metrics that have what a statistic needs in every language pair."""
    if statistic.level == "system" and statistic.name != "spa":
        return [m for m in metrics if all(m in grid.names for grid in grids)]
    return [m for m in metrics if all(m in grid.metrics for grid in grids)]


# A table --------------------------------------------------------------------------------------------------


def _from_table(given: Mapping[str, Any]) -> tuple[list[Grid], list[str], dict[str, Any], list[str]]:
    columns = [Column.parse(text) for text in o.names(given["compare"])]
    names = [c.name for c in columns]
    if len(set(names)) < len(names):
        raise InputError(f"a metric is named twice: {', '.join(names)}")
    table = o.read_table(given)
    rows = len(table)
    sign = -1.0 if given["human"].startswith("-") else 1.0
    plan = Evaluation(given["alpha"], given["splits"], given["share"], given["seed"])
    table, y = with_human(table, given["human"].removeprefix("-"), plan.bounds)
    y = sign * y
    if len(table) < rows:
        warn(f"{rows - len(table):,} of {rows:,} rows have no human score and are left out")
    scores: dict[str, Floats] = {}
    doubt: dict[str, Any] = {}
    for column in columns:
        forecast = column.read(table, plan.alpha)
        scores[column.name] = (-1.0 if column.negated else 1.0) * forecast.score
        doubt[column.name] = doubt_of(forecast, y, plan, column.uncertain(table))
    extra, whole, signatures = _baselines(given, table)
    scores |= extra
    if not scores:
        raise InputError("there are no metrics to compare (--compare or --baselines)")
    item = o.names(given["item"])
    grids = grids_of(table, y, scores, system=given["system_column"], item=item)
    return [grid.with_systems(whole) for grid in grids], list(scores), doubt, signatures


def _baselines(
    given: Mapping[str, Any], table: Table
) -> tuple[dict[str, Floats], dict[str, dict[tuple[str, str], float]], list[str]]:
    scores: dict[str, Floats] = {}
    whole: dict[str, dict[tuple[str, str], float]] = {}
    signatures: list[str] = []
    wanted = o.names(given["baselines"])
    if not wanted:
        return scores, whole, signatures
    mt, ref = (table.column(role).fill_null("").to_list() for role in ("mt", "ref"))
    systems = table.labels([given["system_column"]]).to_list()
    pairs = table.labels(["lp"]).to_list() if table.has("lp") else ["all"] * len(table)
    for name in wanted:
        if name.startswith("greedy:"):
            matcher = GreedyMatcher(name.removeprefix("greedy:"))
            scores["greedy"] = matcher.score(mt, ref)
            signatures.append(matcher.signature)
        else:
            found = lexical(name, mt, ref, systems, pairs)
            scores[name], whole[name] = found.segments, found.systems
            signatures += found.signatures
    return scores, whole, signatures


# A folder -------------------------------------------------------------------------------------------------


def _from_folder(given: Mapping[str, Any], plan: Plan) -> tuple[list[Grid], Overall | None, list[str]]:
    path = Path(given["file"])
    rules = preset(given["preset"]) if given["preset"] else None
    pairs = o.names(given["pairs"]) or _known_pairs(path, rules)
    folders = {pair: PairFolder(path, pair) for pair in pairs}
    extra = _score_files(given["scores"] or [])
    cache: dict[tuple[str, bool, str | None], Grid] = {}

    def load(pair: str, humans: bool, domain: str | None) -> Grid:
        key = (pair, humans, domain)
        if key not in cache:
            own = _rules(given, folders[pair], rules.rules_of(pair) if rules else None)
            cache[key] = folders[pair].grid(
                own.gold, own.reference, humans=humans, outliers=own.outliers, domain=domain, extra=extra
            )
        return cache[key]

    grids = [load(pair, bool(rules and rules.rules_of(pair).humans), None) for pair in pairs]
    for folder in folders.values():
        for name, reason in folder.left_out.items():
            warn(f"{folder.pair}: metric {quoted(name)} is left out: {reason}")
    common = set.intersection(*(set(grid.names) for grid in grids))
    asked = o.names(given["compare"])
    unknown = [name for name in asked if name not in common]
    if unknown:
        raise InputError(f"{path}: no metric {quoted(unknown[0])} in every language pair")
    metrics = list(asked) or sorted(common)
    if rules is None:
        return grids, None, metrics
    domains = {pair: sorted(set(folder.domains) - {""}) for pair, folder in folders.items()}
    several = [pair for pair, folder in folders.items() if len(folder.references) > 1]
    overall = run(rules, tasks_of(rules, pairs, domains, several), load, metrics, plan)
    return grids, overall, metrics


def _known_pairs(path: Path, rules: Any) -> tuple[str, ...]:
    pairs = language_pairs(path)
    official = [pair for pair in pairs if rules is not None and pair in rules.rules]
    return tuple(official or pairs)


def _rules(given: Mapping[str, Any], folder: PairFolder, official: Rules | None) -> Rules:
    """What to compare with: as asked, else as the rules say, else the only one there is."""
    if official is not None and given["human"] == "human" and given["reference"] is None:
        return official
    gold, reference = given["human"], given["reference"]
    if gold == "human":
        gold = official.gold if official else _only(folder.human_names, "human scores", "--human", folder)
    if reference is None:
        reference = (
            official.reference if official else _only(folder.references, "references", "--reference", folder)
        )
    return Rules(gold, reference, official.outliers if official else ())


def _only(names: Any, what: str, option: str, folder: PairFolder) -> str:
    found = list(names)
    if len(found) != 1:
        listing = ", ".join(found) or "none"
        raise InputError(
            f"{folder.path}: which {what} for {folder.pair}? (there are: {listing}) choose by {option}"
        )
    return str(found[0])


def _score_files(files: Sequence[str]) -> dict[str, dict[str, Scores]]:
    extra: dict[str, dict[str, Scores]] = {}
    for file in files:
        parts = Path(file).name.rsplit(".", 2)
        if len(parts) != 3 or parts[2] != "score" or parts[1] not in ("seg", "sys"):
            raise InputError(f"{file}: expected a name that ends in .seg.score or .sys.score")
        extra.setdefault(parts[0], {})[parts[1]] = read_scores(file)
    return extra


# Printing -------------------------------------------------------------------------------------------------


def _show(
    file: str,
    grids: Sequence[Grid],
    found: Sequence[Comparison],
    doubt: Mapping[str, Any],
    signatures: Sequence[str],
) -> None:
    console = new_console()
    rated = sum(int((~np.isnan(grid.human)).sum()) for grid in grids)
    missing = sum(grid.missing for grid in grids)
    counts = f": {rated:,} translations with human scores ({missing:,} without), {len(grids)} language pairs"
    console.print(Text.assemble((file, "bold"), counts))
    console.print(
        "Figure (rank of its cluster), and the doubt of the metric on the scale of the human scores"
    )
    titles = [str(c.statistic).replace(":", "\n") for c in found]
    table = RichTable("metric", *titles, *(("ups", "coverage", "width") if doubt else ()), box=None)
    table.header_style = "dim"
    places = [{s.metric: s for s in c.standings} for c in found]
    for metric in dict.fromkeys(s.metric for c in found for s in c.standings):
        cells = [_cell(place.get(metric)) for place in places]
        own = doubt.get(metric, {})
        table.add_row(
            metric, *cells, *((number(own.get(k)) for k in ("ups", "coverage", "width")) if doubt else ())
        )
    console.print(table)
    for comparison in found:
        _show_comparison(console, comparison)
    for line in signatures:
        console.print(line, style="dim", soft_wrap=True)


def _cell(standing: Any) -> str:
    if standing is None:
        return "-"
    return number(standing.value) + (f" ({standing.rank})" if standing.rank else "")


def _show_comparison(console: Any, comparison: Comparison) -> None:
    pairs = list(comparison.standings[0].by_pair)
    table = RichTable("rank", "metric", "figure", "95 % interval", "undefined", *pairs, box=None)
    table.header_style = "dim"
    for s in comparison.standings:
        undefined = sum(f.undefined for f in s.by_pair.values())
        ends = f"{number(s.low)} … {number(s.high)}" if not np.isnan(s.low) else "-"
        figures = [number(s.by_pair[pair].value) for pair in pairs]
        table.add_row(number(s.rank), s.metric, number(s.value), ends, number(undefined), *figures)
    console.print(Text.assemble("\n", (str(comparison.statistic), "bold")))
    console.print(table)
    console.print(comparison.signature, style="dim", soft_wrap=True)


def _show_overall(overall: Overall, doubt: Mapping[str, Any], json: bool) -> None:
    tasks = [{"task": str(task), "weight": task.weight, **found.as_json()} for task, found in overall.tasks]
    if json:
        whole = [{"metric": m, "value": v, "rank": overall.ranks.get(m)} for m, v in overall.values.items()]
        print_json({"overall": whole, "tasks": tasks, "doubt": doubt, "signature": overall.signature})
        return
    console = new_console()
    shown = overall.tasks[:8]  # the 2022 rules have over a hundred tasks
    table = RichTable(
        "rank", "metric", "overall", *(str(task).replace(" ", "\n") for task, _ in shown), box=None
    )
    table.header_style = "dim"
    places = [{s.metric: s for s in found.standings} for _, found in shown]
    for metric, value in overall.values.items():
        cells = [_cell(place.get(metric)) for place in places]
        table.add_row(number(overall.ranks.get(metric)), metric, number(value), *cells)
    console.print(table)
    if len(overall.tasks) > len(shown):
        console.print(f"and {len(overall.tasks) - len(shown)} more tasks (--json has them all)", style="dim")
    console.print(overall.signature, style="dim", soft_wrap=True)
