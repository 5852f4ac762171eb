"""Early exit and reranking with the bundled model: run by ``make check-data``, skipped without the data."""

from __future__ import annotations

import numpy as np
import pytest

from doubtless.errors import InputError
from doubtless.neural.exits import ExitRule
from doubtless.reproduce import Options, find
from doubtless.reproduce.early_exit import kept_at

QUICK = Options(splits=5, quick=True)


@pytest.mark.data
def test_later_layers_agree_more(data):
    rows = find("exit-table2").run(str(data), QUICK)
    assert rows[-1]["last"] == pytest.approx(1)
    assert rows[0]["last"] < rows[5]["last"] < rows[9]["last"]
    assert rows[0]["human"] < rows[-1]["human"]
    assert rows[0]["paper_human"] == 0.034
    assert rows[-1]["paper_human"] == 0.309


@pytest.mark.data
def test_confidence_says_when_to_leave(data):
    rows = {row["cost"]: row for row in find("exit-figure4").run(str(data), QUICK)}
    for cost in (0.2, 0.25, 0.3):
        assert rows[cost]["last_confidence"] > rows[cost]["last_constant"]
    for cost in (0.2, 0.3, 0.4, 0.5):
        assert rows[cost]["last_confidence"] > rows[cost]["last_variance"]


@pytest.mark.data
def test_candidates_are_found_early(data):
    rows = find("rerank-figure5").run(str(data), QUICK)
    found = {(row["method"], row["budget"]): row for row in rows}
    for budget in (0.65, 0.75):
        for method in ("ucb", "halving"):
            assert found[method, budget]["top1"] > found["random", budget]["top1"]
            assert found[method, budget]["lost"] < found["random", budget]["lost"]
    assert all(row["cost"] <= row["budget"] + 0.02 for row in rows)


def test_the_table_of_sampled_candidates_asks_for_them():
    with pytest.raises(InputError, match=r"--sets FILE \(recipes/candidates.py makes one\)"):
        find("rerank-table4").run(None)


def test_rules_are_compared_at_equal_cost():
    random = np.random.default_rng(0)
    exits, last, noise = (1, 2, 3, 4), random.normal(size=500), random.normal(size=500)
    size = random.uniform(0, 2, 500)
    score = last + np.array([1.0, 0.5, 0.2, 0.0])[:, None] * size * noise
    traced = {"score": score, "error": np.ones_like(score), "change": np.abs(score - last)}
    r = [np.corrcoef(row, last)[0, 1] for row in score]

    def kept(kind, cost):
        return kept_at(cost, ExitRule(kind, 0.0), exits, traced, {"last": last})["last"]

    # A constant exit runs as deep as the cost says, and between two layers it is between what they keep.
    assert kept("constant", 0.5) == pytest.approx(r[1])
    assert kept("constant", 0.6) == pytest.approx(r[1] + 0.4 * (r[2] - r[1]))
    assert kept("constant", 1.0) == pytest.approx(1)
    # Whoever knows the change leaves first where it is smallest: at half of the cost rows of layers 1 to 4.
    assert kept("confidence", 0.5) > kept("constant", 0.5)
    left = np.sort(np.abs(score[0] - last))
    tolerance = float(left[250])
    place = np.argmax(np.vstack([traced["change"][:-1] < tolerance, np.ones((1, 500))]), axis=0)
    cost = (place + 1).mean() / 4
    expected = np.corrcoef(score[place, np.arange(500)], last)[0, 1]
    assert kept("confidence", cost) == pytest.approx(expected, abs=1e-3)
