"""WMT20 out of English, from recorded scores: COMET, an ensemble, its members and lexical baselines compared.

Direct assessments of seven language pairs. Human translations and copies of the reference are left out. The
figures are macro averages over the pairs; a metric of a rank is not outperformed by another of that rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from doubtless.columns import ForecastColumns
from doubtless.conformal.doubt import doubt_of
from doubtless.conformal.evaluate import Evaluation
from doubtless.datasets import locate
from doubtless.forecast import ErrorEstimate
from doubtless.metaeval.baselines import lexical
from doubtless.metaeval.compare import Comparison, Plan, compare
from doubtless.metaeval.grid import grids_of
from doubtless.metaeval.statistics import Statistic
from doubtless.reproduce import Options, Rows, Study
from doubtless.segments import Floats, Table, read

MEMBERS = ("ens3", "ens7", "ens89", "ens891")
STATISTICS = {
    "segment": {"r": "pearson", "tau": "kendall/item", "acc": "acc_eq*/item"},
    "system": {"r": "pearson", "acc": "accuracy", "spa": "spa"},
}
FIGURES = ("r", "tau", "acc", "spa")


def wmt20(data: str | None, options: Options) -> Rows:
    """Segment and system level figures of all metrics, with their clusters and their doubt."""
    table = read(locate(data, "wmt20_comet.parquet")).where("not mt_is_ref and system not like 'Human%'")
    if options.sets or options.quick:
        wanted = ", ".join(f"'{pair}'" for pair in options.sets or ("en-ja",))
        table = table.where(f"lp in ({wanted})")
    y = table.numbers("da_z")
    scores: dict[str, Floats] = {name: table.numbers(name) for name in ("comet", *MEMBERS)}
    scores["ensemble"] = np.mean([scores[name] for name in MEMBERS], axis=0)
    whole: dict[str, dict[tuple[str, str], float]] = {}
    texts = [table.column(role).to_list() for role in ("mt", "ref", "system", "lp")]
    for name in ("chrF", "BLEU"):
        baseline = lexical(name, *texts)
        scores[name], whole[name] = baseline.segments, baseline.systems
    grids = [grid.with_systems(whole) for grid in grids_of(table, y, scores)]
    plan = Plan(seed=options.seed, draws=200 if options.quick else 1000)
    doubt = _doubts(table, y, scores, Evaluation(0.1, options.splits, seed=options.seed))
    rows: Rows = []
    for level, names in STATISTICS.items():
        found = {
            key: compare(Statistic.parse(f"{level}:{name}"), grids, list(scores), plan)
            for key, name in names.items()
        }
        rows += _rows(level, found, doubt if level == "segment" else {}, [grid.name for grid in grids])
    return rows


def _rows(
    level: str, found: dict[str, Comparison], doubt: dict[str, dict[str, Any]], pairs: list[str]
) -> Rows:
    """One row a metric for the mean over the pairs, with ranks and doubt, and one for each pair."""
    standings = {key: {s.metric: s for s in comparison.standings} for key, comparison in found.items()}
    order = [s.metric for s in found["acc"].standings]
    nothing = dict.fromkeys(("ups", "coverage", "width"))
    rows = []
    for pair in ["macro", *(pairs if len(pairs) > 1 else ())]:
        for metric in order:
            row: dict[str, Any] = {"lp": pair, "level": level, "metric": metric}
            for key in FIGURES:
                place = standings[key][metric] if key in standings else None
                whole = pair == "macro"
                row[key] = None if place is None else place.value if whole else place.by_pair[pair].value
                row[f"{key}#"] = place.rank if place and whole else None
            rows.append(row | (doubt.get(metric, nothing) if pair == "macro" else nothing))
    return rows


def _doubts(
    table: Table, y: Floats, scores: dict[str, Floats], plan: Evaluation
) -> dict[str, dict[str, Any]]:
    doubt = {
        name: doubt_of(ErrorEstimate(values, np.ones(len(values))), y, plan, uncertain=False)
        for name, values in scores.items()
    }
    doubt["ensemble"] = doubt_of(ForecastColumns(samples=MEMBERS).read(table), y, plan)
    return doubt


STUDIES = (Study("metaeval-wmt20", "Metrics on WMT20 out of English: figures, clusters and doubt", wmt20),)
