"""The part of ``doubtless evaluate`` that compares metrics: figures, intervals, clusters, and doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from doubtless.cli import options as o
from doubtless.cli.annotations import read_annotations, with_ratings
from doubtless.cli.metrics_view import show_comparisons, show_overall
from doubtless.cli.render import print_json, warn
from doubtless.cli.signatures import evaluation_signature, gold
from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import with_human
from doubtless.conformal.doubt import doubt_of
from doubtless.conformal.evaluate import Evaluation
from doubtless.errors import InputError
from doubtless.forecast import Forecast
from doubtless.formats.words import listed, quoted
from doubtless.metaeval.baselines import lexical
from doubtless.metaeval.compare import Plan, compare
from doubtless.metaeval.folder import PairFolder, Scores, language_pairs, read_scores
from doubtless.metaeval.greedy import GreedyMatcher
from doubtless.metaeval.grid import Grid, grids_of
from doubtless.metaeval.presets import Overall, Preset, Rules, preset, run, tasks_of
from doubtless.metaeval.rated import by_segment, columns_of_items
from doubtless.metaeval.statistics import Statistic
from doubtless.segments import Floats, Table

FOR_FOLDERS = ("pairs", "reference", "scores", "first_segment")
FOR_TABLES = ("where", "format", "samples", "score", "src", "mt", "ref")
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

    @property
    def signature(self) -> str:
        """Which columns the metric is made of."""
        columns = self.columns
        parts = [f"samples:{'+'.join(columns.samples)}"] if columns.samples else [f"score:{columns.score}"]
        parts += [f"sd:{columns.sd}"] if columns.sd else []
        return "|".join([f"metric:{self.name}", *parts, *(["negated"] if self.negated else [])])

    def uncertain(self, table: Table) -> bool:
        """Whether the metric has an uncertainty of its own."""
        score = self.columns.score
        return self.columns.has_uncertainty or bool(score and table.column(score).dtype.is_nested())


@dataclass(frozen=True)
class Data:
    """What is compared; ``overall`` if the rules of a year have been applied."""

    grids: Sequence[Grid]
    metrics: Sequence[str]
    signatures: Sequence[str]
    overall: Overall | None = None
    doubt: Mapping[str, Any] = field(default_factory=dict)
    without_human: int = 0


def evaluate_metrics(given: Mapping[str, Any]) -> None:
    """Compare metrics as the options ask, and print it."""
    numbers = {name: given[name] for name in ("resamples", "draws", "seed")}
    plan = Plan(given["average"], unit=given["swap"], test=given["test"], **numbers)
    folder = Path(given["file"]).is_dir()
    _refuse(given, FOR_TABLES if folder else FOR_FOLDERS, "a table" if folder else "a folder")
    data = _from_folder(given, plan) if folder else _from_table(given, plan)
    if data.overall is not None:
        show_overall(data.overall, data.doubt, data.signatures, given["json"])
        return
    found = []
    for statistic in _statistics(given):
        able = _with(statistic, data.grids, data.metrics)
        if able:
            found.append(compare(statistic, data.grids, able, plan))
        else:
            warn(f"{statistic} is left out: no metric has the scores of segments that it needs")
    if not found:
        raise InputError("there is nothing to compare: no metric has the scores that the figures need")
    if given["json"]:
        print_json(
            {
                "comparisons": [comparison.as_json() for comparison in found],
                "doubt": data.doubt,
                "missing": sum(grid.missing for grid in data.grids),
                "without_human": data.without_human,
                "metrics": data.signatures,
            }
        )
    else:
        show_comparisons(given["file"], data.grids, found, data.doubt, data.signatures)


def _refuse(given: Mapping[str, Any], options: Sequence[str], owner: str) -> None:
    """Refuse options that would do nothing."""
    for name in options:
        if given[name] is not None:
            raise InputError(f"--{name.replace('_', '-')} belongs to {owner}, but {given['file']} is none")


def _statistics(given: Mapping[str, Any]) -> list[Statistic]:
    if given["statistics"]:
        return [Statistic.parse(text, given["undefined"]) for text in o.names(given["statistics"])]
    levels = o.names(given["levels"]) or ("segment", "system")
    for level in levels:
        if level not in DEFAULTS:
            raise InputError(f"a level is segment or system, found '{level}'")
    return [Statistic.parse(text, given["undefined"]) for level in levels for text in DEFAULTS[level]]


def _with(statistic: Statistic, grids: Sequence[Grid], metrics: Sequence[str]) -> list[str]:
    """The metrics that have what a statistic needs in every language pair."""
    if statistic.level == "system" and statistic.name != "spa":
        return [m for m in metrics if all(m in grid.names for grid in grids)]
    return [m for m in metrics if all(m in grid.metrics for grid in grids)]


# A table --------------------------------------------------------------------------------------------------


def _from_table(given: Mapping[str, Any], plan: Plan) -> Data:
    columns = [Column.parse(text) for text in o.names(given["compare"])]
    names = [c.name for c in columns]
    if len(set(names)) < len(names):
        raise InputError(f"a metric is named twice: {', '.join(names)}")
    table = with_ratings(o.read_table(given), given)
    rows = len(table)
    sign = -1.0 if given["human"].startswith("-") else 1.0
    splits = Evaluation(given["alpha"], given["splits"], given["share"], given["seed"])
    table, y = with_human(table, given["human"].removeprefix("-"), splits.bounds)
    y = sign * y
    if len(table) < rows:
        warn(f"{rows - len(table):,} of {rows:,} rows have no human score and are left out")
    scores: dict[str, Floats] = {}
    doubt: dict[str, Any] = {}
    for column in columns:
        forecast = column.read(table, splits.alpha)
        scores[column.name] = (-1.0 if column.negated else 1.0) * forecast.score
        doubt[column.name] = doubt_of(forecast, y, splits, column.uncertain(table))
    extra, whole, signatures = _baselines(o.names(given["baselines"]), table, given["system_column"])
    twice = next((name for name in extra if name in scores), None)
    if twice:
        raise InputError(f"a metric is named twice: {twice} is a column and a baseline")
    scores |= extra
    signatures = [*(column.signature for column in columns), *signatures]
    if not scores:
        raise InputError("there are no metrics to compare (--compare or --baselines)")
    item = list(columns_of_items(o.names(given["item"])))
    grids = grids_of(table, y, scores, system=given["system_column"], item=item)
    if doubt:
        signatures.append(f"doubt:ups.coverage.width|{evaluation_signature(splits, given)}")
    grids = [replace(grid.with_systems(whole), gold=gold(given)) for grid in grids]
    overall = None
    if given["preset"]:
        by_name, rules = {grid.name: grid for grid in grids}, preset(given["preset"])
        tasks = tasks_of(rules, list(by_name))
        overall = run(rules, tasks, lambda pair, humans, domain: by_name[pair], list(scores), plan)
    return Data(grids, list(scores), signatures, overall, doubt, rows - len(table))


def _baselines(
    wanted: Sequence[str], table: Table, system: str = "system"
) -> tuple[dict[str, Floats], dict[str, dict[tuple[str, str], float]], list[str]]:
    scores: dict[str, Floats] = {}
    whole: dict[str, dict[tuple[str, str], float]] = {}
    signatures: list[str] = []
    if not wanted:
        return scores, whole, signatures
    mt, ref = (table.column(role).fill_null("").to_list() for role in ("mt", "ref"))
    systems = table.labels([system]).to_list()
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


def _from_folder(given: Mapping[str, Any], plan: Plan) -> Data:
    path = Path(given["file"])
    rules = preset(given["preset"]) if given["preset"] else None
    rated, item = _annotations(given)
    pairs = o.names(given["pairs"]) or _known_pairs(path, rules, rated)
    if rated is not None and not rated.has("lp") and len(pairs) > 1:
        raise InputError(f"{rated.name}: no column 'lp': which of {listed(pairs)}? choose by --pairs")
    folders = {pair: PairFolder(path, pair) for pair in pairs}
    extra = _score_files(given["scores"] or [], pairs)
    signatures: dict[str, None] = {}
    scored: set[str] = set()
    cache: dict[tuple[str, bool, str | None], Grid] = {}

    def load(pair: str, humans: bool, domain: str | None) -> Grid:
        key = (pair, humans, domain)
        if key not in cache:
            folder = folders[pair]
            own = _rules(given, folder, rules.rules_of(pair) if rules else None)
            if given["baselines"] and pair not in scored:
                scored.add(pair)
                found, lines = _folder_baselines(o.names(given["baselines"]), folder, own.reference)
                extra[pair] = extra.get(pair, {}) | found
                signatures.update(dict.fromkeys(lines))
            human: str | Scores = own.gold
            if rated is not None:
                human = by_segment(rated, pair, len(folder.source), item=item, first=given["first_segment"])
            grid = folder.grid(
                human,
                own.reference,
                humans=humans,
                outliers=own.outliers,
                domain=domain,
                extra=extra.get(pair),
            )
            cache[key] = grid if rated is None else replace(grid, gold=gold(given))
        return cache[key]

    grids = [load(pair, bool(rules and rules.rules_of(pair).humans), None) for pair in pairs]
    said = _say_left_out(folders, set())
    metrics = _common(path, grids, o.names(given["compare"]))
    if rules is None:
        return Data(grids, metrics, list(signatures))
    domains = {pair: sorted(set(folder.domains) - {""}) for pair, folder in folders.items()}
    several = [pair for pair, folder in folders.items() if len(folder.references) > 1]
    overall = run(rules, tasks_of(rules, pairs, domains, several), load, metrics, plan)
    _say_left_out(folders, said)
    return Data(grids, metrics, list(signatures), overall)


def _folder_baselines(
    wanted: Sequence[str], folder: PairFolder, reference: str
) -> tuple[dict[str, dict[str, Scores]], list[str]]:
    """Score the texts of a folder: of each baseline the scores of segments and, if there are, of systems."""
    systems = [name for name in folder.outputs if name != reference]
    segments, whole, signatures = _baselines(wanted, folder.table(reference, systems))
    found: dict[str, dict[str, Scores]] = {}
    for name, values in segments.items():
        rows = values.reshape(len(systems), -1)
        found[name] = {"seg": dict(zip(systems, rows, strict=True))}
        if name in whole:
            found[name]["sys"] = {s: np.array([whole[name][folder.pair, s]]) for s in systems}
    return found, signatures


def _annotations(given: Mapping[str, Any]) -> tuple[Table | None, str]:
    """The scores of --ratings, and their column of segments."""
    if not given["ratings"]:
        return None, ""
    if given["human"] != "human":
        raise InputError("--human and --ratings both name human scores, expected one of the two")
    item = list(columns_of_items(o.names(given["item"])).values())
    if len(item) != 1:
        raise InputError("segments of a folder have numbers, expected one column of segments (--item)")
    return read_annotations(given, item), item[0]


def _say_left_out(folders: Mapping[str, PairFolder], said: set[str]) -> set[str]:
    """Warn of what a folder's pairs could not use, each once; return what was said."""
    for folder in folders.values():
        for what, reason in folder.left_out.items():
            sentence = f"{folder.pair}: {what} is left out: {reason}"
            if sentence not in said:
                warn(sentence)
            said.add(sentence)
    return said


