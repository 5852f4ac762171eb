"""Permutation tests that swap what two metrics say about whole items, or about pairs of translations.

Counting agreement, every item (or pair) adds plus or minus a fixed weight under random swaps. Units of one
weight add up to a binomial: the test is a sign test. Several weights make a sum of binomials on a lattice,
whose distribution is computed by a Fourier transform.

Pairs of one item share translations, so that they are not independent: swapping them one by one, as the WMT
tasks do since 2023, finds differences too easily. Swapping whole items does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import gcd, lcm

import numpy as np
from scipy.stats import binom

from doubtless.metaeval.pairs import Floats, Integers, agreements, column_sums, kinds, tau_b
from doubtless.metaeval.statistics import ratio, ratio_parts
from doubtless.metaeval.swaps import VALUES, Swap, random_bits, standardised

_LONGEST_TRANSFORM = 1 << 22
_RESOLUTION = 1e-15  # p-values below are lost in the rounding of the transform


def agreement_swap(
    human: Floats,
    first: Floats,
    second: Floats,
    epsilons: tuple[float, float],
    *,
    unit: str = "pairs",
    scale: float = 1.0,
) -> Swap:
    """Compare mean agreement over groups (acc_eq; with ``scale=2`` tau_23) of two metrics.

    Parameters
    ----------
    human, first, second
        Members by groups; NaN is a missing human score.
    epsilons
        The tie threshold of each metric.
    unit
        What is swapped: ``pairs`` one by one, or all pairs of a group together (``items``).

    Examples
    --------
    >>> from doubtless.metaeval.swaps import verdict
    >>> rng = np.random.default_rng(0)
    >>> human = rng.normal(size=(5, 80))
    >>> good, bad = human + rng.normal(size=(5, 80)), human + 3 * rng.normal(size=(5, 80))
    >>> bool(verdict(agreement_swap(human, good, bad, (0.0, 0.0), unit="items")).p < 0.01)
    True
    """
    wins, losses, pairs = np.zeros((3, human.shape[1]), dtype=np.int64)
    blocks = zip(agreements(human, first, epsilons[0]), agreements(human, second, epsilons[1]), strict=True)
    for (part, right, both), (_, also, _) in blocks:
        wins[part] += column_sums(right & ~also)
        losses[part] += column_sums(also & ~right)
        pairs[part] += column_sums(both)
    used = pairs > 0
    if not used.any():
        return Swap(float("nan"), lambda rng, size: np.full(size, np.nan), unit=unit)
    wins, losses, pairs = wins[used], losses[used], pairs[used]
    delta = float(scale * ((wins - losses) / pairs).mean())
    parts = np.ones_like(pairs)
    if unit == "items":
        surplus = wins - losses
        parts, wins, losses = (
            np.abs(surplus),
            np.maximum(np.sign(surplus), 0),
            np.maximum(-np.sign(surplus), 0),
        )
    # Units of one weight (a share of the pairs of a group) are alike.
    kinds_of_unit, place = np.unique(np.stack([parts, pairs]), axis=1, return_inverse=True)
    steps, unit_weight = _lattice([Fraction(int(c), int(n)) for c, n in kinds_of_unit.T])
    won, lost = (np.bincount(place, weights=x).astype(np.int64) for x in (wins, losses))
    worth = steps * (float(unit_weight) * scale / len(pairs))
    exact = partial(signs_p_value, steps, won, lost)
    feasible = _length(steps, won + lost) <= _LONGEST_TRANSFORM
    return Swap(delta, partial(_draw_signs, worth, won + lost), exact if feasible else None, unit)


def _draw_signs(worth: Floats, trials: Integers, rng: np.random.Generator, size: int) -> Floats:
    return (2 * rng.binomial(trials, 0.5, size=(size, len(trials))) - trials) @ worth


def _lattice(weights: Sequence[Fraction]) -> tuple[np.ndarray, Fraction]:
    """Weights as whole multiples of one weight, as large as possible."""
    below = lcm(*(w.denominator for w in set(weights)))
    whole = {w: int(w * below) for w in set(weights)}
    common = gcd(*whole.values()) or 1
    return np.array([float(whole[w] // common) for w in weights]), Fraction(common, below)


def _length(steps: Floats, trials: Integers) -> float:
    """Length of the transform that holds all but 1e-19 of the distribution; 0 where none is needed."""
    moving = (steps > 0) & (trials > 0)
    if moving.sum() <= 1:
        return 0
    deviation = np.sqrt(np.square(steps[moving]) @ trials[moving]) / 2
    return float(2.0 ** np.ceil(np.log2(20 * deviation + 16)))


def signs_p_value(steps: Floats, wins: Integers, losses: Integers) -> float:
    """Probability that random signs give the wins at least the weight they have.

    Parameters
    ----------
    steps
        Weights, as whole numbers.
    wins, losses
        How many units of each weight speak for the first and for the second metric.

    Examples
    --------
    >>> signs_p_value(np.array([1.0]), np.array([8]), np.array([2]))  # P(Bin(10, 1/2) >= 8) = 56 / 1024
    0.0546875
    """
    moving = (steps > 0) & (wins + losses > 0)
    whole, wins, trials = steps[moving].astype(np.int64), wins[moving], (wins + losses)[moving]
    if not len(whole):
        return 1.0
    if len(whole) == 1:
        return float(binom.sf(wins[0] - 1, trials[0], 0.5))
    length = int(_length(steps[moving], trials))
    # The weight of the wins is the sum of steps times binomials. Measured from half of its largest value it
    # has the characteristic function prod cos(step t / 2)^trials, up to the half that was rounded off.
    largest = int(whole @ trials)
    t = 2 * np.pi * np.arange(length) / length
    logs, negative = np.zeros(length), np.zeros(length, dtype=bool)
    with np.errstate(divide="ignore"):
        for step, count in zip(whole, trials, strict=True):
            wave = np.cos(step * t / 2)
            logs += count * np.log(np.abs(wave))
            negative ^= (wave < 0) & bool(count % 2)
    transform = np.where(negative, -1.0, 1.0) * np.exp(logs) * np.exp(1j * t * (largest % 2) / 2)
    chances = np.fft.fftshift(np.fft.fft(transform).real / length)
    bar = int(whole @ wins) - largest // 2 + length // 2
    return float(np.clip(chances[max(bar, 0) :].sum(), _RESOLUTION, 1.0))


def item_swap(first: Floats, second: Floats) -> Swap:
    """Swap whole items, and compare the means of a figure that each item has (NaN: it has none).

    >>> round(item_swap(np.array([0.5, 0.7, np.nan]), np.array([0.4, 0.6, 0.5])).delta, 6)
    0.1
    """
    parts = [np.nan_to_num(np.stack([values, ~np.isnan(values)])) for values in (first, second)]
    return _swap_of_sums(parts[0], parts[1], lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1))


def ratio_swap(name: str, human: Floats, first: Floats, second: Floats) -> Swap:
    """Swap whole items, and compare a figure that is a ratio of sums over items (``pdp``, ``darr``).

    Both metrics are standardised: the differences of one must not weigh more than those of the other.
    """
    known = ~np.isnan(human)
    parts = [ratio_parts(name, human, standardised(scores, known)) for scores in (first, second)]
    return _swap_of_sums(parts[0], parts[1], partial(ratio, name))


def _swap_of_sums(first: Floats, second: Floats, figure: Callable[[Floats], Floats]) -> Swap:
    """Swap items, each of which adds its parts (parts by items) to the sums that a figure is made of."""
    step, rest, total = (first - second).T, second.sum(axis=1), (first + second).sum(axis=1)

    def differences(bits: np.ndarray) -> Floats:
        mine = bits.astype(np.float64) @ step + rest
        return figure(mine) - figure(total - mine)

    def draw(rng: np.random.Generator, size: int) -> Floats:
        block = max(1, VALUES // max(1, len(step)))
        starts = range(0, size, block)
        return np.concatenate(
            [differences(random_bits(rng, min(block, size - s), len(step))) for s in starts]
        )

    return Swap(float(differences(np.ones((1, len(step)), dtype=np.uint8))[0]), draw, unit="items")


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
        step = max(1, VALUES // max(1, 4 * groups))
        for start in range(0, size, step):
            n = min(step, size - start)
            to_first = rng.binomial(types, 0.5, size=(n, 4, groups))
            halves = [_dealt(fixed // 2, chosen, types) for chosen in (to_first, types - to_first)]
            found[start : start + n] = np.subtract(*(means(tau(half.swapaxes(0, 1))) for half in halves))
        return found

    delta = float(means(tau(one)) - means(tau(other)))
    return Swap(delta, draw, unit="pairs")


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
