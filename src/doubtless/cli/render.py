"""What a verb prints: tables for people, TSV for pipes, JSON for programs, warnings on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.conformal.calibrate import Applied
from doubtless.conformal.grouped import FittedGrouped
from doubtless.conformal.store import Calibration
from doubtless.reproduce import Rows, Study
from doubtless.segments import Table, render

_BAR = 28


def _console() -> Console:
    # In a pipe rich assumes 80 columns and would cut the tables.
    return Console(width=None if sys.stdout.isatty() else 118, highlight=False)


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
        table.add_row(f"[bold]{name}[/]", meaning)
    _console().print(table)


def number(value: Any, digits: int = 3) -> str:
    """Write a number for people: ``-`` for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        if math.isinf(value):
            return "∞"
        return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_calibration(calibration: Calibration, output: str) -> None:
    """Say what was calibrated and where it went."""
    fitted = calibration.fitted
    console = _console()
    console.print(f"[bold]{output}[/]  {calibration.signature}", soft_wrap=True)
    if isinstance(fitted, FittedGrouped):
        table = RichTable("group", "rows", "factor", box=None, header_style="dim")
        for name, n, factor in zip(fitted.cells.names, fitted.counts, fitted.factors, strict=True):
            table.add_row(name, number(n), number(factor))
        console.print(table)
    elif hasattr(fitted, "factor"):
        console.print(f"{fitted.n} rows; forecasts are widened by {number(fitted.factor)}")


def print_intervals(
    applied: Applied, calibration: Calibration, source: Table, human: str | None, prefix: str, most: int
) -> None:
    """Print intervals as little drawings, with the human score where it is known."""
    frame = applied.frame.head(most)
    score, lower, upper = (frame[name].to_numpy() for name in _interval_columns(applied.frame, prefix))
    truth = None if human is None else source.numbers(human, missing=True)[: len(frame)]
    low, high = _drawn_range(score, lower, upper, truth)
    console = _console()
    chances = [name for name in frame.columns if name.startswith(f"{prefix}chance_below_")]
    table = RichTable(box=None, header_style="dim", pad_edge=False)
    labels = [name for name in ("lp", "system") if source.has(name)]
    for name in labels:
        table.add_column(name, no_wrap=True)
    if source.has("mt"):
        # What the other columns leave, so that none of them is squeezed out by long translations.
        room = console.width - _BAR - 9 * (len(labels) + len(chances) + 3) - 2
        table.add_column("translation", no_wrap=True, overflow="ellipsis", max_width=max(room, 16))
    table.add_column("score", justify="right")
    table.add_column(f"interval ({number(low, 1)} … {number(high, 1)})", no_wrap=True, width=_BAR)
    for name in chances:
        table.add_column(f"P(<{name.rsplit('_', 1)[1]})", justify="right")
    if truth is not None:
        table.add_column("human", justify="right")
    table.add_column("", no_wrap=True)
    for i in range(len(frame)):
        cells: list[Any] = [str(source.column(name)[i]) for name in labels]
        if source.has("mt"):
            cells.append(Text(str(source.column("mt")[i])))
        y = None if truth is None or math.isnan(truth[i]) else float(truth[i])
        cells += [number(float(score[i]), 2), _bar(score[i], lower[i], upper[i], y, low, high)]
        cells += [number(frame[name][i], 2) for name in chances]
        if truth is not None:
            outside = y is not None and not lower[i] <= y <= upper[i]
            cells.append(Text(number(y, 1), style="bold red" if outside else ""))
        cells.append(frame[f"{prefix}flags"][i])
        table.add_row(*cells)
    console.print(table)
    if applied.frame.height > most:
        console.print(f"[dim]… and {applied.frame.height - most} more rows (-o FILE keeps them all)[/]")
    promise = f"{1 - calibration.fitted.alpha:.0%} intervals, mean width {number(applied.width, 2)}"
    seen = f"; {applied.coverage:.0%} of the human scores lie inside" if applied.coverage is not None else ""
    console.print(f"[bold]{promise}[/]{seen}")
    console.print(f"[dim]{calibration.signature}[/]", soft_wrap=True)


def _interval_columns(frame: pl.DataFrame, prefix: str) -> tuple[str, str, str]:
    score = f"{prefix}score" if f"{prefix}score" in frame.columns else "score"
    return score, f"{prefix}lower", f"{prefix}upper"


def _drawn_range(*arrays: np.ndarray | None) -> tuple[float, float]:
    values = np.concatenate([np.asarray(a, dtype=float) for a in arrays if a is not None])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(score: float, lower: float, upper: float, y: float | None, low: float, high: float) -> Text:
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
    if y is not None:
        at = place(y)
        bar = Text.assemble(bar[:at], ("◆", "green" if lower <= y <= upper else "bold red"), bar[at + 1 :])
    return bar


def print_evaluation(figures: Mapping[str, Any], file: str, by: str | None, bins: str | None) -> None:
    """Print the figures of an evaluation as tables."""
    console = _console()
    alpha = figures["alpha"]
    console.print(
        f"[bold]{file}[/]: {figures['n']:,} rows with human scores, {figures['splits']} random splits"
    )
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
    console.print(f"\nPromised coverage: [bold]{1 - alpha:.3f}[/]")
    console.print(table)
    if "groups" in figures:
        rows = [{"name": name, **row} for name, row in figures["groups"].items()]
        _print_conditional(console, f"Coverage by {by}", rows, alpha)
    if "bins" in figures:
        _print_conditional(console, f"Coverage by {bins}", figures["bins"], alpha)
    notes = {
        "floored": "rows claim no uncertainty and got the smallest spread",
        "crossings": "rows had crossing quantiles, which were sorted",
        "without_human": "rows without a human score were left out",
    }
    for name, meaning in notes.items():
        if figures.get(name):
            console.print(f"[dim]{figures[name]:,} {meaning}[/]")


def _print_conditional(console: Console, title: str, rows: list[dict[str, Any]], alpha: float) -> None:
    methods = [name for name in ("raw", "ece", "conformal", "grouped", "binned") if name in rows[0]]
    table = RichTable("", "rows", *methods, "expected by chance", box=None, header_style="dim")
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
    console = _console()
    console.print(f"[bold]{study.name}[/]  {study.title}")
    console.print(table)
