"""Deferral for people: curves over budgets, and means of systems from human and metric scores together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text

from doubtless.cli.render import new_console, number
from doubtless.decide.mixed import Mixed
from doubtless.systems import SystemTable

_HEIGHT, _WIDTH = 14, 61
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def print_curves(rows: Sequence[dict[str, Any]], unit: str, pairs: int) -> None:
    """Print Spearman correlations by rule and budget, and draw them."""
    console = new_console()
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    shares = list(dict.fromkeys(row["share"] for row in rows))
    values = np.array([row["spearman"] for row in rows]).reshape(len(rules), len(shares))
    said = f"system-level Spearman against the share of {unit} that people score"
    console.print(Text.assemble((said, "bold"), f" (mean over {pairs} language pairs)" if pairs > 1 else ""))
    table = RichTable("", "", *(f"{share:.0%}" for share in shares), box=None, header_style="dim")
    for letter, rule, line in zip(_LETTERS, rules, values, strict=False):
        table.add_row(letter, Text(rule, style="bold"), *(number(float(value)) for value in line))
    console.print(table)
    console.print("\n".join(plot(values, shares)))
    gains = [row for row in rows if row["share"] in (0.2, 0.4) and "gain" in row]
    for row in gains:
        if not np.isnan(row["gain_lower"]):
            ends = f"{number(row['gain_lower'])} … {number(row['gain_upper'])}"
            text = f"{row['rule']} at {row['share']:.0%}: {number(row['gain'])} against random (95%: {ends})"
            console.print(text, style="dim")


def plot(values: np.ndarray, shares: Sequence[float]) -> list[str]:
    """Draw lines as letters, one letter a row of values; a star where several meet.

    >>> plot(np.array([[0.0, 1.0]]), [0, 1])[0].rstrip()[-1]
    'a'
    """
    low, high = float(values.min()), float(values.max())
    span = high - low or 1.0
    cells = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    at = np.linspace(shares[0], shares[-1], _WIDTH)
    for letter, line in zip(_LETTERS, values, strict=False):
        for column, value in enumerate(np.interp(at, shares, line)):
            row = _HEIGHT - 1 - round((value - low) / span * (_HEIGHT - 1))
            cells[row][column] = letter if cells[row][column] == " " else "*"
    edge = {0: number(high), _HEIGHT - 1: number(low)}
    lines = [f"{edge.get(row, ''):>7} │{''.join(line)}" for row, line in enumerate(cells)]
    foot = f"{shares[0]:.0%}".ljust(_WIDTH - 4) + f"{shares[-1]:.0%}"
    return [*lines, " " * 8 + "└" + "─" * _WIDTH, " " * 9 + foot]


def mixed_rows(lp: str | None, made: Mixed) -> list[dict[str, Any]]:
    """One row a system, the best mean first, for programs."""
    rows = SystemTable(lp, made.names, made.found).rows()
    for row, i in zip(rows, made.found.order, strict=True):
        row |= {"scored": int(made.scored[i]), "standard_error": float(made.error[i]), "slope": made.slope}
    return rows


def print_mixed(found: Sequence[tuple[str | None, Mixed]]) -> None:
    """Print the systems of each language pair with their means, intervals and ranks."""
    from doubtless.cli.score_view import print_systems

    console = new_console()
    for lp, made in found:
        print_systems(console, SystemTable(lp, made.names, made.found))
        scored = f"people scored {int(made.scored.sum()):,} of {int(made.found.n.sum()):,} segments"
        console.print(f"{scored}; a point of the metric counts {number(made.slope, 2)}", style="dim")
    note = (
        "means that people would have given to all segments, with 95% intervals: regression estimator, each"
        " drawn segment weighted by its chance; * p < 0.05, Holm's correction"
    )
    console.print(note, style="dim")
