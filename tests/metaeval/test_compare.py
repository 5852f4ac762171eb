from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grids import random_grid

from doubtless.errors import InputError
from doubtless.metaeval.compare import Plan, clusters, compare, pooled
from doubtless.metaeval.grid import Grid, grids_of
from doubtless.metaeval.presets import preset, run, tasks_of
from doubtless.metaeval.statistics import Statistic, figure, segment_figure
from doubtless.metaeval.swaps import Verdict
from doubtless.segments import as_table


def noisy(systems=6, items=80, seed=0, name="en-de"):
    """A good metric, a second as good, a poor one and a constant one."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, items)) + np.linspace(0, 1.5, systems)[:, None]
    human = np.round(2 * quality)
    human[rng.random((systems, items)) < 0.1] = np.nan
    metrics = {
        "good": quality + 0.5 * rng.normal(size=quality.shape),
        "also": quality + 0.5 * rng.normal(size=quality.shape),
        "poor": quality + 4.0 * rng.normal(size=quality.shape),
        "constant": np.ones_like(quality),
    }
    return Grid(name, tuple(f"s{i}" for i in range(systems)), human, metrics)


QUICK = Plan(resamples=50, draws=200)


@pytest.mark.parametrize(
    "name",
    [
        "segment:pearson",
        "segment:kendall/item",
        "segment:acc_eq*/item",
        "segment:spearman/system",
        "segment:tau_c/item",
        "segment:pdp/item",
        "system:spa",
    ],
)
def test_equals_share_a_rank_and_worse_ones_do_not(name):
    grids = [noisy(seed=1), noisy(seed=2, name="en-cs")]
    found = compare(Statistic.parse(name), grids, ["poor", "good", "also"], QUICK)
    ranks = {s.metric: s.rank for s in found.standings}
    assert ranks["good"] == ranks["also"] == 1
    assert ranks["poor"] == 2
    for s in found.standings:
        assert s.low <= s.value <= s.high
        assert set(s.by_pair) == {"en-de", "en-cs"}
        assert s.value == pytest.approx(np.mean([f.value for f in s.by_pair.values()]))


def test_scores_are_swapped_as_in_2022_if_asked():
    metrics, plan = ["good", "poor"], Plan(resamples=0, draws=100, unit="scores")
    for name in ("kendall/item", "acc_eq/item", "pdp/none"):
        found = compare(Statistic.parse(name), [noisy()], metrics, plan)
        assert "test:scores." in found.signature
        assert found.standings[1].rank == 2
    with pytest.raises(InputError, match="'segment:acc_eq\\*/item' cannot swap scores"):
        compare(Statistic.parse("acc_eq*/item"), [noisy()], metrics, plan)
    with pytest.raises(InputError, match="'segment:darr' are tested within items only"):
        compare(Statistic.parse("darr"), [replace(noisy(), human=30 * noisy().human)], metrics, plan)


def test_a_metric_without_a_figure_is_listed_last_without_a_rank():
    found = compare(Statistic("pearson"), [noisy()], ["constant", "good"], QUICK)
    last = found.standings[-1]
    assert (last.metric, last.rank) == ("constant", None)
    assert np.isnan(last.value)
    assert last.by_pair["en-de"].undefined == 1


def test_micro_pools_items_and_pairs_of_systems():
    grids = [noisy(systems=4, items=20, seed=1), noisy(systems=7, items=60, seed=2, name="en-cs")]
    micro = compare(Statistic("kendall", by="item"), grids, ["good"], Plan("micro", 0, 0)).standings[0]
    parts = [figure(Statistic("kendall", by="item"), grid, "good") for grid in grids]
    sizes = np.array([part.groups - part.undefined for part in parts])
    assert micro.value == pytest.approx(np.average([part.value for part in parts], weights=sizes))
    accuracy = compare(Statistic("accuracy", "system"), grids, ["good"], Plan("micro", 0, 0)).standings[0]
    each = [figure(Statistic("accuracy", "system"), grid, "good").value for grid in grids]
    assert accuracy.value == pytest.approx((6 * each[0] + 21 * each[1]) / 27)
    with pytest.raises(InputError, match="cannot be pooled over language pairs"):
        compare(Statistic("pearson", "system"), grids, ["good"], Plan("micro", 0, 0))


@pytest.mark.parametrize("by", ["none", "item", "system"])
def test_one_language_pair_pooled_is_itself(by):
    grid = noisy()
    alone = segment_figure(Statistic("kendall", by=by), *grid.segment_scores("good"))
    whole = segment_figure(Statistic("kendall", by=by), *pooled([grid], by).segment_scores("good"))
    assert alone.value == pytest.approx(whole.value)


def test_clusters_begin_where_one_of_the_rank_is_better():
    yes, no = Verdict(0.01, 1, 0), Verdict(0.5, 0, 0)
    verdicts = {
        ("a", "b"): no,
        ("a", "c"): yes,
        ("b", "c"): no,
        ("a", "d"): yes,
        ("b", "d"): yes,
        ("c", "d"): no,
    }
    assert clusters(["a", "b", "c", "d"], verdicts, 0.05) == [1, 1, 2, 2]


def test_the_signature_says_what_a_figure_depends_on():
    found = compare(Statistic("acc_eq", by="item", epsilon=None), [noisy()], ["good", "poor"], QUICK)
    for part in (
        "stat:segment:acc_eq*/item",
        "pairs:en-de",
        "avg:macro",
        "boot:items.50",
        "test:items.1.exact+0.of.200",
        "seed:0",
        "version:doubtless.",
    ):
        assert part in found.signature


def test_rows_become_grids_and_what_is_absent_is_missing():
    rows = [
        {"lp": "en-de", "system": "A", "seg": 1, "human": 1.0, "m": 0.1},
        {"lp": "en-de", "system": "B", "seg": 1, "human": 2.0, "m": 0.2},
        {"lp": "en-de", "system": "A", "seg": 2, "human": 3.0, "m": 0.3},
        {"lp": "en-cs", "system": "C", "seg": 1, "human": 4.0, "m": 0.4},
    ]
    table = as_table(rows)
    grids = grids_of(table, table.numbers("human"), {"m": table.numbers("m")})
    assert [grid.name for grid in grids] == ["en-de", "en-cs"]
    assert grids[0].missing == 1
    assert grids[0].system_scores("m")[0].tolist() == [2.0, 2.0]
    twice = as_table([*rows, rows[1]])
    with pytest.raises(InputError, match="row 2: 'en-de B 1' occurs more than once"):
        grids_of(twice, twice.numbers("human"), {})


def test_a_metric_must_score_what_humans_scored():
    human, metric = random_grid(systems=3, items=4, missing=0.0, seed=0)
    metric[1, 2] = np.nan
    with pytest.raises(
        InputError, match="en-de: metric 'm' has no score for 1 translations that humans scored"
    ):
        Grid("en-de", tuple("abc"), human, {"m": metric})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Statistic("pearsson"), "there is no segment figure 'pearsson'"),
        (lambda: Statistic("spa", "system", "item"), "system scores cannot be grouped by 'item'"),
        (
            lambda: Statistic("pearson", epsilon=None),
            "only tau_23 and acc_eq of segments take a tie threshold",
        ),
        (lambda: Statistic("pearson", undefined="skip"), "undefined is drop or zero"),
        (lambda: Plan(unit="words"), "a unit is items, pairs or scores, found 'words'"),
        (lambda: Plan(test="sign"), "a test is permutation or williams, found 'sign'"),
        (lambda: Plan("median"), "an average is macro or micro, found 'median'"),
        (lambda: preset("wmt99"), "there are no rules 'wmt99', expected one of: wmt22, wmt23, wmt24"),
    ],
)
def test_what_is_not_known_is_said(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_the_rules_of_2023_weigh_the_pooled_accuracy_as_its_pairs():
    tasks = tasks_of(preset("wmt23"), ["zh-en", "en-de", "he-en"])
    assert len(tasks) == 10
    assert tasks[0].weight == pytest.approx(3 / 12)
    assert tasks[0].average == "micro"
    assert sum(task.weight for task in tasks) == pytest.approx(1)


def test_the_rules_of_2022_share_weight_level_by_level():
    tasks = tasks_of(preset("wmt22"), ["en-de", "en-ru"], {"en-de": ["news", "social"]}, ["en-de"])
    assert sum(task.weight for task in tasks) == pytest.approx(1)
    # Pooled accuracy, then en-de: 3 domains x 2 ways x (2 + 6), then en-ru: 1 x 1 x 8.
    assert len(tasks) == 1 + 48 + 8
    assert tasks[0].weight == pytest.approx(1 / 3)


@pytest.mark.parametrize("year", ["wmt22", "wmt23", "wmt24"])
def test_a_year_is_run_from_its_rules(year):
    grids = {grid.name: grid for grid in (noisy(seed=1), noisy(seed=2, name="zh-en"))}
    rules = preset(year)
    metrics = ["poor", "good", "also", "constant"]
    plan = Plan(resamples=0, draws=100)
    found = run(rules, tasks_of(rules, list(grids)), lambda pair, humans, domain: grids[pair], metrics, plan)
    assert set(list(found.values)[:2]) == {"good", "also"}
    assert found.ranks["poor"] > found.ranks["good"]
    assert found.signature.startswith(f"preset:{year}|")
    if year == "wmt24":
        tasks = [found.tasks[i][1].standings for i in range(4)]
        expected = np.mean([next(s.value for s in task if s.metric == "good") for task in tasks])
        assert found.values["good"] == pytest.approx(expected)
