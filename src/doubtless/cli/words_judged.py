"""What ``doubtless words evaluate`` prints for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.cli.render import new_console, number
from doubtless.words.agreement import FIGURES, MEAN

_TITLES = {"ap": "AP", "f1": "best F1", "f1_calibrated": "F1, calibrated", "matthews": "best MCC"}


def print_judgement(file: str, found: Mapping[str, Any]) -> None:
    """Print figures, agreement of annotators, correlations with edit counts, differences and thresholds."""
    console = new_console()
    people = f"{len(found['annotators'])} annotators" if len(found["annotators"]) > 1 else "one annotator"
    counts = f": {found['words']:,} words of {found['segments']:,} segments, {people}"
    console.print(Text.assemble((file, "bold"), counts))
    _print_figures(console, found)
    if "layers" in found:
        chosen = [row for row in found["layers"] if row["chosen"]]
        title = "Best layers, by average precision on the calibration words"
        _print_rows(console, title, chosen, ("metric", "column", "ap"))
    if "agreement" in found:
        names: tuple[str, ...] = ("group", "segments", "words", "alpha_words", "alpha_counts")
        _print_rows(console, "Agreement of the annotators (Krippendorff's alpha)", found["agreement"], names)
        names = ("group", "metric", "annotators", "subsets", "median", "low", "high")
        title = "Correlation with the number of annotators who marked a word (Spearman, over subsets)"
        _print_rows(console, title, found["edit_counts"], names)
    if "differences" in found:
        names = ("first", "second", "value", "low", "high", "p", "p_holm", "annotator_share")
        title = f"Differences of {found['differences'][0]['figure']}, segments and annotators drawn again"
        if len(found["annotators"]) == 1:
            title += " (one annotator: what others would say is not in these intervals)"
        _print_rows(console, title, found["differences"], names)
    if "thresholds" in found:
        figures = ("precision", "recall", "missed", "standard_error", "flagged", "segments")
        title = f"Thresholds: {found['thresholds'][0]['promise']}"
        _print_rows(console, title, found["thresholds"], ("metric", "annotator", "threshold", *figures))
    console.print(found["signature"], style="dim", soft_wrap=True)


def _print_figures(console: Console, found: Mapping[str, Any]) -> None:
    rows = [row for row in found["figures"] if row["annotator"] == MEAN]
    groups = found["groups"] if len(found["groups"]) > 1 else []
    table = RichTable(
        "metric", *(_TITLES[name] for name in FIGURES), *(f"AP {group}" for group in groups), box=None
    )
    table.header_style = "dim"
    by_group = {(row["group"], row["metric"]): row for row in rows}
    for row in rows:
        if row["group"] == MEAN:
            own = [by_group.get((group, row["metric"]), {}).get("ap") for group in groups]
            table.add_row(row["metric"], *(number(row[name]) for name in FIGURES), *map(number, own))
    console.print("\nMeans over annotators, then over groups")
    console.print(table)


def _print_rows(
    console: Console, title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> None:
    table = RichTable(*(name.replace("_", " ") for name in names), box=None, header_style="dim")
    for row in rows:
        table.add_row(*(number(row[name]) for name in names))
    console.print(f"\n{title}")
    console.print(table)
