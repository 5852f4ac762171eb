"""Is one metric really better than another? Permutation tests of the difference of two figures.

Under the hypothesis that two metrics are equally good, what they say about a translation (or about a pair of
translations) could as well be swapped between them. A :class:`Swap` knows the difference that was seen, can
draw differences under random swaps, and where a closed form exists knows the p-value itself.
This module swaps scores; :mod:`doubtless.metaeval.pair_swaps` swaps whole items and pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from doubtless.metaeval.pairs import Floats
from doubtless.metaeval.soft import normal_limit
from doubtless.metaeval.statistics import RATIOS, by_group, ratio, ratio_parts

Draw = Callable[[np.random.Generator, int], Floats]

MOST_CELLS = 15  # 2^15 sign vectors are tried all; more cells are sampled
VALUES = 1 << 21  # numbers laid out together


@dataclass(frozen=True)
class Swap:
    """The difference (first metric minus second) of two figures, and its distribution under swaps.

    Parameters
    ----------
    delta
        The difference that was seen.
    draw
        Draws differences under random swaps.
    exact
        Computes the p-value, where there is a closed form or few enough swaps to try them all.
    unit
        What is swapped: ``scores``, ``pairs`` or ``items``; ``williams`` for a test that swaps nothing.
    """

    delta: float
    draw: Draw
    exact: Callable[[], float] | None = None
    unit: str = "scores"


@dataclass(frozen=True)
class Verdict:
    """A p-value that the first metric is not better than the second, and how it was found.

    ``draws`` is 0 for exact values.
    """

    p: float
    delta: float
    draws: int


def verdict(swap: Swap, *, draws: int = 1000, seed: int = 0, stop: int = 100) -> Verdict:
    """Test a difference.

    Exact where possible. Otherwise swaps are drawn until ``stop`` of them reach the difference, at most
    ``draws``: if the last of them was draw number n, p is ``stop / n``, else ``(reached + 1) / (draws + 1)``.
    Both are valid p-values whatever the data (Besag and Clifford 1991): under the hypothesis they are below
    a level with at most that probability. Stopping on a small running p-value would not be.

    >>> even = Swap(0.5, lambda rng, n: rng.normal(size=n))
    >>> bool(0.25 < verdict(even).p < 0.37)
    True
    """
    if not np.isfinite(swap.delta):
        return Verdict(float("nan"), swap.delta, 0)
    if swap.exact is not None:
        return Verdict(swap.exact(), swap.delta, 0)
    rng = np.random.default_rng(seed)
    # Equal differences computed in another order differ by rounding; they must count as reached.
    bar = swap.delta - 1e-12
    reached = done = 0
    while done < draws:
        size = min(250, draws - done)
        hits = np.flatnonzero(swap.draw(rng, size) >= bar)
        if reached + len(hits) >= stop:
            last = done + int(hits[stop - reached - 1]) + 1
            return Verdict(stop / last, swap.delta, last)
        reached, done = reached + len(hits), done + size
    return Verdict((reached + 1) / (draws + 1), swap.delta, done)


def mean_of(swaps: Sequence[Swap], weights: Floats | None = None) -> Swap:
    """The (weighted) mean over independent data sets, for example language pairs.

    >>> one = Swap(1.0, lambda rng, n: np.ones(n))
    >>> mean_of([one, one]).delta
    1.0
    """
    w = np.full(len(swaps), 1 / len(swaps)) if weights is None else weights / weights.sum()
    if len(swaps) == 1:
        return swaps[0]

    def draw(rng: np.random.Generator, size: int) -> Floats:
        return np.sum([share * swap.draw(rng, size) for share, swap in zip(w, swaps, strict=True)], axis=0)

    return Swap(float(w @ np.array([swap.delta for swap in swaps])), draw, unit=swaps[0].unit)


def standardised(scores: Floats, known: np.ndarray) -> Floats:
    """Scores of mean 0 and spread 1 where they are known, so that those of two metrics can be swapped."""
    values = scores[known]
    spread = values.std() if len(values) else 0.0
    return (scores - (values.mean() if len(values) else 0.0)) / (spread if spread > 0 else 1.0)


def random_bits(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    """Random bits (draws by cells): whether each cell is kept."""
    packed = np.frombuffer(rng.bytes(size * ((cells + 7) // 8)), dtype=np.uint8).reshape(size, -1)
    return np.unpackbits(packed, axis=1, count=cells)


def score_swap(name: str, human: Floats, first: Floats, second: Floats) -> Swap:
    """Swap standardised scores (PERM-BOTH, Deutsch et al. 2021), and compare mean figures over groups.

    Parameters
    ----------
    name
        Any figure of segments, without a tie threshold.
    human, first, second
        Members by groups; NaN is a missing human score.
    """
    known = ~np.isnan(human)
    first, second = (np.where(known, standardised(scores, known), 0.0) for scores in (first, second))
    enough = known.sum(axis=0) > 1
    members, groups = human.shape

    def mean(values: Floats) -> Floats:
        fine = enough & ~np.isnan(values)
        return np.where(fine, values, 0.0).sum(axis=-1) / np.maximum(fine.sum(axis=-1), 1)

    def figures(gold: Floats, hybrid: Floats, size: int) -> Floats:
        if name in RATIOS:
            return ratio(name, ratio_parts(name, gold, hybrid).reshape(-1, size, groups).sum(axis=2).T)
        return mean(by_group(name, gold, hybrid).reshape(size, groups))

    def differences(bits: np.ndarray) -> Floats:
        size = len(bits)
        own = bits.reshape(size, members, groups).transpose(1, 0, 2).astype(bool)
        gold = np.broadcast_to(human[:, None], own.shape).reshape(members, -1)
        # Chosen, not computed: rounding would break the ties that ranks depend on.
        a, b = first[:, None], second[:, None]
        hybrids = (np.where(own, a, b), np.where(own, b, a))
        return np.subtract(*(figures(gold, h.reshape(members, -1), size) for h in hybrids))

    fast: Callable[[np.ndarray], Floats] = differences
    if name == "pearson":
        fast = _pearson_differences(human, (first + second) / 2, (first - second) / 2, mean)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        step = max(1, VALUES // max(1, human.size))
        parts = [random_bits(rng, min(step, size - start), human.size) for start in range(0, size, step)]
        return np.concatenate([fast(part) for part in parts])

    delta = float(differences(np.ones((1, human.size), dtype=np.uint8))[0]) if enough.any() else float("nan")
    if human.size > MOST_CELLS:
        return Swap(delta, draw)

    def exact() -> float:
        every = (np.arange(1 << human.size)[:, None] >> np.arange(human.size)) & 1
        return float((differences(every.astype(np.uint8)) >= delta - 1e-12).mean())

    return Swap(delta, draw, exact)


def _pearson_differences(
    human: Floats, middle: Floats, step: Floats, mean: Callable[[Floats], Floats]
) -> Callable[[np.ndarray], Floats]:
    """Pearson's differences as matrix products: the moments of ``middle ± step`` are linear in the signs."""
    known = ~np.isnan(human)
    n = np.maximum(known.sum(axis=0), 1)
    middle, step = np.where(known, middle, 0.0), np.where(known, step, 0.0)
    gold = np.where(known, human, 0.0)
    gold = np.where(known, gold - gold.sum(axis=0) / n, 0.0)
    columns = np.stack([gold * step, step, 2 * middle * step], axis=-1)  # members, groups, 3
    fixed = np.stack([gold * middle, middle, middle**2 + step**2], axis=-1).sum(axis=0)
    scale = np.sqrt((gold**2).sum(axis=0))

    def correlation(sums: Floats) -> Floats:
        covariance, total, squares = np.moveaxis(sums, -1, 0)
        variance = squares - total**2 / n
        under = scale * np.sqrt(np.maximum(variance, 0.0))
        fine = (scale > 0) & (variance > 1e-12 * np.maximum(squares, 1e-300))
        return np.divide(covariance, under, out=np.full(under.shape, np.nan), where=fine)

    def differences(bits: np.ndarray) -> Floats:
        size = len(bits)
        chosen = bits.reshape(size, *human.shape)
        if human.shape[1] == 1:
            part = chosen[:, :, 0].astype(np.float64) @ columns[:, 0]
            sums = (2 * part - columns.sum(axis=(0, 1)))[:, None]
        else:
            spread = np.ascontiguousarray(chosen.transpose(2, 0, 1)).astype(np.float64)
            sums = (2 * spread @ columns.transpose(1, 0, 2)).transpose(1, 0, 2) - columns.sum(axis=0)
        return mean(correlation(fixed + sums)) - mean(correlation(fixed - sums))

    return differences


