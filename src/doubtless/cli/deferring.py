"""What ``doubtless defer`` does: marks segments, estimates from drawn ones, simulates budgets."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from doubtless.cli import options as o
from doubtless.cli.defer_view import mixed_rows, print_curves, print_mixed
from doubtless.cli.render import number, print_json, print_table
from doubtless.cli.risk import calibrated
from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import with_human
from doubtless.decide.budget import PRICES, Mask, Price, allowance, spend, word_counts
from doubtless.decide.defer import ORACLES, RULES, Case, reason, urgency
from doubtless.decide.losses import Loss
from doubtless.decide.mixed import chances, draw
from doubtless.decide.mixed import estimate as estimate_means
from doubtless.decide.simulate import DRAWN, Setting, curves
from doubtless.errors import InputError
from doubtless.forecast import Forecast
from doubtless.segments import Floats, Table, write
from doubtless.systems import segment_numbers


def mark(given: Mapping[str, Any], table: Table) -> None:
    """Add the marks to the table."""
    case = _case(given, table, [given["rule"]])
    assert case.cost is not None
    budget = allowance(given["budget"], float(case.cost.sum()))
    marks = _drawn(given, table, case, budget) if given["draw"] else _chosen(given, table, case, budget)
    table.check_free(marks.columns, "choose another --name")
    frame, chosen = table.frame.hstack(marks), marks[given["name"]]
    summary = {
        "n": len(table),
        "rule": given["rule"],
        "deferred": int(chosen.sum()),
        "unit": _unit(given),
        "cost": float(case.cost[chosen.to_numpy()].sum()),
        "budget": budget,
        "cost_of_all": float(case.cost.sum()),
        "drawn": given["draw"],
    }
    written = frame.filter(pl.col(given["name"])) if given["only"] else frame
    to_file = o.is_file(given["output"])
    if to_file:
        write(written, given["output"])
    if given["json"]:
        print_json(summary)
        return
    if not to_file:
        print_table(written)
    # What is said about the table must not get into it.
    print(_sentence(summary), file=sys.stdout if to_file else sys.stderr)


def _chosen(given: Mapping[str, Any], table: Table, case: Case, budget: float) -> pl.DataFrame:
    """Marks of the most urgent segments."""
    wish = urgency(given["rule"], case)
    groups = table.labels(o.names(given["by"])).to_numpy() if given["by"] else None
    assert case.cost is not None
    chosen = spend(wish, case.cost, budget, groups)
    reasons = [
        reason(given["rule"], case, value) if mark else "" for value, mark in zip(wish, chosen, strict=True)
    ]
    rank = np.empty(len(wish), dtype=np.int64)
    rank[np.argsort(-wish, kind="stable")] = np.arange(1, len(wish) + 1)
    return pl.DataFrame(_named(given, chosen, reasons, case.cost) | {f"{given['name']}_rank": rank})


def _drawn(given: Mapping[str, Any], table: Table, case: Case, budget: float) -> pl.DataFrame:
    """Marks of segments that were drawn, and the chances with which they were."""
    rule = given["rule"]
    if rule != "random" and not RULES[rule].of_errors:
        known = ", ".join(name for name, known in RULES.items() if known.of_errors)
        raise InputError(f"chances follow the error to expect (--rule {known} or random), not '{rule}'")
    assert case.cost is not None
    # The loss is per unit of cost, which chances take into account by themselves.
    doubt = case.cost * 0 if rule == "random" else urgency(rule, case) * (case.cost if rule == "loss" else 1)
    # Systems are drawn independently of each other, whatever other groups get their share within them:
    # that is what the estimate rests on.
    systems = [column for column in ("lp", "system") if table.has(column)]
    columns = list(dict.fromkeys([*systems, *o.names(given["by"])]))
    strata = table.labels(columns).to_numpy() if columns else None
    chance = chances(doubt, case.cost, budget, even=given["even"], strata=strata)
    chosen = draw(chance, strata, seed=given["seed"])
    reasons = [f"drawn with chance {p:.3g}" if mark else "" for p, mark in zip(chance, chosen, strict=True)]
    return pl.DataFrame(_named(given, chosen, reasons, case.cost) | {f"{given['name']}_chance": chance})


def _named(given: Mapping[str, Any], chosen: Mask, reasons: list[str], cost: Floats) -> dict[str, Any]:
    name = given["name"]
    return {name: chosen, f"{name}_reason": reasons, f"{name}_cost": cost}


def estimate(given: Mapping[str, Any], table: Table) -> None:
    """Means of systems from drawn segments, and a score for every segment."""
    column = f"{given['name']}_combined"
    table.check_free([column], "it is what --estimate writes: leave it out")
    case = _case(given, table, ["score"])
    human = table.numbers(given["human"], missing=True)
    chance = table.numbers(f"{given['name']}_chance")
    drawn = _true(table, given["name"])
    lacking = drawn & np.isnan(human)
    if lacking.any():
        place = table.place(int(lacking.argmax()))
        raise InputError(f"{place}: the segment was drawn and has no human score in '{given['human']}'")
    # Scores of segments that were not drawn have no weight in the estimate.
    human = np.where(drawn, human, np.nan)
    found, combined = [], np.full(len(table), np.nan)
    for lp, rows in _pairs(table):
        part = table.take(rows)
        systems = part.labels(["system"]).to_numpy() if part.has("system") else np.full(len(rows), "all")
        made = estimate_means(
            systems, case.forecast.score[rows], human[rows], chance[rows], higher=case.higher
        )
        found.append((lp, made))
        combined[rows] = made.corrected
    if _written(given, table.frame.with_columns(pl.Series(column, combined))):
        return
    if given["json"]:
        print_json([row for lp, made in found for row in mixed_rows(lp, made)])
    else:
        print_mixed(found)


def _written(given: Mapping[str, Any], frame: pl.DataFrame) -> bool:
    """Write the table where ``--output`` says; whether that leaves no place for a summary."""
    if o.is_file(given["output"]):
        write(frame, given["output"])
        return False
    if given["output"] is None or given["json"]:
        return False
    print_table(frame)
    return True


def _true(table: Table, column: str) -> Mask:
    return (table.column(column).cast(pl.String).str.to_lowercase() == "true").fill_null(False).to_numpy()


def simulate(given: Mapping[str, Any], table: Table) -> None:
    """The curve of system-level agreement against the budget."""
    table, human = with_human(table, given["human"])
    rules = o.names(given["rules"]) or _usual_rules(given, table)
    settings = []
    for _, rows in _pairs(table):
        part = table.take(rows)
        case = _case(given, part, rules, human[rows])
        _, systems = np.unique(part.labels(["system"]).to_numpy(), return_inverse=True)
        _, segments = np.unique(segment_numbers(part), return_inverse=True)
        strata = part.labels(o.names(given["by"])).to_numpy() if given["by"] else None
        assert case.cost is not None
        settings.append(Setting(case, systems, segments, case.cost, strata, given["even"]))
    found = curves(settings, rules, resamples=given["resamples"], seed=given["seed"])
    # The random rule has no gain over itself: all names of columns stand in the other rows.
    if _written(given, pl.DataFrame(found, infer_schema_length=None)):
        return
    if given["json"]:
        print_json({"n": len(table), "pairs": len(settings), "unit": _unit(given), "curves": found})
    else:
        print_curves(found, _unit(given), len(settings))


def _pairs(table: Table) -> list[tuple[str | None, np.ndarray]]:
    """The rows of each language pair."""
    if not table.has("lp"):
        return [(None, np.arange(len(table)))]
    labels = table.labels(["lp"]).to_numpy()
    return [(lp, np.flatnonzero(labels == lp)) for lp in dict.fromkeys(labels.tolist())]


def _usual_rules(given: Mapping[str, Any], table: Table) -> tuple[str, ...]:
    """All rules for which something is known."""
    columns = _columns(given, table)
    rules = ["random", "score"]
    if columns is None or columns.has_uncertainty:
        rules += ["confidence", *(["chance"] if given["threshold"] is not None else []), "loss", "drawn"]
    return (*rules, "oracle-score", "oracle-error")


def _case(given: Mapping[str, Any], table: Table, rules: Sequence[str], human: Floats | None = None) -> Case:
    """What the rules may look at."""
    possible = [name for name in (*RULES, DRAWN) if human is not None or name not in (*ORACLES, DRAWN)]
    for rule in rules:
        if rule not in possible:
            raise InputError(f"there is no rule '{rule}', expected one of: {', '.join(possible)}")
    known = _known_columns(given, table, rules)
    columns, options = _columns(given, table), dict[str, Any]()
    if columns is None:
        forecast, options = calibrated({**given, "assume": None}, table)
    else:
        forecast = _forecast(columns, table, [rule for rule in rules if rule not in known])
    if given["range_"]:
        options["bounds"] = o.score_range(given["range_"])
    price = _price(given)
    words = word_counts(_translations(table)) if price.per_word else [1.0] * len(table)
    mistakes = Loss.in_scenario(given["loss"], given["w"], given["scenario"], given["better"])
    return Case(
        forecast,
        **options,
        **known,
        threshold=given["threshold"],
        loss=mistakes,
        cost=price.of(words),
        human=human,
        higher=given["better"] == "higher",
        seed=given["seed"],
    )


def _columns(given: Mapping[str, Any], table: Table) -> ForecastColumns | None:
    """The columns of the forecast: those named, else those that `score` writes; None: the calibration's."""
    named = ("score", "samples", "sd", "lower", "upper", "error", "warp")
    if given["calibration"]:
        return None
    if any(given[option] is not None for option in named):
        return o.forecast_columns(given)
    for doubt in (("error",), ("sd",), ("lower", "upper")):
        if table.has("score") and all(map(table.has, doubt)):
            found: dict[str, Any] = {name: name for name in doubt}
            return ForecastColumns(score="score", **found, level=given["level"], floor=given["floor"])
    return ForecastColumns(score="score", level=given["level"])


