"""Numbers about a translation and its source that take no encoder: lengths, signs, words that go together."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import polars as pl

from doubtless.surface.table import Table, keys
from doubtless.surface.units import NOTHING, Codes, Meetings, Units, in_order
from doubtless.warp import Floats

SIGNS = (",", ".", ";", ":", "?", "!", "(", ")", '"', "'", "-")
LEAST = 0.005
"""Probability from which on a translation of a unit is in the table."""
MOST = 5_000
"""Occurrences that are told apart."""
_RARE, _COMMON = 0.02, 0.2  # probabilities of a unit's likeliest translation
_NUMBER = re.compile(r"\d{1,40}")


def of_probability(probability: Floats) -> Floats:
    """A probability as it stands in the table: its logarithm, 0 for what is not there, 1 for certain."""
    return 1 - np.log(np.maximum(probability, LEAST)) / np.log(LEAST)


def of_count(count: Floats) -> Floats:
    """A number of occurrences as it stands in the table."""
    return np.minimum(np.log1p(count) / np.log1p(MOST), 1.0)


def features(table: Table, lp: str, src: pl.Series, mt: pl.Series) -> Floats:
    """Everything that is known of the rows of one language pair (rows, features).

    Parameters
    ----------
    table
        What was learnt of the pair (:func:`doubtless.surface.learn.learn`).
    lp
        The pair.
    src, mt
        Sources and translations.
    """
    source, target = Units.of(src), Units.of(mt)
    forth, partner = likeliest(table, f"{lp} forth", source, target)
    back, _ = likeliest(table, f"{lp} back", target, source)
    parts = [
        _sizes(src, mt, source, target),
        _signs(src, mt),
        _explained(forth, target),
        _explained(back, source),
        _wrong(table, lp, source, target, partner),
        _usual(table, f"{lp} source", source),
        _usual(table, f"{lp} target", target),
    ]
    return np.hstack(parts)


def _sizes(src: pl.Series, mt: pl.Series, source: Units, target: Units) -> Floats:
    """Lengths, how they go together, and how much is repeated."""
    letters = [texts.str.len_chars().to_numpy().astype(np.float64) for texts in (src, mt)]
    units = [side.lengths.astype(np.float64) for side in (source, target)]
    same = (target.codes == target.before).astype(np.float64)
    columns = [
        *letters,
        *units,
        np.log((letters[1] + 1) / (letters[0] + 1)),
        units[1] / (units[0] + 1),
        *(_distinct(side) / np.maximum(side.lengths, 1) for side in (source, target)),
        *(size / np.maximum(count, 1) for size, count in zip(letters, units, strict=True)),
        np.bincount(target.owner, same, target.count),
    ]
    return np.stack(columns, axis=1)


def _distinct(side: Units) -> Floats:
    """How many different units each text has."""
    both = np.unique(side.owner.astype(np.uint64) << np.uint64(32) | side.codes) >> np.uint64(32)
    return np.bincount(both.astype(np.int64), minlength=side.count).astype(np.float64)


def _signs(src: pl.Series, mt: pl.Series) -> Floats:
    """Signs of the translation, and how many more they are than in the source; numbers; capitals."""
    columns = []
    for sign in SIGNS:
        here, there = (
            texts.str.count_matches(sign, literal=True).to_numpy().astype(np.float64) for texts in (mt, src)
        )
        columns += [here, there - here]
    capitals = mt.str.count_matches(r"\b\p{Lu}\w+").to_numpy().astype(np.float64)
    columns += [capitals, capitals / np.maximum(mt.str.count_matches(r"\S+").to_numpy(), 1)]
    numbers = [_same_numbers(*texts) for texts in zip(src, mt, strict=True)]
    return np.hstack([np.stack(columns, axis=1), np.array(numbers).reshape(len(src), 4)])


def _same_numbers(src: str, mt: str) -> tuple[float, float, int, int]:
    """Shares of the numbers of each text that the other has too, in whatever digits; how many they are."""
    own, other = (Counter(map(int, _NUMBER.findall(text))) for text in (src, mt))
    same = (own & other).total()
    shares = (same / found.total() if found else 1.0 for found in (own, other))
    return (*shares, own.total(), other.total())  # type: ignore[return-value]


def likeliest(table: Table, kind: str, left: Units, right: Units) -> tuple[Floats, Codes]:
    """How probable each right unit is as a translation of a left one, and of which one that is."""
    meetings = Meetings.of(left, right)
    found = table.look(keys(kind, meetings.left, meetings.right), 0.0)
    if not len(found):
        return found, meetings.left
    first = np.flatnonzero(np.diff(meetings.place, prepend=-1))
    best = np.maximum.reduceat(found, first)
    at = np.flatnonzero(found == best[meetings.place])
    at = at[np.flatnonzero(np.diff(meetings.place[at], prepend=-1))]
    return best, meetings.left[at]


def _explained(best: Floats, side: Units) -> Floats:
    """How well the units of a text can be explained as translations of the other text's."""
    limits = of_probability(np.array([_RARE, _COMMON]))
    shares = [best == 0, best < limits[0], best > limits[1]]
    return np.hstack([in_order(best, side.owner, side.count), _means(shares, side)])


def _means(values: list[np.ndarray], side: Units) -> Floats:
    """Means over the units of each text."""
    sums = [np.bincount(side.owner, value.astype(np.float64), side.count) for value in values]
    return np.stack(sums, axis=1) / np.maximum(side.lengths, 1)[:, None]


def _wrong(table: Table, lp: str, source: Units, target: Units, partner: Codes) -> Floats:
    """How often post-editors changed these units, or found the source's badly translated."""
    parts = []
    for kind, side, second in (
        (f"{lp} wrong", target, None),
        (f"{lp} wrong pair", target, partner),
        (f"{lp} lost", source, None),
    ):
        usual = float(table.look(keys(kind, np.array([NOTHING], dtype=np.uint64)), 0.0)[0])
        rate = table.look(keys(kind, side.codes, NOTHING if second is None else second), usual)
        parts.append(in_order(rate, side.owner, side.count))
    return np.hstack(parts)


def _usual(table: Table, kind: str, side: Units) -> Floats:
    """How common units are, and how common after the one before them."""
    alone = table.look(keys(kind, side.codes), 0.0)
    previous = table.look(keys(kind, side.before), 0.0)
    both = table.look(keys(f"{kind} pair", side.codes, side.before), 0.0)
    parts = [in_order(values, side.owner, side.count) for values in (alone, both - previous)]
    return np.hstack([*parts, _means([alone == 0, both == 0], side)])