def _common(path: Path, grids: Sequence[Grid], asked: Sequence[str]) -> list[str]:
    """The metrics that every language pair has; those asked for must be among them."""
    names = list(dict.fromkeys(name for grid in grids for name in grid.names))
    lacking = {name: [grid.name for grid in grids if name not in grid.names] for name in names}
    for name in asked:
        if lacking.get(name, ["any"]):
            raise InputError(
                f"{path}: no metric {quoted(name)} in every language pair (there are: {listed(names)})"
            )
    for name in names:
        if lacking[name] and not asked:
            warn(f"metric {quoted(name)} is left out: no scores for {listed(lacking[name])}")
    common = list(asked) or sorted(name for name in names if not lacking[name])
    if not common:
        raise InputError(f"{path}: no metric has scores in every language pair")
    return common


def _known_pairs(path: Path, rules: Preset | None, rated: Table | None) -> tuple[str, ...]:
    """The language pairs of a folder that were rated; of these, the official ones of a year if there are."""
    pairs = language_pairs(path, rated=rated is not None)
    if rated is not None and rated.has("lp"):
        known = set(rated.column("lp").cast(pl.String))
        pairs = [pair for pair in pairs if pair in known]
        if not pairs:
            raise InputError(f"{rated.name}: no ratings of a language pair in {path}")
    official = [pair for pair in pairs if rules is not None and pair in rules.rules]
    return tuple(official or pairs)