def _forecast(columns: ForecastColumns, table: Table, rules: Sequence[str]) -> Forecast:
    """The forecast, as far as rules look at it."""
    needing = [rule for rule in rules if rule != DRAWN and RULES[rule].of_errors]
    if needing and not columns.has_uncertainty:
        raise InputError(
            f"rule '{needing[0]}' needs to know how uncertain scores are: a column error or sd,"
            " lower and upper, or --samples"
        )
    if columns.score is not None and not needing and DRAWN not in rules:
        # The ends of an interval may be infinite, which is nothing to rules that do not look at them.
        columns = replace(columns, lower=None, upper=None, level=None)
    return columns.read(table)


def _translations(table: Table) -> pl.Series:
    texts = table.column("mt")
    if texts.dtype not in (pl.String, pl.Null):
        raise InputError(f"{table.name}: column '{texts.name}' holds {texts.dtype}, expected text")
    return texts


def _known_columns(given: Mapping[str, Any], table: Table, rules: Sequence[str]) -> dict[str, Any]:
    """Widths and chances that stand in the table already, by the rules that look at them."""
    found: dict[str, Any] = {}
    lower, upper = given["lower"] or "lower", given["upper"] or "upper"
    if "width" in rules and table.has(lower) and table.has(upper):
        found["width"] = _end(table, upper) - _end(table, lower)
    column = f"chance_below_{given['threshold']:g}" if given["threshold"] is not None else ""
    if "chance" in rules and column and table.has(column):
        below = table.numbers(column)
        found["chance"] = below if given["better"] == "higher" else 1 - below
    return found


