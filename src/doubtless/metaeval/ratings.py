"""From annotations to human scores: MQM errors, ESA spans and scores, ``.rating`` files of the metrics task.

Every reader returns a table with one row a translation: ``lp`` if there is one, ``system``, the columns of
the item, ``human`` (higher is better), ``raters`` and ``errors`` (null where none were read).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.text import segments_of
from doubtless.formats.words import counted, listed, quoted
from doubtless.segments import Table, read

# Freitag et al. 2021. The most specific entry counts: severity/category/subcategory, severity/category, …
MQM_WEIGHTS: Mapping[str, float] = {
    "critical": 10.0,
    "major": 5.0,
    "minor": 1.0,
    "neutral": 0.0,
    "no-error": 0.0,
    "no error": 0.0,
    "hotw-test": 0.0,
    "minor/fluency/punctuation": 0.1,
    "critical/non-translation": 25.0,
    "major/non-translation": 25.0,
    "minor/non-translation": 25.0,
}
# What released tables call their columns.
PAIR = ("lp", "langs")
RATER = ("rater", "annotator")
MQM_ERROR = ("severity", "category")
MQM_LISTS = (("severities", "categories"), ("src_severities", "src_categories"))
ESA_SCORE = ("esa_score", "esa", "score")
ESA_SPANS = ("esa_spans", "error_spans", "spans")


def mqm_weight(severity: str, category: str = "", weights: Mapping[str, float] = MQM_WEIGHTS) -> float | None:
    """The penalty of an error, or None for an unknown severity.

    >>> mqm_weight("Minor", "Fluency/Punctuation"), mqm_weight("Major", "Accuracy/Omission")
    (0.1, 5.0)
    """
    parts = [
        severity.strip().lower(),
        *(part.strip().rstrip("!") for part in category.lower().split("/") if part),
    ]
    while parts:
        if "/".join(parts) in weights:
            return weights["/".join(parts)]
        parts.pop()
    return None


def human_scores(
    path: str | os.PathLike[str],
    item: Sequence[str] = ("seg",),
    *,
    format: str | None = None,
    quotes: bool = True,
) -> Table:
    """Read annotations of any kind, told by the ending or by the columns, and score them.

    Parameters
    ----------
    path
        A ``.rating`` file, or a table: MQM with ``severity`` (one row an error) or ``severities`` (one row a
        rating), ESA with ``esa_score``, ``esa`` or ``score``.
    item
        The columns of a table that say which segment it is.
    format, quotes
        How to read a table, as in :func:`doubtless.segments.read`.
    """
    if Path(path).suffix == ".rating":
        if len(item) != 1:
            raise InputError(f"{named(path)}: segments have numbers here, expected one column of segments")
        scores = mqm_scores(read_ratings(path))
        return replace(scores, frame=scores.frame.rename({"seg": item[0]}))
    # Not the spans: they do not change the score, and released ones mix numbers with words.
    wanted = {*PAIR, *RATER, *ESA_SCORE, *(name for side in (MQM_ERROR, *MQM_LISTS) for name in side)}
    table = read(path, columns={*wanted, "system", *item}, format=format, quotes=quotes)
    mqm = next((name for name in ("severities", "severity") if table.has(name)), None)
    esa = _first_of(table, ESA_SCORE)
    if mqm and esa and esa != "score":  # many tables have a score of something
        raise InputError(
            f"{table.name}: both MQM ({quoted(mqm)}) and ESA ({quoted(esa)}), expected one column of the two"
        )
    if mqm:
        return mqm_scores(table, item)
    if esa:
        return esa_scores(table, item, esa)
    raise InputError(
        f"{table.name}: no annotations, expected a column severity or severities (MQM) or one of"
        f" {', '.join(ESA_SCORE)} (ESA) (its columns: {listed(table.known)})"
    )


def together(parts: Sequence[Table]) -> Table:
    """Scores of several files as one table; of a translation in several of them, the mean over all raters.

    >>> from doubtless.segments import as_table
    >>> row = {"system": "A", "seg": 1, "human": -5.0, "raters": 1, "errors": 1}
    >>> together([as_table([row]), as_table([row | {"human": 0.0, "errors": 0}])]).frame.rows()
    [('A', 1, -2.5, 2, 1)]
    """
    if len(parts) == 1:
        return parts[0]
    for part in parts[1:]:
        if part.frame.columns != parts[0].frame.columns:
            names = (listed(t.frame.columns[:-3]) for t in (part, parts[0]))
            raise InputError(f"{part.name}: ratings by {', but those before by '.join(names)}")
    frame = pl.concat([part.frame for part in parts], how="vertical_relaxed")
    scores = frame.group_by(frame.columns[:-3], maintain_order=True).agg(
        human=(pl.col("human") * pl.col("raters")).sum() / pl.col("raters").sum(),
        raters=pl.col("raters").sum(),
        errors=_total("errors"),
    )
    name = ", ".join(part.name for part in parts)
    return Table(scores, name, np.arange(1, scores.height + 1), has_lines=False)


def mqm_scores(
    table: Table, item: Sequence[str] = ("seg",), weights: Mapping[str, float] = MQM_WEIGHTS
) -> Table:
    """Score MQM annotations: minus the penalties of a rater added up, averaged over raters.

    Parameters
    ----------
    table
        With ``severity`` and ``category``: one row an error (Google's files; an error-free translation has
        one row of severity ``no-error``). With ``severities`` and perhaps ``categories``, lists: one row a
        rating; ``src_severities`` and ``src_categories`` are errors marked in the source. In both,
        ``system``, the columns of the item and perhaps ``rater`` and ``lp``.
    item
        The columns that say which segment it is, for example ``("doc", "seg_id")``.

    Examples
    --------
    >>> from doubtless.segments import as_table
    >>> rows = [{"system": "A", "seg": 1, "rater": "r1", "severity": "Major", "category": "Accuracy"},
    ...         {"system": "A", "seg": 1, "rater": "r2", "severity": "Minor", "category": "Style"}]
    >>> mqm_scores(as_table(rows)).frame.rows()
    [('A', 1, -3.0, 2, 2)]
    """
    lists = table.has("severities")
    sides = [side for side in MQM_LISTS if table.has(side[0])] if lists else [MQM_ERROR]
    penalties, errors = np.zeros(len(table)), np.zeros(len(table), dtype=np.int64)
    for severity, category in sides:
        labels = table.column(category).to_list() if table.has(category) else [None] * len(table)
        for row, (found, kinds) in enumerate(zip(table.column(severity).to_list(), labels, strict=True)):
            names = _listed(table, row, found) if lists else [found]
            own = _listed(table, row, kinds) if lists else [kinds]
            own = own if len(own) == len(names) else [None] * len(names)
            for name, kind in zip(names, own, strict=True):
                worth = mqm_weight(str(name or ""), str(kind or ""), weights)
                if worth is None:
                    raise InputError(f"{table.place(row)}: {quoted(str(name or ''))} is no known severity")
                penalties[row] += worth
                errors[row] += worth > 0
    rater = _first_of(table, RATER)
    keys = _keys(table, item)
    frame = pl.DataFrame(
        [
            *keys,
            (table.column(rater) if rater else pl.Series([""] * len(table)))
            .cast(pl.String)
            .fill_null("")
            .alias("_rater"),
            pl.Series("_penalty", penalties),
            pl.Series("_errors", errors),
        ]
    )
    names = [key.name for key in keys]
    # Rows of one rater and translation are errors to be added up, or repeated ratings to be averaged.
    by_rating = [pl.col("_penalty").mean() if lists else pl.col("_penalty").sum(), pl.col("_errors").sum()]
    ratings = frame.group_by([*names, "_rater"], maintain_order=True).agg(by_rating)
    scores = ratings.group_by(names, maintain_order=True).agg(
        human=-pl.col("_penalty").mean(), raters=pl.len().cast(pl.Int64), errors=pl.col("_errors").sum()
    )
    return Table(scores, table.name, np.arange(1, scores.height + 1), has_lines=False)


def esa_scores(table: Table, item: Sequence[str] = ("seg",), score: str = "score") -> Table:
    """Average the scores of error-span annotation (ESA) over ratings, and count the marked spans.

    Parameters
    ----------
    table
        One row a rating: ``system``, the columns of the item, the score from 0 to 100 (a missing one is left
        out) and, in ``esa_spans``, ``error_spans`` or ``spans``, a list or a JSON list of marked spans.
    """
    keys = _keys(table, item)
    values = table.numbers(score, missing=True)
    outside = (values < 0) | (values > 100)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(f"{table.place(row)}: an ESA score of {values[row]:g}, expected 0 to 100")
    spans = _first_of(table, ESA_SPANS)
    lists = table.column(spans).to_list() if spans else []
    marked = [len(_listed(table, row, value)) for row, value in enumerate(lists)]
    errors = pl.Series("_errors", marked or [None] * len(table), dtype=pl.Int64)
    frame = pl.DataFrame([*keys, pl.Series("_score", values), errors])
    scores = (
        frame.filter(pl.col("_score").is_not_nan())
        .group_by([key.name for key in keys], maintain_order=True)
        .agg(human=pl.col("_score").mean(), raters=pl.len().cast(pl.Int64), errors=_total("_errors"))
    )
    if not scores.height:
        raise InputError(f"{table.name}: no row has a number in column {quoted(score)}")
    return Table(scores, table.name, np.arange(1, scores.height + 1), has_lines=False)


def _total(column: str) -> pl.Expr:
    """The sum, null where nothing is known."""
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum())


def _first_of(table: Table, names: Sequence[str]) -> str | None:
    return next((name for name in names if table.has(name)), None)


def _listed(table: Table, row: int, value: Any) -> list[Any]:
    """A cell that holds a list, in text formats a JSON list; nothing is an empty one."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except ValueError:
            value = 0
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise InputError(f"{table.place(row)}: expected a list of errors")


