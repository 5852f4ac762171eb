"""Soft pairwise accuracy (Thompson et al. 2024): does a metric separate systems as surely as humans do?

For each pair of systems a paired permutation test on segments says how sure the scores are that one is
better. The accuracy is one minus the mean difference of the p-values of humans and metric.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from doubtless.metaeval.pairs import Floats

SIGNS_SEED = 4  # of the published procedure, so that figures can be compared
PERMUTATIONS = 1000


def pairwise_p_values(
    scores: Floats, known: np.ndarray, *, permutations: int = PERMUTATIONS, seed: int = SIGNS_SEED
) -> Floats:
    """One-sided p-values that the first of two systems is better, for all pairs, by flipping signs.

    Parameters
    ----------
    scores
        Systems by items.
    known
        Which of them may be used. A pair of systems is compared on the items that both have.
    permutations, seed
        The number of random sign vectors (shared by all pairs) and their seed.

    Examples
    --------
    >>> scores = np.array([[0.8, 0.9, 0.7, 1.0, 0.6], [0.2, 0.3, 0.1, 0.4, 0.0]])
    >>> p = pairwise_p_values(scores, np.ones((2, 5), dtype=bool))
    >>> bool(abs(p[0] - 1 / 32) < 0.02)
    True
    """
    return _p_values(scores[None], known, permutations, seed)[0]


def _p_values(stack: Floats, known: np.ndarray, permutations: int, seed: int) -> Floats:
    """P-values of several scores of the same systems and items, with the same signs."""
    rated = known.any(axis=0)  # items that nobody rated draw no signs, as in the published procedure
    stack, known = stack[:, :, rated], known[:, rated]
    kinds, systems, items = stack.shape
    first, second = np.triu_indices(systems, 1)
    filled = np.where(known, stack, 0.0)
    complete = bool(known.all())
    if complete:  # signs times differences are differences of signs times scores
        columns = filled.reshape(kinds * systems, items).T
    else:
        both = known[first] & known[second]
        pairs = np.where(both, filled[:, first] - filled[:, second], 0.0)
        columns = pairs.reshape(kinds * len(first), items).T

    def sums_of_pairs(sums: Floats) -> Floats:
        if not complete:
            return sums.reshape(-1, kinds, len(first))
        parts = sums.reshape(-1, kinds, systems)
        return parts[:, :, first] - parts[:, :, second]

    # Sums of the same numbers in another order differ by rounding; equal sums must count as reached.
    bar = sums_of_pairs(columns.sum(axis=0))[0]
    bar = bar - 1e-12 * np.abs(filled).sum(axis=(1, 2))[:, None]
    draws = np.random.default_rng(seed).random(size=(permutations, items), dtype=np.float32)
    reached = np.zeros(bar.shape)
    step = max(1, (1 << 20) // max(1, items))
    for start in range(0, permutations, step):
        signs = 2.0 * np.rint(draws[start : start + step]).astype(np.float64) - 1.0
        reached += (sums_of_pairs(signs @ columns) >= bar).sum(axis=0)
    return reached / permutations


def soft_accuracies(human: Floats, metric: Floats) -> Floats:
    """One minus the difference of the p-values of each pair of systems; NaN without common items."""
    known = ~np.isnan(human)
    first, second = np.triu_indices(len(human), 1)
    common = (known[first] & known[second]).any(axis=1)
    gold, mine = _p_values(np.stack([human, metric]), known, PERMUTATIONS, SIGNS_SEED)
    return np.where(common, 1.0 - np.abs(gold - mine), np.nan)


def soft_pairwise_accuracy(human: Floats, metric: Floats) -> float:
    """Mean of :func:`soft_accuracies` over the pairs of systems (systems by items, NaN: no human score).

    >>> scores = np.random.default_rng(0).normal(size=(3, 50)) + np.array([[0.0], [1.0], [2.0]])
    >>> soft_pairwise_accuracy(scores, scores)
    1.0
    """
    values = soft_accuracies(human, metric)
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def normal_limit(scores: Floats, known: np.ndarray) -> Floats:
    """The limit of :func:`pairwise_p_values` for many items, for many hybrids at once.

    Under random signs the sum of the differences has mean zero and the sum of their squares as variance.
    Both come from products of the scores with each other, so that no differences need to be laid out.

    Parameters
    ----------
    scores
        Hybrids by systems by items, 0 where nothing is known.
    known
        Systems by items.
    """
    first, second = np.triu_indices(scores.shape[1], 1)
    there = known.astype(scores.dtype)
    sums = scores @ there.T
    squares = np.square(scores) @ there.T
    products = scores @ scores.transpose(0, 2, 1)
    total = sums[:, first, second] - sums[:, second, first]
    variance = squares[:, first, second] + squares[:, second, first] - 2 * products[:, first, second]
    # Equal scores leave a variance of rounding; every permutation reaches their sum of zero, so p = 1.
    floor = 1e-6 if scores.dtype == np.float32 else 1e-12
    certain = variance <= floor * (squares[:, first, second] + squares[:, second, first])
    deviation = np.sqrt(np.where(certain, 1.0, variance))
    return np.where(certain, 1.0, ndtr(-total / deviation))
