"""What a comparison of metrics prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.cli.render import new_console, number, print_json
from doubtless.formats.words import counted
from doubtless.metaeval.compare import Comparison
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.presets import Overall


def show_comparisons(
    file: str,
    grids: Sequence[Grid],
    found: Sequence[Comparison],
    doubt: Mapping[str, Any],
    signatures: Sequence[str],
) -> None:
    """Print all metrics in one table, then each figure with its intervals and its signature."""
    console = new_console()
    rated = sum(int((~np.isnan(grid.human)).sum()) for grid in grids)
    missing = sum(grid.missing for grid in grids)
    pairs = counted(len(grids), "language pair")
    counts = f": {rated:,} translations with human scores ({missing:,} without), {pairs}"
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
    return _figure(standing.value) + (f" ({standing.rank})" if standing.rank else "")


def _figure(value: float) -> str:
    """A figure that is not defined is not the same as none."""
    return "NaN" if np.isnan(value) else number(value)


def _show_comparison(console: Any, comparison: Comparison) -> None:
    pairs = list(comparison.standings[0].by_pair)
    table = RichTable("rank", "metric", "figure", "95 % interval", "undefined", *pairs, box=None)
    table.header_style = "dim"
    for s in comparison.standings:
        undefined = sum(f.undefined for f in s.by_pair.values())
        ends = f"{number(s.low)} … {number(s.high)}" if not np.isnan(s.low) else "-"
        figures = [_figure(s.by_pair[pair].value) for pair in pairs]
        table.add_row(number(s.rank), s.metric, _figure(s.value), ends, number(undefined), *figures)
    console.print(Text.assemble("\n", (str(comparison.statistic), "bold")))
    console.print(table)
    console.print(comparison.signature, style="dim", soft_wrap=True)


def show_overall(
    overall: Overall, doubt: Mapping[str, Any], signatures: Sequence[str], as_json: bool
) -> None:
    """Print what the tasks of a year make together, as a table or as JSON."""
    tasks = [{"task": str(task), "weight": task.weight, **found.as_json()} for task, found in overall.tasks]
    if as_json:
        whole = [{"metric": m, "value": v, "rank": overall.ranks.get(m)} for m, v in overall.values.items()]
        print_json(
            {
                "overall": whole,
                "tasks": tasks,
                "doubt": doubt,
                "signature": overall.signature,
                "metrics": signatures,
            }
        )
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
    for line in signatures:
        console.print(line, style="dim", soft_wrap=True)