def _keys(table: Table, item: Sequence[str]) -> list[pl.Series]:
    """The columns that say which translation a row belongs to."""
    pair = _first_of(table, PAIR)
    keys = [table.column(pair).alias("lp")] if pair else []
    return keys + [table.column(name).alias(name) for name in ("system", *item)]


def read_ratings(path: str | os.PathLike[str]) -> Table:
    """Read a ``.seg.rating`` file: a system, its errors as JSON (or ``None``) and perhaps the rater, by tabs.

    Returns a table for :func:`mqm_scores`: ``system seg rater severities categories starts ends``, and ``lp``
    where the file is named as in the metrics task, ``PAIR.NAME.seg.rating``. Unrated segments have no row;
    ``seg`` counts from 0 within each system.
    """
    name = named(path)
    with opened(path, name) as stream:
        lines = segments_of(stream, name)
    parts = Path(path).name.split(".")
    pair = {"lp": parts[0]} if len(parts) >= 4 and "-" in parts[0] else {}
    rows: list[dict[str, object]] = []
    places: list[int] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise InputError(f"{name}:{number}: {counted(len(cells), 'field')}, expected 2 or 3")
        segment = seen.get(cells[0], 0)
        seen[cells[0]] = segment + 1
        if cells[1] == "None":
            continue
        try:
            errors = json.loads(cells[1])["errors"]
            rows.append(
                {
                    **pair,
                    "system": cells[0],
                    "seg": segment,
                    "rater": cells[2] if len(cells) == 3 else "",
                    "severities": [str(error.get("severity") or "") for error in errors],
                    "categories": [str(error.get("category") or "") for error in errors],
                    "starts": [int(error["start"]) for error in errors],
                    "ends": [int(error["end"]) for error in errors],
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{name}:{number}: the rating is no JSON object with errors") from None
        places.append(number)
    if not rows:
        raise InputError(f"{name}: the file holds no ratings")
    kinds = {"severities": pl.List(pl.String), "categories": pl.List(pl.String)}
    return Table(pl.DataFrame(rows, schema_overrides=kinds), name, np.array(places))
