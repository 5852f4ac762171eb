"""Which system translates better: mean scores with their doubt, paired comparisons, ranks and clusters.

Everything is paired: a segment is drawn, or its two scores are exchanged, for all systems at once, because an
easy segment is easy for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.segments import Floats, Table

Integers = np.ndarray[Any, np.dtype[np.int64]]

RESAMPLES = 2_000
_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class Comparison:
    """Systems compared with each other; every array has one entry a system, the matrices one a pair.

    Parameters
    ----------
    n, missing
        How many segments have a score of this system, and how many of the others have none.
    mean, lower, upper
        The mean score and its confidence interval; NaN where a system has fewer than two segments.
    difference
        Mean of row minus column over the segments that both have; NaN if they share none.
    chance
        Share of the resamples in which the row is better than the column, ties counted half.
    p_value
        That of the paired permutation test, two-sided, with Holm's correction for the number of pairs.
    best, worst
        The ranks that the tests leave open: 1 and as many as are better, k and as many as are worse.
    better
        Whether the row is significantly better than the column.
    cluster
        Counted from 1, the best. All systems of a cluster are significantly better than all of the next.
    order
        The systems from the best mean to the worst.
    """

    n: Integers
    missing: Integers
    mean: Floats
    lower: Floats
    upper: Floats
    difference: Floats
    chance: Floats
    p_value: Floats
    better: np.ndarray
    best: Integers
    worst: Integers
    cluster: Integers
    order: Integers


def compare(
    scores: ArrayLike,
    *,
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
    seed: int = 0,
    higher: bool = True,
) -> Comparison:
    """Compare systems by their scores of the same segments.

    Means get percentile intervals of the bootstrap over segments. Pairs are compared by exchanging the two
    scores of random segments (all combinations, where there are no more than ``resamples``).

    Parameters
    ----------
    scores
        One row a segment, one column a system; NaN where a system has no score.
    alpha
        One minus the level of the intervals, and the level of the tests.
    resamples
        How many; tests take more if the correction for many pairs could not be met otherwise.
    seed
        The same seed gives the same table.
    higher
        Whether higher scores are better.

    Examples
    --------
    >>> found = compare([[0.1, 0.4], [0.2, 0.6], [0.3, 0.3], [0.1, 0.5], [0.0, 0.4], [0.2, 0.5]])
    >>> found.mean.round(2).tolist(), found.order.tolist(), float(found.p_value[1, 0])
    ([0.15, 0.45], [1, 0], 0.0625)
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise InputError("systems are compared by a table of scores: segments by systems")
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, found {alpha}")
    present = ~np.isnan(values)
    n = present.sum(axis=0)
    if not n.all():
        raise InputError("a system has no score at all")
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(values.shape[1], 1)
    pairs = values[:, first] - values[:, second] if higher else values[:, second] - values[:, first]
    shared = (~np.isnan(pairs)).sum(axis=0)
    pairs = np.nan_to_num(pairs)
    means, wins = _bootstrap(np.where(present, values, 0.0), present, pairs, resamples, rng)
    lower, upper = np.nanquantile(means, [alpha / 2, 1 - alpha / 2], axis=0)
    enough = n >= 2
    p = holm(_exchange_test(pairs, max(resamples, ceil(2 * len(first) / alpha)), rng))
    mean = np.nansum(values, axis=0) / n
    with np.errstate(invalid="ignore"):
        difference = np.where(shared, pairs.sum(axis=0) / shared, np.nan) * (1 if higher else -1)
    chance = np.where(shared, wins, np.nan)
    order = np.argsort(-mean if higher else mean, kind="stable")
    matrix_of = _Pairs(values.shape[1], first, second)
    p_value, share = matrix_of(p, p, 1.0), matrix_of(chance, 1 - chance, 0.5)
    better = (p_value < alpha) & (share > 0.5)
    return Comparison(
        n=n,
        missing=len(values) - n,
        mean=mean,
        lower=np.where(enough, lower, np.nan),
        upper=np.where(enough, upper, np.nan),
        difference=matrix_of(difference, -difference, 0.0),
        chance=share,
        p_value=p_value,
        better=better,
        best=1 + better.sum(axis=0),
        worst=values.shape[1] - better.sum(axis=1),
        cluster=clusters(better, order),
        order=order,
    )


