from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from grids import pair_of_metrics, random_grid
from scipy.stats import binomtest

from doubtless.metaeval.pair_swaps import (
    agreement_swap,
    item_swap,
    kendall_swap,
    ratio_swap,
    signs_p_value,
)
from doubtless.metaeval.pairs import grouped
from doubtless.metaeval.statistics import Statistic, by_group, segment_figure
from doubtless.metaeval.swaps import (
    Swap,
    mean_of,
    random_bits,
    score_swap,
    soft_swap,
    standardised,
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
@pytest.mark.parametrize("unit", ["pairs", "items"])
def test_exact_p_values_agree_with_ten_thousand_draws(missing, seed, unit):
    human, first, second = pair_of_metrics(systems=5, items=80, missing=missing, seed=seed)
    swap = agreement_swap(human, first, second, (0.0, 0.1), unit=unit)
    exact = verdict(swap)
    assert exact.draws == 0
    assert share_reached(swap, 10_000) == pytest.approx(exact.p, abs=4 * 0.5 / 100)


@pytest.mark.parametrize(
    ("steps", "wins", "losses"),
    [
        ([2, 1], [3, 2], [1, 2]),
        ([30, 10, 3], [2, 3, 1], [1, 0, 3]),
        ([5, 2], [0, 4], [0, 1]),
        ([0, 1], [3, 2], [1, 4]),
    ],
)
def test_the_transform_adds_up_all_sign_vectors(steps, wins, losses):
    weights = np.repeat(steps, np.array(wins) + losses)
    seen = np.dot(steps, np.array(wins) - losses)
    every = np.array([np.dot(weights, signs) for signs in product((-1, 1), repeat=len(weights))])
    p = signs_p_value(np.array(steps, dtype=float), np.array(wins), np.array(losses))
    assert p == pytest.approx((every >= seen).mean(), abs=1e-12)


def test_swapping_items_is_the_same_from_counts_and_from_shares():
    human, first, second = pair_of_metrics(systems=5, items=80, missing=0.2, seed=1)
    counted = agreement_swap(human, first, second, (0.0, 0.0), unit="items")
    shares = item_swap(by_group("acc_eq", human, first), by_group("acc_eq", human, second))
    assert shares.delta == pytest.approx(counted.delta)
    assert share_reached(shares, 10_000) == pytest.approx(verdict(counted).p, abs=0.02)


def test_swapping_items_is_valid_and_swapping_pairs_is_not():
    """Equally good metrics: pairs of an item share translations, and are not independent."""
    found = {"items": [], "pairs": []}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=(12, 60))
        human = np.round(quality)
        first, second = quality + rng.normal(size=(2, 12, 60))
        for unit, p in found.items():
            p.append(verdict(agreement_swap(human, first, second, (0.0, 0.0), unit=unit)).p)
    share = {unit: np.mean(np.array(p) <= 0.05) for unit, p in found.items()}
    assert share["items"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert share["pairs"] > 0.1


@pytest.mark.parametrize("name", ["pdp", "darr"])
@pytest.mark.parametrize("unit", ["items", "scores"])
def test_ratios_of_sums_are_swapped_as_all_swaps_together(name, unit):
    shape = (5, 8) if unit == "items" else (3, 4)
    human, first, second = pair_of_metrics(*shape, missing=0.2, seed=1)
    swap = (ratio_swap if unit == "items" else score_swap)(name, human, first, second)
    known = ~np.isnan(human)
    a, b = (np.where(known, standardised(x, known), 0.0) for x in (first, second))

    def measure(scores):
        return segment_figure(Statistic(name, by="item"), human, scores).value

    cells = np.array(list(product((True, False), repeat=8 if unit == "items" else 12)))
    keep = cells[:, None, :] if unit == "items" else cells.reshape(-1, *shape)
    every = [measure(np.where(own, a, b)) - measure(np.where(own, b, a)) for own in keep]
    assert swap.delta == pytest.approx(measure(first) - measure(second))
    assert share_reached(swap, 10_000) == pytest.approx(
        np.mean(np.array(every) >= every[0] - 1e-12), abs=0.02
    )


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
    known = ~np.isnan(human)
    a, b = (np.where(known, standardised(x, known), 0.0) for x in (first, second))
    own = random_bits(np.random.default_rng(3), 20, human.size).reshape(20, *human.shape).astype(bool)
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
        agreement_swap(human, metric, metric, (0.0, 0.0), unit="items"),
        kendall_swap(human, metric, metric),
        item_swap(metric[0], metric[0]),
        ratio_swap("pdp", human, metric, metric),
        score_swap("pearson", human, metric, metric),
        score_swap("pdp", human, metric, metric),
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
