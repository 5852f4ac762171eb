from __future__ import annotations

import numpy as np
import pytest
from grids import random_grid
from hypothesis import given
from hypothesis import strategies as st

from doubtless.metaeval import pairs, ties
from doubtless.metaeval.pairs import count_pairs, grouped
from doubtless.metaeval.ties import TieSweep, calibrate_ties

cells = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 9)), min_size=4, max_size=40
)


def as_grid(rows):
    rows = rows[: len(rows) // 4 * 4]
    human = np.array([np.nan if h is None else h for h, _ in rows], dtype=float).reshape(4, -1)
    return human, np.array([m / 7 for _, m in rows]).reshape(4, -1)


def by_trying_all(human, metric):
    steps = np.abs(metric[:, None] - metric[None]).ravel()
    values = {}
    for epsilon in np.unique(np.append(steps, 0.0)):
        shares = count_pairs(human, metric, epsilon).acc_eq()
        values[epsilon] = float(np.nanmean(shares)) if np.isfinite(shares).any() else float("nan")
    return values


@given(cells)
def test_the_sweep_finds_what_trying_all_thresholds_finds(rows):
    human, metric = as_grid(rows)
    values = by_trying_all(human, metric)
    best = calibrate_ties(human, metric)
    if all(np.isnan(v) for v in values.values()):
        assert np.isnan(best.accuracy)
        return
    assert best.accuracy == pytest.approx(max(values.values()))
    assert values[best.epsilon] == pytest.approx(best.accuracy)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("by", ["none", "item", "system"])
def test_not_keeping_the_pairs_changes_nothing(monkeypatch, by, missing):
    human, metric = random_grid(systems=7, items=80, missing=missing, seed=3)
    metric = metric + 0.01 * np.random.default_rng(0).normal(size=metric.shape)
    human, metric = grouped(human, by), grouped(metric, by)
    kept = calibrate_ties(human, metric)
    monkeypatch.setattr(ties, "MOST_PAIRS", 10)
    monkeypatch.setattr(pairs, "BLOCK", 500)
    passed = calibrate_ties(human, metric)
    assert passed.accuracy == pytest.approx(kept.accuracy, abs=1e-12)
    assert passed.epsilon == pytest.approx(kept.epsilon)


def test_weights_are_repetitions():
    human, metric = random_grid(systems=5, items=30, missing=0.2, seed=2)
    times = np.random.default_rng(0).integers(0, 4, 30)
    weighted = TieSweep.of(human, metric).best_weighted(times.astype(float))
    repeated = calibrate_ties(np.repeat(human, times, axis=1), np.repeat(metric, times, axis=1))
    assert weighted.accuracy == pytest.approx(repeated.accuracy)


@given(cells)
def test_long_groups_are_counted_as_short_ones(rows):
    human, metric = (grouped(x, "none") for x in as_grid(rows))
    short = count_pairs(human, metric)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "SHORT", 1)
        long = count_pairs(human, metric)
        near = count_pairs(human, metric, 0.2)
    for name in ("concordant", "discordant", "ties_human", "ties_metric", "ties_both"):
        assert getattr(short, name).tolist() == getattr(long, name).tolist()
    assert near.acc_eq().tolist() == pytest.approx(
        count_pairs(human, metric, 0.2).acc_eq().tolist(), nan_ok=True
    )


def test_tiny_differences_are_differences():
    human = np.array([[1e-200], [3e-200], [2e-200]])
    assert count_pairs(human, human).concordant.tolist() == [3]
