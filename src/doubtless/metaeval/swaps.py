"""Is one metric really better than another? Permutation tests of the difference of two figures.

Under the hypothesis that two metrics are equally good, what they say about a translation (or about a pair of
translations) could as well be swapped between them. A :class:`Swap` knows the difference that was seen, can
draw differences under random swaps, and where a closed form exists knows the p-value itself.

Swapping pairs and counting agreement, each pair on which only one metric is right adds plus or minus its
weight. With groups of one size all weights are equal, and the distribution is binomial: the test is a sign
test. With groups of few sizes it is a sum of few binomials on a lattice, computed by a Fourier transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, lcm

import numpy as np
from scipy.stats import binom

from doubtless.metaeval.pairs import Floats, Integers, agreements, column_sums, kinds, tau_b
from doubtless.metaeval.soft import normal_limit
from doubtless.metaeval.statistics import by_group

Draw = Callable[[np.random.Generator, int], Floats]

MOST_CELLS = 15  # 2^15 sign vectors are tried all; more cells are sampled
_LONGEST_TRANSFORM = 1 << 22
_RESOLUTION = 1e-15  # p-values below are lost in the rounding of the transform
_VALUES = 1 << 21  # numbers laid out together


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
    """

    delta: float
    draw: Draw
    exact: Callable[[], float] | None = None


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

    return Swap(float(w @ np.array([swap.delta for swap in swaps])), draw)


# Swapping pairs ------------------------------------------------------------------------------------------


def agreement_swap(
    human: Floats, first: Floats, second: Floats, epsilons: tuple[float, float], scale: float = 1.0
) -> Swap:
    """Swap pairs, and compare mean agreement over groups (acc_eq; with ``scale=2`` tau_23).

    Parameters
    ----------
    human, first, second
        Members by groups; NaN is a missing human score.
    epsilons
        The tie threshold of each metric.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> human = rng.normal(size=(5, 80))
    >>> good, bad = human + rng.normal(size=(5, 80)), human + 3 * rng.normal(size=(5, 80))
    >>> bool(verdict(agreement_swap(human, good, bad, (0.0, 0.0))).p < 1e-6)
    True
    """
    only_first, only_second, pairs = np.zeros((3, human.shape[1]), dtype=np.int64)
    blocks = zip(agreements(human, first, epsilons[0]), agreements(human, second, epsilons[1]), strict=True)
    for (part, right, both), (_, also, _) in blocks:
        only_first[part] += column_sums(right & ~also)
        only_second[part] += column_sums(also & ~right)
        pairs[part] += column_sums(both)
    used = pairs > 0
    sizes, place = np.unique(pairs[used], return_inverse=True)
    wins = np.bincount(place, weights=only_first[used], minlength=len(sizes)).astype(np.int64)
    losses = np.bincount(place, weights=only_second[used], minlength=len(sizes)).astype(np.int64)
    if not len(sizes):
        return Swap(float("nan"), lambda rng, size: np.full(size, np.nan))
    weights = scale / (sizes * int(used.sum()))
    exact = None if _span(sizes, wins + losses) is None else partial(signs_p_value, sizes, wins, losses)
    return Swap(float(weights @ (wins - losses)), partial(_draw_signs, weights, wins + losses), exact)


def _draw_signs(weights: Floats, trials: Integers, rng: np.random.Generator, size: int) -> Floats:
    return (2 * rng.binomial(trials, 0.5, size=(size, len(trials))) - trials) @ weights


