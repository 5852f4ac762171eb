"""What a verb prints: tables for people, TSV for pipes, JSON for programs, warnings on standard error."""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.conformal.calibrate import Applied
from doubtless.conformal.ece import FittedEce
from doubtless.conformal.grouped import FittedGrouped
from doubtless.conformal.split import FittedSplit, smallest_calibration
from doubtless.conformal.store import Calibration
from doubtless.reproduce import Rows, Study
from doubtless.segments import Table, render

_BAR = 28
_LABEL = 24


def new_console() -> Console:
    """Where tables for people go."""
    # In a pipe rich assumes 80 columns and would cut the tables.
    # Names from data may look like markup: none is read, styles are given as such.
    return Console(width=None if sys.stdout.isatty() else 118, highlight=False, markup=False)


def wants_pretty(wish: bool | None) -> bool:
    """Whether to print for people: as wished, else on a terminal."""
    return sys.stdout.isatty() if wish is None else wish


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    print(f"doubtless: warning: {sentence}", file=sys.stderr)


def print_json(data: Any) -> None:
    """Print one JSON value; numbers that JSON does not know (NaN, infinity) become null."""
    print(json.dumps(_plain(data), ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(frame: pl.DataFrame) -> None:
    """Print a table as TSV."""
    sys.stdout.flush()
    sys.stdout.buffer.write(render(frame, "tsv"))
    sys.stdout.buffer.flush()


def print_list(items: Iterable[tuple[str, str]]) -> None:
    """Print names and what they mean."""
    table = RichTable(box=None, show_header=False, pad_edge=False)
    for name, meaning in items:
        table.add_row(Text(name, style="bold"), meaning)
    new_console().print(table)


def number(value: Any, digits: int = 3) -> str:
    """Write a number for people: ``-`` for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        if math.isinf(value):
            return "∞"
        # Adding 0 makes a zero of a negative one.
        return f"{round(value, digits) + 0:.{digits}f}" if abs(value) < 1e5 else f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_calibration(calibration: Calibration, output: str) -> None:
    """Say what was calibrated and where it went."""
    console = new_console()
    console.print(Text.assemble((output, "bold"), f"  {calibration.signature}"), soft_wrap=True)
    if isinstance(calibration.fitted, FittedGrouped):
        table = RichTable("group", "rows", "factor", "", box=None, header_style="dim")
        for name, n, factor, by_policy in calibration.fitted.describe():
            table.add_row(name, number(n), number(factor), calibration.fitted.small if by_policy else "")
        console.print(table)
    else:
        console.print(f"{calibration.fitted.n} rows; {_what_happens(calibration)}")


def _what_happens(calibration: Calibration) -> str:
    fitted = calibration.fitted
    if isinstance(fitted, FittedEce):
        return f"variances become {number(fitted.scale)} times as large, plus {number(fitted.offset)}"
    if not isinstance(fitted, FittedSplit):
        return "every new row gets a factor of its own, by its weight"
    if math.isinf(fitted.factor):
        needed = smallest_calibration(fitted.alpha)
        return f"too few: alpha {fitted.alpha} needs {needed}, intervals are unbounded"
    if calibration.reading.columns.has_uncertainty:
        return f"spreads are multiplied by {number(fitted.factor)}"
    return f"intervals reach {number(fitted.factor)} either way"


def print_intervals(
    applied: Applied, calibration: Calibration, source: Table, human: str | None, prefix: str, most: int
) -> None:
    """Print intervals as little drawings, with the human score where it is known."""
    console = new_console()
    shown = min(most, len(source))
    truth = None if human is None else source.numbers(human, missing=True)[:shown]
    found = applied.intervals
    score, lower, upper = (values[:shown] for values in (applied.score, found.lower, found.upper))
    heading, bars = interval_bars(score, lower, upper, truth)
    columns: dict[str, list[Any]] = {"score": [number(float(x), 2) for x in score], heading: bars}
    if truth is not None:
        columns["human"] = [_human(*row) for row in zip(truth.tolist(), lower, upper, strict=True)]
    columns |= _chances_and_flags(applied, prefix, shown)
    texts = [Text(one_line(x)) for x in source.column("mt").head(shown)] if source.has("mt") else None
    print_segments(console, row_labels(source, shown), texts, columns, len(source))
    promise = f"{100 * (1 - calibration.fitted.alpha):g}% intervals, mean width {number(applied.width, 2)}"
    seen = f"; {applied.coverage:.1%} of the human scores lie inside" if applied.coverage is not None else ""
    console.print(Text.assemble((promise, "bold"), seen))
    console.print(calibration.signature, style="dim", soft_wrap=True)


def row_labels(source: Table, shown: int) -> dict[str, list[Any]]:
    """What tells rows apart: their language pair and system, where these are known."""
    return {
        name: [_end_of(one_line(x)) for x in source.column(name).head(shown)]
        for name in ("lp", "system")
        if source.has(name)
    }


def _end_of(label: str) -> str:
    """What distinguishes a long label, such as a path, is its end."""
    return label if len(label) <= _LABEL else f"…{label[1 - _LABEL :]}"


def one_line(value: Any) -> str:
    """A cell as a text of the same length without anything that would break its line."""
    text = "" if value is None else str(value)
    return "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)


def print_segments(
    console: Console,
    labels: dict[str, list[Any]],
    texts: list[Text] | None,
    columns: dict[str, list[Any]],
    total: int,
) -> None:
    """Print segments as a table: labels, as much of the translations as there is room for, other columns."""
    shown = len(next(iter(columns.values())))
    if texts is not None:
        # What the other columns leave, so that none of them is squeezed out by long translations.
        taken = sum(_width(name, cells) for name, cells in (labels | columns).items())
        for text in texts:
            text.truncate(max(console.width - taken - 2, 12), overflow="ellipsis")
        labels = labels | {"translation": texts}
    table = RichTable(box=None, header_style="dim", pad_edge=False)
    for name in labels | columns:
        right = name in ("score", "human", "layer") or name.startswith("P(")
        table.add_column(name, no_wrap=True, justify="right" if right else "left")
    for i in range(shown):
        table.add_row(*(cells[i] for cells in (labels | columns).values()))
    console.print(table)
    if total > shown:
        console.print(f"… and {total - shown} more rows (-o FILE keeps them all)", style="dim")


def _width(name: str, cells: list[Any]) -> int:
    return max(cell_len(str(cell)) for cell in [name, *cells]) + 2


def _human(y: float, lower: float, upper: float) -> Text:
    outside = y < lower or y > upper
    return Text(number(y, 1), style="bold red" if outside else "")


def _chances_and_flags(applied: Applied, prefix: str, shown: int) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for name in applied.frame.columns:
        if name.startswith(f"{prefix}chance_below_"):
            columns[f"P(<{name.rsplit('_', 1)[1]})"] = [number(x, 2) for x in applied.frame[name].head(shown)]
    flags = applied.frame[f"{prefix}flags"].head(shown).to_list()
    return columns | {"flags": flags} if any(flags) else columns


def interval_bars(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray, truth: np.ndarray | None = None
) -> tuple[str, list[Text]]:
    """Draw intervals on one scale, which the heading tells; the human score, where it is known, inside."""
    low, high = _drawn_range(score, lower, upper, truth)
    ys = np.full(len(score), np.nan) if truth is None else truth
    bars = [_bar(*row, low, high) for row in zip(score, lower, upper, ys.tolist(), strict=True)]
    return f"interval ({number(low, 1)} … {number(high, 1)})", bars


def _drawn_range(*arrays: np.ndarray | None) -> tuple[float, float]:
    values = np.concatenate([np.asarray(a, dtype=float) for a in arrays if a is not None])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(score: float, lower: float, upper: float, y: float, low: float, high: float) -> Text:
    """Draw ``├──●───┤``, the human score as a diamond."""

    def place(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (_BAR - 1))

    first, last = place(lower), place(upper)
    cells = ["·"] * _BAR
    cells[first : last + 1] = ["─"] * (last + 1 - first)
    cells[first] = "├" if math.isfinite(lower) else "←"
    cells[last] = "┤" if math.isfinite(upper) else "→"
    cells[place(score)] = "●"
    bar = Text("".join(cells), style="dim")
    bar.stylize("cyan", first, last + 1)
    if not math.isnan(y):
        at = place(y)
        bar = Text.assemble(bar[:at], ("◆", "green" if lower <= y <= upper else "bold red"), bar[at + 1 :])
    return bar


def print_evaluation(figures: Mapping[str, Any], file: str, by: str | None, bins: str | None) -> None:
    """Print the figures of an evaluation as tables."""
    console = new_console()
    alpha = figures["alpha"]
    counts = f": {figures['n']:,} rows with human scores, {figures['splits']} random splits"
    console.print(Text.assemble((file, "bold"), counts))
    names = ("pearson", "spearman", "kendall", "mae", "ups", "ece", "nlpd", "sharpness")
    table = RichTable(*(name for name in names if name in figures), box=None, header_style="dim")
    table.add_row(*(number(figures[name]) for name in names if name in figures))
    console.print(table)
    table = RichTable("intervals", "coverage", "± between splits", "mean width", "factor q", box=None)
    table.header_style = "dim"
    for method, found in figures["methods"].items():
        share = Text(number(found["coverage"]), style=_colour(found["coverage"], alpha))
        table.add_row(
            method, share, number(found["coverage_sd"]), number(found["width"]), number(found.get("q"))
        )
    console.print(Text.assemble("\nPromised coverage: ", (f"{1 - alpha:.3f}", "bold")))
    console.print(table)
    if "groups" in figures:
        rows = [{"name": name, **row} for name, row in figures["groups"].items()]
        _print_conditional(console, f"Coverage by {by}", rows, alpha)
    if "bins" in figures:
        _print_conditional(console, f"Coverage by {bins}", figures["bins"], alpha)
    notes = {
        "floored": "rows claim no uncertainty and got the smallest spread (--floor)",
        "crossings": "rows had crossing quantiles, which were sorted",
        "without_human": "rows without a human score were left out",
    }
    for name, meaning in notes.items():
        if figures.get(name):
            console.print(f"{figures[name]:,} {meaning}", style="dim")


def _print_conditional(console: Console, title: str, rows: list[dict[str, Any]], alpha: float) -> None:
    methods = [name for name in ("raw", "ece", "conformal", "grouped", "binned") if name in rows[0]]
    table = RichTable("", "rows", *methods, "expected of one split", box=None, header_style="dim")
    for row in rows:
        cells = [Text(number(row[m]), style=_colour(row[m], alpha)) for m in methods]
        low, high = row["expected"]
        table.add_row(row["name"], number(row["n"]), *cells, f"{low:.3f} … {high:.3f}")
    console.print(f"\n{title}")
    console.print(table)


def _colour(coverage: float | None, alpha: float) -> str:
    if coverage is None:
        return "dim"
    gap = 1 - alpha - coverage
    return "red" if gap > 0.1 else "yellow" if gap > 0.02 else "green"


def print_reproduction(study: Study, rows: Rows) -> None:
    """Print a study's rows, ours beside the paper's."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    table = RichTable(*(name.replace("paper_", "paper: ") for name in names), box=None, header_style="dim")
    for row in rows:
        table.add_row(*(number(row[name]) for name in names))
    console = new_console()
    console.print(Text.assemble((study.name, "bold"), f"  {study.title}"))
    console.print(table)
