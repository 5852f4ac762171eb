"""Human scores made of annotations, put beside the rows of a table or the segments of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.words import bare, counted, listed, quoted
from doubtless.metaeval.pairs import Floats
from doubtless.segments import Table

_MOST_SEGMENTS = 10**9


@dataclass(frozen=True)
class Rated:
    """Human scores by row.

    Parameters
    ----------
    human
        One number a row of the table, NaN where nobody rated it.
    rated
        Translations with ratings.
    unused
        How many of them are not in the table.
    example
        The first of these.
    """

    human: Floats
    rated: int
    unused: int
    example: str


def beside_rows(
    table: Table, scores: Table, *, system: str = "system", item: Mapping[str, str] | None = None
) -> Rated:
    """Find the human score of each row of a table.

    Parameters
    ----------
    table
        One row a translation.
    scores
        What :func:`doubtless.metaeval.ratings.human_scores` returned.
    system
        The table's column of systems.
    item
        The columns that say which segment a row is: in the table, and what they are called in the ratings;
        by default ``seg`` in both.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> rows = as_table([{"system": "A", "seg": 1}, {"system": "B", "seg": 1}])
    >>> rating = {"system": "B", "seg": 1.0, "human": -5.0}
    >>> beside_rows(rows, as_table([rating, rating | {"system": "C"}]))
    Rated(human=array([nan, -5.]), rated=2, unused=1, example='C 1')
    """
    names = {system: "system", **(item or {"seg": "seg"})}
    if _by_pair(table, scores):
        names = {"lp": "lp", **names}
    for name in names:
        table.labels([name])  # what is empty here has a line to be named by
    own = pl.DataFrame([_label(table.column(mine)).alias(theirs) for mine, theirs in names.items()])
    keys = list(names.values())
    rated = scores.frame.select(_label(scores.column(key)).alias(key) for key in keys)
    rated = rated.with_columns(_human=scores.column("human"))
    found = own.join(rated, on=keys, how="left", maintain_order="left")["_human"]
    unused = rated.join(own, on=keys, how="anti", maintain_order="left").fill_null("?")
    example = " ".join(unused.row(0)[:-1]) if unused.height else ""
    if unused.height == rated.height:
        raise InputError(
            f"{scores.name}: no rating belongs to a row of {table.name}: the ratings speak of"
            f" {quoted(example)}, the table of {quoted(' '.join(own.row(0)))}"
        )
    return Rated(found.fill_null(np.nan).to_numpy(), rated.height, unused.height, example)


def _by_pair(table: Table, scores: Table) -> bool:
    """Whether rows are told apart by language pair, too; one side without pairs allows one pair only."""
    if table.has("lp") and scores.has("lp"):
        return True
    for one, other in ((table, scores), (scores, table)):
        if one.has("lp") and one.column("lp").n_unique() > 1:
            pairs = counted(one.column("lp").n_unique(), "language pair")
            raise InputError(f"{other.name}: no column 'lp', but {one.name} has {pairs}")
    return False


def _label(series: pl.Series) -> pl.Series:
    """Text to compare: a whole number is the same whether it was stored as a whole number or not."""
    if series.dtype.is_float() and not (series.drop_nulls() % 1 != 0).any():
        series = series.cast(pl.Int64)
    return series.cast(pl.String)


def by_segment(
    scores: Table, pair: str, count: int, *, item: str = "seg", first: int | None = None
) -> dict[str, Floats]:
    """Human scores of a language pair in the order of its segments, by system; NaN where nobody rated.

    Parameters
    ----------
    scores
        What :func:`doubtless.metaeval.ratings.human_scores` returned.
    pair, count
        The language pair, and how many segments it has.
    item
        The column with the number of the segment.
    first
        The number of the first segment, 0 or 1; None: told by whether number 0 or the largest one occurs.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> by_segment(as_table([{"system": "A", "seg": 3, "human": -5.0}]), "en-de", 3)
    {'A': array([nan, nan, -5.])}
    """
    frame = scores.frame
    if scores.has("lp"):
        known = frame["lp"].cast(pl.String)
        if not (known == pair).any():
            pairs = listed(sorted(known.drop_nulls().unique()))
            raise InputError(f"{scores.name}: no ratings of {bare(pair)} (there are: {pairs})")
        scores = scores.take((known == pair).fill_null(False).to_numpy())
        frame = scores.frame
    numbers = scores.numbers(item, missing=True)
    place = numbers[~np.isnan(numbers)]
    if (place % 1 != 0).any() or (np.abs(place) > _MOST_SEGMENTS).any():
        raise InputError(f"{scores.name}: column {quoted(item)} holds no numbers of segments")
    if first is None:
        first = _first_number(scores.name, place, pair, count)
    outside = place[(place < first) | (place >= first + count)]
    if len(outside):
        raise InputError(
            f"{scores.name}: a rating of segment {int(outside[0])}, but {bare(pair)} has {count}, counted"
            f" from {first}"
        )
    found: dict[str, Floats] = {}
    rows = zip(frame["system"].cast(pl.String), numbers, frame["human"], strict=True)
    for system, number, human in rows:
        if system is not None and not np.isnan(number):
            found.setdefault(system, np.full(count, np.nan))[int(number) - first] = human
    return found


def _first_number(name: str, place: Floats, pair: str, count: int) -> int:
    if (place == 0).any():
        return 0
    if (place == count).any():
        return 1
    raise InputError(
        f"{name}: are the {count} segments of {bare(pair)} counted from 0 or from 1?"
        " choose by --first-segment"
    )


def columns_of_items(names: Sequence[str]) -> dict[str, str]:
    """Read ``COLUMN`` and ``COLUMN=COLUMN_OF_THE_RATINGS``.

    >>> columns_of_items(["doc", "seg=line_id"])
    {'doc': 'doc', 'seg': 'line_id'}
    """
    pairs = (name.partition("=") for name in names)
    return {mine: theirs if equals else mine for mine, equals, theirs in pairs}
