"""Seeded random grids of scores, with ties, missing values and ragged groups."""

from __future__ import annotations

import numpy as np

CASES = [
    {"systems": 6, "items": 40, "missing": 0.0, "seed": 0},
    {"systems": 6, "items": 40, "missing": 0.2, "seed": 1},
    {"systems": 9, "items": 100, "missing": 0.6, "seed": 2},
    {"systems": 5, "items": 30, "missing": 0.8, "seed": 3},
    {"systems": 15, "items": 60, "missing": 0.0, "seed": 4},
    {"systems": 2, "items": 50, "missing": 0.1, "seed": 5},
    {"systems": 7, "items": 50, "missing": 0.0, "seed": 6, "unrated": 0.3},
]
PERMUTED = [
    {"systems": 6, "items": 60, "missing": 0.0, "seed": 10},
    {"systems": 6, "items": 60, "missing": 0.2, "seed": 11},
]


DEPENDENT = [
    {"systems": 8, "items": 1, "missing": 0.0, "seed": 20},
    {"systems": 15, "items": 1, "missing": 0.0, "seed": 21},
    {"systems": 4, "items": 1, "missing": 0.0, "seed": 22},
    {"systems": 30, "items": 1, "missing": 0.0, "seed": 23},
]


def random_grid(
    systems: int, items: int, missing: float, seed: int, unrated: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Human scores in steps of ten and metric scores in steps of an eighth; three items the metric ties.

    A share of the scores is ``missing``, a share of the items ``unrated`` for all systems.
    """
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, items)) + np.linspace(0, 1, systems)[:, None]
    human = np.round(quality * 1.5) * 10
    # Eighths are exact in single precision, in which the peer adds up for its soft pairwise accuracy.
    metric = np.round((quality + rng.normal(size=(systems, items))) * 8) / 8
    metric[:, :3] = 1.0
    human[rng.random((systems, items)) < missing] = np.nan
    human[:, rng.random(items) < unrated] = np.nan
    return human, metric


def pair_of_metrics(
    systems: int, items: int, missing: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Human scores and two metrics of about the same quality; each group has two scores or more."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, items))
    human = np.round(quality * 1.5) * 10
    first = np.round((quality + rng.normal(size=(systems, items))) * 8) / 8
    second = np.round((quality + 1.1 * rng.normal(size=(systems, items))) * 8) / 8
    holes = rng.random((systems, items)) < missing
    holes[:2] = False
    human[holes] = np.nan
    return human, first, second
