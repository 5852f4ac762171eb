"""Numbers, lists of numbers and truth values that stand in text cells."""

from __future__ import annotations

import polars as pl

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_LIST = rf"^\s*\[\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*\]\s*$"


def numbers(cells: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Read decimal numbers; spaces around them do not count.

    Returns
    -------
    values, absent, wrong
        The numbers, which cells are empty, and which hold something else. ``nan`` and ``inf`` are numbers
        here; ``0x10``, ``1_000`` and ``true`` are not.
    """
    stripped = cells.str.strip_chars()
    absent = (stripped == "").fill_null(True)
    values = stripped.cast(pl.Float64, strict=False)
    return values, absent, values.is_null() & ~absent


def number_lists(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Read JSON lists of numbers; also return which cells hold something else."""
    wrong = ~cells.str.contains(_LIST).fill_null(False)
    inner = cells.str.strip_chars().str.strip_chars("[]").str.strip_chars()
    items = inner.replace("", None).str.split(",")
    lists = items.list.eval(pl.element().str.strip_chars().cast(pl.Float64, strict=False))
    return lists, wrong


def typed(series: pl.Series) -> pl.Series:
    """Return a column as numbers or truth values if its cells hold nothing else; an empty cell is missing."""
    if series.dtype != pl.String:
        return series
    values, absent, wrong = numbers(series)
    if not wrong.any():
        return values
    lowered = series.str.strip_chars().str.to_lowercase()
    if (lowered.is_in(["true", "false"]) | absent).all():
        return (lowered == "true").set(absent, None)
    return series