def _lattice(sizes: Integers) -> Integers:
    """Whole numbers in the ratio of ``1 / sizes``."""
    multiple = lcm(*(int(size) for size in sizes))
    steps = [multiple // int(size) for size in sizes]
    return np.array(steps, dtype=np.int64) // gcd(*steps)


def _span(sizes: Integers, trials: Integers) -> int | None:
    """Length of the transform that holds all but 1e-19 of the distribution; None if it is too long."""
    if len(sizes) == 1:
        return 0
    steps = _lattice(sizes).astype(np.float64)
    deviation = np.sqrt(np.square(steps) @ trials) / 2
    length = 1 << int(np.ceil(np.log2(20 * deviation + 16)))
    return length if length <= _LONGEST_TRANSFORM else None


def signs_p_value(sizes: Integers, wins: Integers, losses: Integers) -> float:
    """Probability that random signs give the wins at least the weight they have.

    Parameters
    ----------
    sizes
        Pairs of a group, for each class of groups of one size: a win weighs ``1 / size``.
    wins, losses
        Pairs on which only the first (only the second) metric is right, of each class.

    Examples
    --------
    >>> signs_p_value(np.array([10]), np.array([8]), np.array([2]))  # P(Bin(10, 1/2) >= 8) = 56 / 1024
    0.0546875
    """
    trials = wins + losses
    if len(sizes) == 1:
        return float(binom.sf(wins[0] - 1, trials[0], 0.5))
    steps = _lattice(sizes)
    length = _span(sizes, trials) or _LONGEST_TRANSFORM
    # The weight of the wins is the sum of steps times binomials. Measured from half of its largest value it
    # has the characteristic function prod cos(step t / 2)^trials, up to the half that was rounded off.
    largest = int(steps @ trials)
    t = 2 * np.pi * np.arange(length) / length
    with np.errstate(divide="ignore"):
        logs = np.zeros(length)
        negative = np.zeros(length, dtype=np.int64)
        for step, count in zip(steps, trials, strict=True):
            wave = np.cos(step * t / 2)
            if count:
                logs += count * np.log(np.abs(wave))
                negative += (wave < 0) * int(count)
    transform = np.where(negative % 2, -1.0, 1.0) * np.exp(logs) * np.exp(1j * t * (largest % 2) / 2)
    chances = np.fft.fftshift(np.fft.fft(transform).real / length)
    bar = int(steps @ wins) - largest // 2 + length // 2
    return float(np.clip(chances[max(bar, 0) :].sum(), _RESOLUTION, 1.0))


def kendall_swap(human: Floats, first: Floats, second: Floats) -> Swap:
    """Swap pairs, and compare mean tau-b over groups.

    Within a group only four kinds of pairs matter: concordant for one metric and discordant for the other,
    concordant or discordant against tied, and, where humans tie, tied against not tied. Of each kind a
    binomial number goes to either hybrid.
    """
    groups = human.shape[1]
    types = np.zeros((4, groups), dtype=np.int64)
    one, other = np.zeros((2, 4, groups), dtype=np.int64)  # concordant, discordant, ties of one side
    blocks = zip(kinds(human, first, 0.0), kinds(human, second, 0.0), strict=True)
    for (part, a, tied, both), (_, b, _, _) in blocks:
        free = both & ~tied
        masks = (
            free & (a * b == -1),
            free & (a + b == 1),
            free & (a + b == -1),
            tied & (a != b),
        )
        types[:, part] += [column_sums(mask) for mask in masks]
        for total, kind in ((one, a), (other, b)):
            total[:, part] += [
                column_sums(mask & both)
                for mask in (free & (kind == 1), free & (kind == -1), tied & (kind == 1), free & (kind == 0))
            ]

    def tau(counts: Integers) -> Floats:
        return tau_b(*counts)

    def means(values: Floats) -> Floats:
        known = ~np.isnan(values)
        return np.where(known, values, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)

    # What both hybrids keep: the pairs on which the metrics say the same.
    effect = np.array([[1, -1, 0, 0], [1, 0, 0, -1], [0, 1, 0, -1], [0, 0, 1, 0]])
    fixed = one + other - np.abs(effect).T @ types

    def draw(rng: np.random.Generator, size: int) -> Floats:
        found = np.empty(size)
        step = max(1, _VALUES // max(1, 4 * groups))
        for start in range(0, size, step):
            n = min(step, size - start)
            to_first = rng.binomial(types, 0.5, size=(n, 4, groups))
            halves = [_dealt(fixed // 2, chosen, types) for chosen in (to_first, types - to_first)]
            found[start : start + n] = np.subtract(*(means(tau(half.swapaxes(0, 1))) for half in halves))
        return found

    delta = float(means(tau(one)) - means(tau(other)))
    return Swap(delta, draw)


def _dealt(shared: Integers, chosen: Integers, types: Integers) -> Integers:
    """Counts of one hybrid: the shared pairs and, of each kind, those dealt to it either way."""
    rest = types - chosen
    return np.stack(
        [
            shared[0] + chosen[:, 0] + chosen[:, 1],
            shared[1] + rest[:, 0] + chosen[:, 2],
            shared[2] + chosen[:, 3],
            shared[3] + rest[:, 1] + rest[:, 2],
        ],
        axis=1,
    )


# Swapping scores -----------------------------------------------------------------------------------------


def _standard(scores: Floats, known: np.ndarray) -> Floats:
    values = scores[known]
    spread = values.std() if len(values) else 0.0
    return (scores - (values.mean() if len(values) else 0.0)) / (spread if spread > 0 else 1.0)


def _signs(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    """Random signs, a bit each."""
    packed = np.frombuffer(rng.bytes(size * ((cells + 7) // 8)), dtype=np.uint8).reshape(size, -1)
    return np.unpackbits(packed, axis=1, count=cells)


def score_swap(name: str, human: Floats, first: Floats, second: Floats) -> Swap:
    """Swap standardised scores (PERM-BOTH, Deutsch et al. 2021), and compare mean figures over groups.

    Parameters
    ----------
    name
        ``pearson``, ``spearman``, ``kendall``, ``tau_23`` or ``acc_eq`` (without a tie threshold).
    human, first, second
        Members by groups; NaN is a missing human score.
    """
    known = ~np.isnan(human)
    first, second = (np.where(known, _standard(scores, known), 0.0) for scores in (first, second))
    enough = known.sum(axis=0) > 1
    members, groups = human.shape

    def mean(values: Floats) -> Floats:
        fine = enough & ~np.isnan(values)
        return np.where(fine, values, 0.0).sum(axis=-1) / np.maximum(fine.sum(axis=-1), 1)

    def differences(bits: np.ndarray) -> Floats:
        size = len(bits)
        own = bits.reshape(size, members, groups).transpose(1, 0, 2).astype(bool)
        gold = np.broadcast_to(human[:, None], own.shape).reshape(members, -1)
        # Chosen, not computed: rounding would break the ties that ranks depend on.
        a, b = first[:, None], second[:, None]
        hybrids = (np.where(own, a, b), np.where(own, b, a))
        values = [by_group(name, gold, h.reshape(members, -1)).reshape(size, groups) for h in hybrids]
        return mean(values[0]) - mean(values[1])

    fast: Callable[[np.ndarray], Floats] = differences
    if name == "pearson":
        fast = _pearson_differences(human, (first + second) / 2, (first - second) / 2, mean)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        step = max(1, _VALUES // max(1, human.size))
        parts = [_signs(rng, min(step, size - start), human.size) for start in range(0, size, step)]
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
    first, second = (np.where(known, _standard(scores, known), 0.0) for scores in (first, second))
    gold = normal_limit(np.where(known, human, 0.0)[None], known)
    half_sum, half_difference = ((first + s * second).astype(np.float32) / 2 for s in (1, -1))
    seen = ~np.isnan(gold[0])

    def accuracy(hybrids: np.ndarray) -> Floats:
        return 1 - np.abs(normal_limit(hybrids, known) - gold)[:, seen].mean(axis=1)

    def differences(bits: np.ndarray) -> Floats:
        step = (2 * bits.reshape(-1, *human.shape).astype(np.float32) - 1) * half_difference
        return accuracy(half_sum + step) - accuracy(half_sum - step)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        block = max(1, _VALUES // max(1, human.size))
        starts = range(0, size, block)
        return np.concatenate([differences(_signs(rng, min(block, size - s), human.size)) for s in starts])

    if len(human) < 2:
        return Swap(float("nan"), draw)
    return Swap(float(differences(np.ones((1, human.size), dtype=np.uint8))[0]), draw)
