"""``evaluate --ratings``: annotations of errors become the human scores of a table or of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from doubtless.cli import options as o
from doubtless.cli.render import warn
from doubtless.errors import InputError
from doubtless.formats.words import quoted
from doubtless.metaeval.rated import beside_rows, columns_of_items
from doubtless.metaeval.ratings import human_scores, together
from doubtless.segments import Table


def read_annotations(given: Mapping[str, Any], item: Sequence[str]) -> Table:
    """Read and score all files of ratings."""
    quotes = given["quotes"] == "csv"
    return together([human_scores(path, item, quotes=quotes) for path in given["ratings"]])


def with_ratings(table: Table, given: Mapping[str, Any]) -> Table:
    """Add the human scores that ratings make, if there are ratings, under the name that --human gives."""
    if not given["ratings"]:
        return table
    name = given["human"].removeprefix("-")
    if table.has(name):
        raise InputError(
            f"{table.name}: there is a column {quoted(name)} already, name the scores of --ratings by --human"
        )
    item = columns_of_items(o.names(given["item"]))
    scores = read_annotations(given, list(item.values()))
    found = beside_rows(table, scores, system=given["system_column"], item=item)
    if found.unused:
        warn(
            f"{scores.name}: {found.unused:,} of {found.rated:,} rated translations are not in {table.name},"
            f" the first is {quoted(found.example)}"
        )
    return replace(table, frame=table.frame.with_columns(pl.Series(name, found.human)))