def _end(table: Table, column: str) -> Floats:
    """One end of intervals: infinite where a calibration had too few rows for it."""
    cells = table.column(column)
    if cells.dtype.is_nested():
        return table.numbers(column)  # which says that it is none
    ends = cells.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
    finite = ~np.isinf(ends)
    ends[finite] = table.take(finite).numbers(column)
    return ends


def _price(given: Mapping[str, Any]) -> Price:
    if given["per_word"] is None and given["per_segment"] is None:
        if given["unit"] not in PRICES:
            raise InputError(f"a budget counts {' or '.join(PRICES)}, found '{given['unit']}'")
        return PRICES[given["unit"]]
    return Price(given["per_segment"] or 0.0, given["per_word"] or 0.0)


def _unit(given: Mapping[str, Any]) -> str:
    return given["unit"] if given["per_word"] is None and given["per_segment"] is None else "cost"


def _sentence(summary: Mapping[str, Any]) -> str:
    how = "drawn" if summary["drawn"] else "chosen"
    spent, every = (f"{summary[key]:,.10g}" for key in ("cost", "cost_of_all"))
    unit = summary["unit"]
    what = {"segments": "", "cost": f"cost {spent} of {every}, "}.get(unit, f"{spent} of {every} {unit}, ")
    share = number(100 * summary["cost"] / summary["cost_of_all"], 1)
    counted = f"{summary['deferred']:,} of {summary['n']:,} segments {how} for people ({summary['rule']})"
    return f"{counted}: {what}{share} % of what all would take"
