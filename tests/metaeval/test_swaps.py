from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from grids import pair_of_metrics, random_grid
from scipy.stats import binomtest

from doubtless.metaeval.pairs import grouped
from doubtless.metaeval.swaps import (
    Swap,
    agreement_swap,
    kendall_swap,
    mean_of,
    score_swap,
    signs_p_value,
    soft_swap,
    verdict,
)


def share_reached(swap, draws, seed=0):
    return float((swap.draw(np.random.default_rng(seed), draws) >= swap.delta - 1e-12).mean())


def test_on_a_complete_grid_the_test_is_a_sign_test():
    human, first, second = pair_of_metrics(systems=6, items=60, missing=0.0, seed=2)
    swap = agreement_swap(human, first, second, (0.1, 0.2))
    right = [_agree(human, x, e) for x, e in ((first, 0.1), (second, 0.2))]
    wins, losses = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    assert verdict(swap).p == pytest.approx(binomtest(wins, wins + losses, alternative="greater").pvalue)
    assert verdict(swap).draws == 0


def _agree(human, metric, epsilon):
    first, second = np.triu_indices(len(human), 1)
    step = metric[first] - metric[second]
    return np.where(np.abs(step) <= epsilon, 0, np.sign(step)) == np.sign(human[first] - human[second])


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_p_values_agree_with_ten_thousand_draws(missing, seed):
    human, first, second = pair_of_metrics(systems=5, items=80, missing=missing, seed=seed)
    swap = agreement_swap(human, first, second, (0.0, 0.1))
    exact = verdict(swap)
    assert exact.draws == 0
    assert share_reached(swap, 10_000) == pytest.approx(exact.p, abs=4 * 0.5 / 100)


@pytest.mark.parametrize(
    ("sizes", "wins", "losses"),
    [([3, 6], [3, 2], [1, 2]), ([1, 3, 10], [2, 3, 1], [1, 0, 3]), ([6, 15], [0, 4], [0, 1])],
)
def test_the_transform_adds_up_all_sign_vectors(sizes, wins, losses):
    weights = np.repeat(1 / np.array(sizes), np.array(wins) + losses)
    seen = float(np.dot(1 / np.array(sizes), np.array(wins) - losses))
    every = np.array([np.dot(weights, signs) for signs in product((-1, 1), repeat=len(weights))])
    p = signs_p_value(np.array(sizes), np.array(wins), np.array(losses))
    assert p == pytest.approx((every >= seen - 1e-9).mean(), abs=1e-12)


def test_few_systems_are_swapped_in_all_ways():
    rng = np.random.default_rng(0)
    human = rng.normal(size=(8, 1))
    first, second = human + 0.5 * rng.normal(size=(8, 1)), human + rng.normal(size=(8, 1))
    for name in ("pearson", "spearman", "acc_eq"):
        swap = score_swap(name, human, first, second)
        found = verdict(swap)
        assert found.draws == 0
        assert share_reached(swap, 10_000) == pytest.approx(found.p, abs=0.02)
        assert found.p >= 2**-8  # the identity always reaches the difference


@pytest.mark.parametrize("by", ["none", "item", "system"])
def test_the_fast_way_of_pearson_is_the_slow_way(by):
    human, first, second = (grouped(x, by) for x in pair_of_metrics(systems=5, items=40, missing=0.2, seed=1))
    fast = score_swap("pearson", human, first, second).draw(np.random.default_rng(3), 20)
    from doubtless.metaeval.statistics import by_group
    from doubtless.metaeval.swaps import _signs, _standard

    known = ~np.isnan(human)
    a, b = (np.where(known, _standard(x, known), 0.0) for x in (first, second))
    own = _signs(np.random.default_rng(3), 20, human.size).reshape(20, *human.shape).astype(bool)
    slow = [
        np.nanmean(by_group("pearson", human, np.where(w, a, b)))
        - np.nanmean(by_group("pearson", human, np.where(w, b, a)))
        for w in own
    ]
    assert fast == pytest.approx(slow, abs=1e-9)


def test_p_values_are_valid_with_early_stopping():
    rng = np.random.default_rng(0)
    found = []
    for i in range(400):
        seen = float(rng.normal())
        found.append(verdict(Swap(seen, lambda r, n: r.normal(size=n)), draws=200, stop=10, seed=i))
    p = np.array([v.p for v in found])
    assert any(v.draws < 200 for v in found)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / 400)
    assert p.min() >= 1 / 201


def test_metrics_that_say_the_same_are_not_told_apart():
    human, metric = random_grid(systems=5, items=30, missing=0.1, seed=0)
    for swap in (
        agreement_swap(human, metric, metric, (0.0, 0.0)),
        kendall_swap(human, metric, metric),
        score_swap("pearson", human, metric, metric),
        soft_swap(human, metric, metric),
    ):
        assert verdict(swap, stop=5000).p == 1.0


def test_the_same_seed_gives_the_same_p_value():
    human, first, second = pair_of_metrics(systems=5, items=30, missing=0.1, seed=0)
    swap = score_swap("spearman", human, first, second)
    assert verdict(swap, draws=100, seed=3) == verdict(swap, draws=100, seed=3)


def test_language_pairs_are_averaged():
    one, other = Swap(1.0, lambda r, n: np.ones(n)), Swap(3.0, lambda r, n: 3 * np.ones(n))
    both = mean_of([one, other], np.array([3.0, 1.0]))
    assert both.delta == 1.5
    assert both.draw(np.random.default_rng(0), 2).tolist() == [1.5, 1.5]


def test_a_clearly_better_metric_separates_systems_more_surely():
    rng = np.random.default_rng(0)
    human = rng.normal(size=(6, 300)) + 0.1 * np.arange(6)[:, None]
    good, bad = human + 0.3 * rng.normal(size=(6, 300)), rng.normal(size=(6, 300))
    assert verdict(soft_swap(human, good, bad), draws=200).p < 0.05