def _rules(given: Mapping[str, Any], folder: PairFolder, official: Rules | None) -> Rules:
    """What to compare with: as asked, else as the rules say, else the only one there is."""
    gold, reference = given["human"], given["reference"]
    if gold == "human" and not given["ratings"]:
        gold = official.gold if official else _only(folder.human_names, "human scores", "--human", folder)
    if reference is None:
        reference = (
            official.reference if official else _only(folder.references, "references", "--reference", folder)
        )
    return Rules(gold, reference, official.outliers if official else ())


def _only(names: Any, what: str, option: str, folder: PairFolder) -> str:
    found = list(names)
    if not found:
        raise InputError(f"{folder.path}: there are no {what} for {folder.pair}")
    if len(found) > 1:
        raise InputError(
            f"{folder.path}: which {what} for {folder.pair}? (there are: {listed(found)}) choose by {option}"
        )
    return str(found[0])


def _score_files(files: Sequence[str], pairs: Sequence[str]) -> dict[str, dict[str, dict[str, Scores]]]:
    """Read ``FILE`` or ``PAIR=FILE``: scores by language pair, metric and level."""
    extra: dict[str, dict[str, dict[str, Scores]]] = {}
    for text in files:
        pair, equals, file = text.rpartition("=")
        if not equals and len(pairs) > 1:
            raise InputError(f"{file}: which of {listed(pairs)}? write PAIR={file}")
        pair = pair if equals else pairs[0]
        if pair not in pairs:
            raise InputError(f"{text}: no language pair {quoted(pair)} (there are: {listed(pairs)})")
        parts = Path(file).name.rsplit(".", 2)
        if len(parts) != 3 or parts[2] != "score" or parts[1] not in ("seg", "sys"):
            raise InputError(f"{file}: expected a name that ends in .seg.score or .sys.score")
        extra.setdefault(pair, {}).setdefault(parts[0], {})[parts[1]] = read_scores(file)
    return extra