def soft_swap(human: Floats, first: Floats, second: Floats) -> Swap:
    """Swap standardised scores of segments, and compare soft pairwise accuracies.

    The p-values inside are those of the normal limit: any statistic gives a valid permutation test as long as
    the difference that was seen is computed in the same way.
    """
    known = ~np.isnan(human)
    first, second = (np.where(known, standardised(scores, known), 0.0) for scores in (first, second))
    gold = normal_limit(np.where(known, human, 0.0)[None], known)
    half_sum, half_difference = ((first + s * second).astype(np.float32) / 2 for s in (1, -1))
    seen = ~np.isnan(gold[0])

    def accuracy(hybrids: np.ndarray) -> Floats:
        return 1 - np.abs(normal_limit(hybrids, known) - gold)[:, seen].mean(axis=1)

    def differences(bits: np.ndarray) -> Floats:
        step = (2 * bits.reshape(-1, *human.shape).astype(np.float32) - 1) * half_difference
        return accuracy(half_sum + step) - accuracy(half_sum - step)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        block = max(1, VALUES // max(1, human.size))
        starts = range(0, size, block)
        return np.concatenate(
            [differences(random_bits(rng, min(block, size - s), human.size)) for s in starts]
        )

    if len(human) < 2:
        return Swap(float("nan"), draw)
    return Swap(float(differences(np.ones((1, human.size), dtype=np.uint8))[0]), draw)
