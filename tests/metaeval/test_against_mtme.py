"""Equal to mt-metrics-eval wherever it is right; golden/make.py says how its figures were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from grids import pair_of_metrics, random_grid

from doubtless.metaeval.compare import Plan, compare
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pair_swaps import agreement_swap, kendall_swap
from doubtless.metaeval.pairs import grouped
from doubtless.metaeval.soft import soft_pairwise_accuracy
from doubtless.metaeval.statistics import Statistic, segment_figure
from doubtless.metaeval.swaps import score_swap, verdict
from doubtless.metaeval.ties import calibrate_ties

GOLDEN = json.loads((Path(__file__).parent / "golden" / "mtme.json").read_text())
FIGURES = [(row["case"], name, value) for row in GOLDEN["theirs"] for name, value in row["figures"].items()]
DEPENDENT = [(row["case"], *row["williams"]) for row in GOLDEN["dependent"]]
TESTS = [(row["case"], name, *value) for row in GOLDEN["permuted"] for name, value in row["tests"].items()]


def statistic(name: str) -> Statistic:
    kind, _, by = name.partition("/")
    if kind == "pearson0":
        return Statistic("pearson", by=by, undefined="zero")
    if kind == "acc_eq(0.3)":
        return Statistic("acc_eq", by=by, epsilon=0.3)
    return Statistic.parse(name)


@pytest.mark.parametrize(("case", "name", "theirs"), FIGURES)
def test_every_statistic_is_equal(case, name, theirs):
    human, metric = random_grid(**case)
    if name == "spa":
        ours = soft_pairwise_accuracy(human, metric)
    else:
        ours = segment_figure(statistic(name), human, metric).value
    assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(("case", "name", "p", "delta"), TESTS)
def test_every_permutation_test_is_equal_to_monte_carlo_error(case, name, p, delta):
    kind, _, rest = name.partition(":")
    measure, _, by = rest.partition("/")
    scores = [grouped(x, by) for x in pair_of_metrics(**case)]
    if kind == "scores":
        swap = score_swap(measure, *scores)
    elif measure == "acc_eq":
        swap = agreement_swap(*scores, (0.1, 0.2))
    else:
        swap = kendall_swap(*scores)
    assert swap.delta == pytest.approx(delta, abs=1e-9)
    draws = 1000 if kind == "pairs" else 400
    found = verdict(swap, draws=draws, stop=draws + 1)
    theirs = 1000 if name.startswith("pairs") and by == "item" else 300
    spread = np.sqrt(0.25 / theirs + (0.25 / draws if found.draws else 0))
    assert found.p == pytest.approx(p, abs=3.5 * spread + 1 / draws)


@pytest.mark.parametrize(("case", "p", "first", "second"), DEPENDENT)
def test_williams_test_is_equal(case, p, first, second):
    """The peer gives the p-value of the better metric, whichever of the two it is."""
    human, one, other = pair_of_metrics(**case)
    systems = tuple(f"s{i}" for i in range(len(human)))
    grid = Grid("en-de", systems, human, {"one": one, "other": other})
    found = compare(Statistic("pearson", "system"), [grid], ["one", "other"], Plan(test="williams"))
    values = {s.metric: s.value for s in found.standings}
    assert (values["one"], values["other"]) == pytest.approx((first, second), abs=1e-9)
    assert [v.p for v in found.verdicts.values()] == pytest.approx([p], abs=1e-9)
    assert "test:williams.1.exact" in found.signature


def test_a_segment_rated_for_one_system_only_is_no_group():
    """The peer divides by zero in its pairwise test when a group has one member."""
    human, first, second = pair_of_metrics(systems=4, items=20, missing=0.0, seed=0)
    human[1:, 5] = np.nan
    swap = agreement_swap(human, first, second, (0.0, 0.0))
    rest = np.arange(20) != 5
    alone = agreement_swap(human[:, rest], first[:, rest], second[:, rest], (0.0, 0.0))
    assert swap.delta == pytest.approx(alone.delta)
    assert verdict(swap).p == pytest.approx(verdict(alone).p)


def test_soft_accuracy_of_ragged_scores_compares_the_segments_that_both_systems_have():
    """The peer drops missing scores from one long vector and cuts it into systems of the wrong segments."""
    rng = np.random.default_rng(0)
    human = rng.normal(size=(3, 400)) + np.array([[0.0], [0.3], [0.6]])
    ragged = human.copy()
    ragged[0, :100] = ragged[1, 300:] = np.nan
    assert soft_pairwise_accuracy(ragged, human) == 1.0
    shifted = human + 5.0 * np.arange(400) / 400  # a trend over segments that misalignment would confuse
    assert soft_pairwise_accuracy(ragged, shifted) == pytest.approx(1.0, abs=0.01)


def test_a_constant_metric_has_no_correlation_and_says_so():
    """The peer reports 0 when no group has a correlation, and drops such groups without a word."""
    human, metric = random_grid(systems=4, items=10, missing=0.0, seed=1)
    constant = segment_figure(Statistic("kendall", by="item"), human, np.ones_like(human))
    assert np.isnan(constant.value)
    assert constant.undefined == 10
    some = segment_figure(Statistic("kendall", by="item"), human, metric)
    assert some.undefined >= 3
    zero = segment_figure(Statistic("kendall", by="item", undefined="zero"), human, metric)
    assert zero.value == pytest.approx(some.value * (some.groups - some.undefined) / some.groups)


def test_equal_sums_in_another_order_count_as_reached():
    """In single precision tenths do not add up alike: the peer's p-values depend on rounding."""
    from doubtless.metaeval.soft import pairwise_p_values

    scores = np.array([[0.1, 0.2, 0.3, 0.0], [0.0, 0.0, 0.0, 0.0]])
    p = pairwise_p_values(scores, np.ones((2, 4), dtype=bool), permutations=4000, seed=0)
    # The sum is reached only if all three signs are positive.
    assert p[0] == pytest.approx(1 / 8, abs=0.02)


def test_a_missing_human_score_may_be_nan():
    """The peer's tie calibration takes NaN for a score."""
    human, metric = random_grid(systems=4, items=10, missing=0.3, seed=1)
    keep = [~np.isnan(human[:, i]) for i in range(10)]
    best = calibrate_ties(human, metric)
    shares = []
    for i, known in enumerate(keep):
        h, m = human[known, i], metric[known, i]
        first, second = np.triu_indices(len(h), 1)
        if len(first):
            tied = np.abs(m[first] - m[second]) <= best.epsilon
            sign = np.where(tied, 0, np.sign(m[first] - m[second]))
            shares.append((sign == np.sign(h[first] - h[second])).mean())
    assert best.accuracy == pytest.approx(np.mean(shares))
