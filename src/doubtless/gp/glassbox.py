"""Features from inside the translation system: what it thought of its own words (Fomicheva et al. 2020)."""

from __future__ import annotations

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats import values
from doubtless.segments import Table
from doubtless.warp import Floats

COLUMN = "nmt_logprobs"
NAMES = ("logprob_mean", "logprob_min", "logprob_variance", "logprob_low", "length_ratio")
# A token below this probability counts as a doubtful one.
LOW = 0.1


def features(table: Table) -> Floats:
    """Mean, minimum and variance of token log-probabilities, share of doubtful ones, length ratio.

    The length ratio is the number of words of the translation divided by that of the source, both plus one.

    >>> from doubtless.segments import as_table
    >>> row = {"src": "ein Haus", "mt": "a house", "nmt_logprobs": [-0.5, -3.5]}
    >>> features(as_table([row])).round(2)
    array([[-2.  , -3.5 ,  2.25,  0.5 ,  1.  ]])
    """
    lists = _lists(table)
    sizes = lists.list.len().to_numpy().astype(np.int64)
    owner = np.repeat(np.arange(len(lists)), sizes)
    flat = lists.explode().to_numpy().astype(np.float64)
    mean = np.bincount(owner, weights=flat) / sizes
    variance = np.bincount(owner, weights=(flat - mean[owner]) ** 2) / sizes
    low = np.bincount(owner, weights=flat < np.log(LOW)) / sizes
    lowest = np.minimum.reduceat(flat, np.cumsum(sizes) - sizes)
    texts = (table.column(side).cast(pl.String).fill_null("") for side in ("src", "mt"))
    words = [text.str.count_matches(r"\S+").to_numpy() for text in texts]
    return np.stack([mean, lowest, variance, low, (words[1] + 1.0) / (words[0] + 1.0)], axis=1)


def _lists(table: Table) -> pl.Series:
    """The log-probabilities, a list of at least one number a row."""
    series = table.column(COLUMN)
    if series.dtype == pl.String:
        lists, _ = values.number_lists(series)
    elif isinstance(series.dtype, pl.List):
        lists = series.cast(pl.List(pl.Float64), strict=False)
    else:
        raise InputError(f"{table.name}: column '{COLUMN}' holds {series.dtype}, expected lists of numbers")
    # All that can be wrong at once: nothing, an empty list, a null in it, a number that is not finite.
    sound = lists.list.eval(pl.element().is_finite().fill_null(False)).list.all().fill_null(False)
    wrong = ~(sound & (lists.list.len() > 0).fill_null(False))
    if wrong.any():
        place = table.place(int(wrong.arg_max() or 0))
        raise InputError(f"{place}: column '{COLUMN}' is not a list of finite numbers")
    return lists
