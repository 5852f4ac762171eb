"""From annotations to human scores: MQM errors, ESA spans and scores, ``.rating`` files of the metrics task.

Every reader returns a table with one row a translation: ``lp`` if there is one, ``system``, the columns of
the item, ``human`` (higher is better), ``raters`` and ``errors``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.text import segments_of
from doubtless.formats.words import counted, quoted
from doubtless.segments import Table

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


def mqm_scores(
    table: Table, item: Sequence[str] = ("seg",), weights: Mapping[str, float] = MQM_WEIGHTS
) -> Table:
    """Score MQM annotations: minus the penalties of a rater added up, averaged over raters.

    Parameters
    ----------
    table
        With ``severity`` and ``category``: one row an error (Google's files; an error-free translation has
        one row of severity ``no-error``). With ``severities`` and perhaps ``categories``, lists: one row a
        rating. In both, ``system``, the columns of the item and perhaps ``rater`` and ``lp``.
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
    keys = _keys(table, item)
    frame = table.frame.select([table.column(name).alias(name) for name in keys])
    severity = table.column("severities" if lists else "severity")
    category = None
    for name in ("categories" if lists else "category",):
        category = table.column(name) if table.has(name) else None
    penalties, errors = [], []
    empty = [[] if lists else ""] * len(table)
    for row, (found, kinds) in enumerate(
        zip(severity, category if category is not None else empty, strict=True)
    ):
        names = list(found) if lists and found is not None else [found or ""]
        labels = list(kinds) if lists and kinds is not None else [kinds or ""]
        labels = labels if len(labels) == len(names) else [""] * len(names)
        worth = [mqm_weight(str(s), str(c or ""), weights) for s, c in zip(names, labels, strict=True)]
        if None in worth:
            raise InputError(
                f"{table.place(row)}: {quoted(str(names[worth.index(None)]))} is no known severity"
            )
        known = [w for w in worth if w is not None]
        penalties.append(float(sum(known)))
        errors.append(sum(w > 0 for w in known))
    rater = (
        table.column("rater").cast(pl.String).fill_null("")
        if table.has("rater")
        else pl.Series([""] * len(table))
    )
    frame = frame.with_columns(
        _rater=rater, _penalty=pl.Series(penalties), _errors=pl.Series(errors, dtype=pl.Int64)
    )
    # Rows of one rater and translation are errors to be added up, or repeated ratings to be averaged.
    by_rating = [pl.col("_penalty").mean() if lists else pl.col("_penalty").sum(), pl.col("_errors").sum()]
    ratings = frame.group_by([*keys, "_rater"], maintain_order=True).agg(by_rating)
    scores = ratings.group_by(keys, maintain_order=True).agg(
        human=-pl.col("_penalty").mean(), raters=pl.len().cast(pl.Int64), errors=pl.col("_errors").sum()
    )
    return Table(scores, table.name, np.arange(1, scores.height + 1), has_lines=False)


def esa_scores(table: Table, item: Sequence[str] = ("seg",), score: str = "score") -> Table:
    """Average the scores of error-span annotation (ESA) over raters, and count the marked spans.

    Parameters
    ----------
    table
        One row a rating: ``system``, the columns of the item, the score from 0 to 100 (a missing one is left
        out) and, in ``spans`` or ``error_spans``, a list or a JSON list of marked spans.
    """
    keys = _keys(table, item)
    frame = table.frame.select([table.column(name).alias(name) for name in keys])
    values = table.numbers(score, missing=True)
    outside = (values < 0) | (values > 100)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(f"{table.place(row)}: an ESA score of {values[row]:g}, expected 0 to 100")
    spans = next((name for name in ("spans", "error_spans") if table.has(name)), None)
    marked = (
        [0] * len(table)
        if spans is None
        else [_span_count(table, row, v) for row, v in enumerate(table.column(spans))]
    )
    frame = frame.with_columns(_score=pl.Series(values), _errors=pl.Series(marked, dtype=pl.Int64))
    scores = (
        frame.filter(pl.col("_score").is_not_nan())
        .group_by(keys, maintain_order=True)
        .agg(human=pl.col("_score").mean(), raters=pl.len().cast(pl.Int64), errors=pl.col("_errors").sum())
    )
    return Table(scores, table.name, np.arange(1, scores.height + 1), has_lines=False)


def _span_count(table: Table, row: int, value: object) -> int:
    if value is None or value == "":
        return 0
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = 0
    try:
        return len(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{table.place(row)}: the spans are no list") from None


def _keys(table: Table, item: Sequence[str]) -> list[str]:
    return [*(["lp"] if table.has("lp") else []), "system", *item]


def read_ratings(path: str | os.PathLike[str]) -> Table:
    """Read a ``.seg.rating`` file: a system, its errors as JSON (or ``None``) and perhaps the rater, by tabs.

    Returns a table for :func:`mqm_scores`: ``system seg rater severities categories starts ends``. Unrated
    segments have no row; ``seg`` counts from 0 within each system.
    """
    name = named(path)
    with opened(path, name) as stream:
        lines = segments_of(stream, name)
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
