"""What people's time costs, and how a budget is spent on the most urgent segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.forecast import Floats

Mask = np.ndarray[Any, np.dtype[np.bool_]]

UNITS = ("segments", "words", "cost")
# Scripts written without spaces: a character of theirs counts as a word.
_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"


@dataclass(frozen=True)
class Price:
    """What it costs to have a segment scored by people, in any unit: money, minutes, words, segments.

    Parameters
    ----------
    per_segment, per_word
        Added up for each segment.

    Examples
    --------
    >>> Price(per_segment=0.1, per_word=0.02).of([10, 25]).round(2)
    array([0.3, 0.6])
    """

    per_segment: float = 1.0
    per_word: float = 0.0

    def __post_init__(self) -> None:
        both = (self.per_segment, self.per_word)
        if not all(isfinite(price) and price >= 0 for price in both) or not any(both):
            raise InputError("prices are not negative, and one of them is above 0")

    def of(self, words: ArrayLike) -> Floats:
        """The cost of segments with so many words; an empty one is charged as a word."""
        return self.per_segment + self.per_word * np.maximum(np.asarray(words, dtype=np.float64), 1.0)


PRICES = {"segments": Price(1.0, 0.0), "words": Price(0.0, 1.0)}


def word_counts(texts: Sequence[str | None] | pl.Series) -> Floats:
    """Count the words of texts: what stands between spaces; in scripts without spaces, characters.

    >>> word_counts(["Prices rose by 3.5 %.", "央行 2020 年上调了利率。", None])
    array([5., 9., 0.])
    """
    series = pl.Series("", texts, dtype=pl.String).fill_null("")
    apart = series.str.replace_all(f"[{_SPACELESS}]\\p{{P}}*", " x ")
    return apart.str.count_matches(r"\S+").to_numpy().astype(np.float64)


def allowance(text: str, total: float) -> float:
    """Read a budget: a number, or a share of what all segments would cost.

    >>> allowance("20%", 400.0), allowance("150", 400.0)
    (80.0, 150.0)
    """
    share = text.strip().endswith("%")
    try:
        amount = float(text.strip().removesuffix("%"))
    except ValueError:
        amount = np.nan
    if not (isfinite(amount) and amount >= 0) or (share and amount > 100):
        raise InputError(f"a budget is a number, or a share up to 100%, found '{text}'")
    return amount * total / 100 if share else amount


def spend(urgency: ArrayLike, cost: ArrayLike, budget: float, strata: ArrayLike | None = None) -> Mask:
    """Choose segments, the most urgent first, as far as a budget goes.

    A segment that no longer fits is passed over for cheaper ones that do. Equally urgent segments are taken
    in their order.

    Parameters
    ----------
    urgency, cost
        One number a segment; what is most urgent has the highest number.
    budget
        The sum of costs is not higher.
    strata
        Groups of segments. Each gets a share of the budget as large as its share of all costs, and what is
        left over goes to the most urgent segments of all.

    Examples
    --------
    >>> spend([0.9, 0.1, 0.5, 0.4], cost=[6, 1, 5, 3], budget=10).tolist()
    [True, True, False, True]
    >>> spend([4, 3, 2, 1], cost=[1, 1, 1, 1], budget=2, strata=["a", "a", "b", "b"]).tolist()
    [True, False, True, False]
    """
    wish, price = np.asarray(urgency, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    if wish.shape != price.shape or wish.ndim != 1:
        raise InputError(f"{len(wish)} segments have {price.size} costs")
    if np.isnan(wish).any():
        raise InputError(f"nothing says how urgent row {int(np.isnan(wish).argmax()) + 1} is")
    order = np.argsort(-wish, kind="stable")
    chosen = np.zeros(len(wish), dtype=bool)
    if strata is not None:
        _, group = np.unique(np.asarray(strata), return_inverse=True)
        shares = np.bincount(group, price) / price.sum()
        for number, share in enumerate(shares):
            chosen[_taken(order[group[order] == number], price, share * budget)] = True
        order = order[~chosen[order]]
    chosen[_taken(order, price, budget - price[chosen].sum())] = True
    return chosen


def _taken(order: np.ndarray, price: Floats, budget: float) -> np.ndarray:
    """The rows that fit, first come first served."""
    left = budget * (1 + 1e-12)  # a share of a sum of costs may miss it by the last digit
    taken = []
    while len(order := order[price[order] <= left]):
        sums = np.cumsum(price[order])
        fits = int(np.searchsorted(sums, left, side="right"))
        taken.append(order[:fits])
        left -= sums[fits - 1]
        order = order[fits + 1 :]  # the next one does not fit
    return np.concatenate(taken) if taken else order