def interval_of_mean(
    scores: ArrayLike, *, alpha: float = 0.05, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float, float]:
    """The mean of all scores and its bootstrap interval, whole segments drawn with all their systems.

    >>> mean, lower, upper = interval_of_mean([[0.0], [1.0], [0.0], [1.0]])
    >>> mean, lower, upper
    (0.5, 0.0, 1.0)
    """
    values = np.asarray(scores, dtype=np.float64)
    present = ~np.isnan(values)
    sums, counts = np.nansum(values, axis=1, keepdims=True), present.sum(axis=1, keepdims=True)
    mean = float(sums.sum() / counts.sum())
    if len(values) < 2:
        return mean, np.nan, np.nan
    nothing = np.zeros((len(values), 0))
    means, _ = _bootstrap(sums, counts, nothing, resamples, np.random.default_rng(seed))
    lower, upper = np.nanquantile(means, [alpha / 2, 1 - alpha / 2])
    return mean, float(lower), float(upper)


def _bootstrap(
    sums: Floats, counts: np.ndarray, pairs: Floats, resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Means of the resamples (rows), and the share of them in which each difference is positive."""
    means, wins = [], np.zeros(pairs.shape[1])
    for rows in _blocks(resamples, len(sums)):
        drawn = rng.integers(len(sums), size=(rows, len(sums))) + len(sums) * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * len(sums)).reshape(rows, -1).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a system may have none of the segments that were drawn
            means.append((times @ sums) / (times @ counts))
        gain = times @ pairs
        wins += (gain > 0).sum(axis=0) + (gain == 0).sum(axis=0) / 2
    return np.concatenate(means), wins / resamples


def _exchange_test(pairs: Floats, flips: int, rng: np.random.Generator) -> Floats:
    """Two-sided p-values of the sums of the columns when the signs of rows are arbitrary."""
    n, found = len(pairs), np.zeros(pairs.shape[1])
    # Sums that are equal on paper must count as equal.
    observed = np.abs(pairs.sum(axis=0)) - 1e-12 * np.abs(pairs).sum(axis=0)
    complete = n < 60 and 2**n <= flips
    done = 0
    for rows in _blocks(2**n if complete else flips, n):
        if complete:
            bits = (np.arange(done, done + rows)[:, None] >> np.arange(n)) & 1
        else:
            bits = rng.integers(2, size=(rows, n), dtype=np.int8)
        found += (np.abs((1.0 - 2.0 * bits) @ pairs) >= observed).sum(axis=0)
        done += rows
    return found / done if complete else (found + 1) / (done + 1)


def _blocks(total: int, width: int) -> Iterator[int]:
    """Cut a number of resamples so that no block is larger than the memory allows."""
    size = max(1, _AT_ONCE // max(width, 1))
    for start in range(0, total, size):
        yield min(size, total - start)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's correction: with it, the chance of any false discovery stays below the level.

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


@dataclass(frozen=True)
class _Pairs:
    """Puts values of pairs into a square matrix: above, below and on the diagonal."""

    size: int
    first: np.ndarray
    second: np.ndarray

    def __call__(self, above: Floats, below: Floats, diagonal: float) -> Floats:
        matrix = np.full((self.size, self.size), diagonal)
        matrix[self.first, self.second] = above
        matrix[self.second, self.first] = below
        return matrix


def clusters(better: np.ndarray, order: Integers) -> Integers:
    """A cluster ends where every system so far is significantly better than every one that follows."""
    sorted_by_mean = better[np.ix_(order, order)]
    found = np.ones(len(order), dtype=np.int64)
    for place in range(1, len(order)):
        ends = sorted_by_mean[:place, place:].all()
        found[order[place]] = found[order[place - 1]] + int(ends)
    return found


def matrix(systems: Sequence[str], segments: ArrayLike, scores: ArrayLike) -> tuple[list[str], Floats]:
    """Arrange scores as a table of segments by systems; return the systems in the order they appear in.

    >>> matrix(["b", "b", "a"], [1, 2, 2], [0.5, 0.6, 0.7])
    (['b', 'a'], array([[0.5, nan],
           [0.6, 0.7]]))
    """
    names = list(dict.fromkeys(systems))
    place = {name: i for i, name in enumerate(names)}
    columns = np.array([place[name] for name in systems])
    _, rows = np.unique(np.asarray(segments), return_inverse=True)
    values = np.full((int(rows.max()) + 1, len(names)), np.nan)
    values[rows, columns] = scores
    return names, values


def segment_numbers(table: Table) -> Integers:
    """A number for each row that is the same in all systems: by ``lp``, ``seg`` and ``src``, where they are.

    Rows of one system that agree in all of these are told apart by their order.

    >>> from doubtless.segments import as_table
    >>> rows = [{"src": "Ja", "system": "a"}, {"src": "Ja", "system": "a"}, {"src": "Ja", "system": "b"}]
    >>> segment_numbers(as_table(rows)).tolist()
    [0, 1, 0]
    """
    keys = [table.column(name).alias(name) for name in ("lp", "seg", "src") if table.has(name)]
    system = table.column("system").alias("system") if table.has("system") else pl.lit("").alias("system")
    frame = pl.DataFrame({"row": np.arange(len(table))}).with_columns(*keys, system)
    names = [key.name for key in keys]
    nth = pl.int_range(pl.len()).over([*names, "system"]).alias("nth")
    # The number of a segment is that of the first row that shows it.
    numbers = frame.with_columns(nth).select(pl.col("row").first().over([*names, "nth"])).to_series()
    return (numbers.rank("dense") - 1).cast(pl.Int64).to_numpy()


@dataclass(frozen=True, eq=False)
class SystemTable:
    """The systems of one language pair, compared."""

    lp: str | None
    names: list[str]
    found: Comparison

    def rows(self) -> list[dict[str, Any]]:
        """One row a system, the best mean first, for files and programs."""
        found, pair = self.found, {} if self.lp is None else {"lp": self.lp}
        return [
            {
                **pair,
                "system": self.names[i],
                "n": int(found.n[i]),
                "missing": int(found.missing[i]),
                "mean": float(found.mean[i]),
                "lower": float(found.lower[i]),
                "upper": float(found.upper[i]),
                "best_rank": int(found.best[i]),
                "worst_rank": int(found.worst[i]),
                "cluster": int(found.cluster[i]),
                "better_than": [self.names[j] for j in found.order if found.better[i, j]],
            }
            for i in found.order
        ]

    def pairs(self) -> list[dict[str, Any]]:
        """One row a pair of systems, the one with the better mean first."""
        found, pair = self.found, {} if self.lp is None else {"lp": self.lp}
        return [
            {
                **pair,
                "system": self.names[i],
                "other": self.names[j],
                "difference": float(found.difference[i, j]),
                "chance_better": float(found.chance[i, j]),
                "p_value": float(found.p_value[i, j]),
            }
            for place, i in enumerate(found.order)
            for j in found.order[place + 1 :]
        ]


def system_tables(table: Table, scores: Floats, *, seed: int = 0, higher: bool = True) -> list[SystemTable]:
    """Compare the systems of a table within each language pair: scores of two pairs are not comparable.

    >>> from doubtless.segments import as_table
    >>> table = as_table([{"src": "Ja", "system": "a"}, {"src": "Ja", "system": "b"}])
    >>> [row["system"] for row in system_tables(table, np.array([0.1, 0.4]))[0].rows()]
    ['b', 'a']
    """
    systems = np.array(table.column("system").cast(pl.String).fill_null("").to_list(), dtype=object)
    segments = segment_numbers(table)
    if not table.has("lp"):
        return [SystemTable(None, *_compared(systems, segments, scores, seed, higher))]
    pairs = np.array(table.column("lp").cast(pl.String).fill_null("").to_list(), dtype=object)
    made = []
    for lp in dict.fromkeys(pairs.tolist()):
        own = pairs == lp
        made.append(SystemTable(lp, *_compared(systems[own], segments[own], scores[own], seed, higher)))
    return made


def _compared(
    systems: np.ndarray, segments: Integers, scores: Floats, seed: int, higher: bool
) -> tuple[list[str], Comparison]:
    names, values = matrix(systems.tolist(), segments, scores)
    return names, compare(values, seed=seed, higher=higher)
