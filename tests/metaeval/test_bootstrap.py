from __future__ import annotations

import numpy as np
import pytest
from grids import random_grid

from doubtless.metaeval.bootstrap import draw_weights, interval, resampled
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.statistics import Statistic, figure, segment_figure

SEGMENT = [
    *(f"{name}/{by}" for name in ("pearson", "spearman", "kendall") for by in ("none", "item", "system")),
    "acc_eq/item",
    "acc_eq*/item",
    "acc_eq*/none",
    "tau_23*/item",
    "tau_c/item",
    "tau_c/none",
    "pdp/item",
    "darr/item",
]


@pytest.fixture
def grid():
    human, metric = random_grid(systems=5, items=24, missing=0.2, seed=0)
    return Grid("en-de", tuple("abcde"), human, {"m": metric + 0.01 * np.arange(24)})


@pytest.mark.parametrize("name", SEGMENT)
def test_weights_are_repetitions_of_items(grid, name):
    statistic = Statistic.parse(name)
    weights = draw_weights(np.random.default_rng(1), 24, 4)
    fast = resampled(statistic, grid, "m", weights)
    for value, times in zip(fast, weights.astype(int), strict=True):
        human, metric = (np.repeat(x, times, axis=1) for x in grid.segment_scores("m"))
        assert value == pytest.approx(segment_figure(statistic, human, metric).value, abs=1e-9)


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall", "accuracy", "spa"])
def test_every_system_once_is_the_figure_itself(grid, name):
    statistic = Statistic(name, "system")
    found = resampled(statistic, grid, "m", np.ones((1, 5)))
    assert found[0] == pytest.approx(figure(statistic, grid, "m").value)


def test_a_system_is_not_compared_with_its_copy(grid):
    weights = np.array([[5.0, 0, 0, 0, 0], [3.0, 2, 0, 0, 0]])
    found = resampled(Statistic("accuracy", "system"), grid, "m", weights)
    assert np.isnan(found[0])
    assert found[1] in (0.0, 1.0)


def test_intervals_hold_what_they_should():
    """A 90 % interval of Pearson's correlation holds the true one in about 90 % of samples."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        quality = rng.normal(size=(1, 200))
        human, metric = (quality + rng.normal(size=(1, 200)) for _ in range(2))
        grid = Grid("x", ("a",), human, {"m": metric})
        weights = draw_weights(rng, 200, 200)
        low, high = interval(resampled(Statistic("pearson"), grid, "m", weights), 0.9)
        hits += low <= 0.5 <= high
    assert 80 <= hits <= 98
