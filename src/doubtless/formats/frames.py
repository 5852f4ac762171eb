"""Data that is in memory already: pandas frames and lists of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import polars as pl

from doubtless.errors import InputError
from doubtless.formats.guard import refused
from doubtless.formats.kinds import KindError, column, joined
from doubtless.formats.words import quoted


def from_rows(rows: Sequence[Mapping[str, Any]], name: str) -> pl.DataFrame:
    """Convert a list of dicts; a key that some dicts lack is missing there."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return pl.DataFrame({key: _column(key, [row.get(key) for row in rows], name) for key in keys})


def from_pandas(data: Any, name: str) -> pl.DataFrame:
    """Convert a pandas frame column by column: Polars itself would need pyarrow."""
    columns: dict[str, pl.Series] = {}
    for position, key in enumerate(map(str, data.columns)):
        if key in columns:
            raise InputError(f"{name}: two columns have the name {quoted(key)}")
        cells = data.iloc[:, position]
        # What pandas calls missing (NaN, NaT, NA, None) is null, also in a column of texts.
        items = [None if gone else item for item, gone in zip(cells, cells.isna(), strict=True)]
        columns[key] = _column(key, items, name)
    return pl.DataFrame(columns)


def _column(key: Any, items: Sequence[Any], name: str) -> pl.Series:
    with refused(f"{name}: column {quoted(str(key))} cannot be used"):
        values = [_plain(item) for item in items]
        try:
            return column(key, values, reduce(joined, values, pl.Null))
        except (KindError, TypeError):  # a mixture, or things like dates, which may not even be needed
            return pl.Series(key, values, strict=False)


def _plain(item: Any) -> Any:
    """Return numbers and arrays of NumPy, tensors, and tuples as what JSON could hold."""
    if hasattr(item, "tolist"):
        return item.tolist()
    if isinstance(item, tuple):
        return list(item)
    return float(item) if isinstance(item, int) and item.bit_length() > 63 else item
