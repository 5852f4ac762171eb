"""Early exit and reranking with the bundled model: run by ``make check-data``, skipped without the data."""

from __future__ import annotations

import pytest

from doubtless.errors import InputError
from doubtless.reproduce import Options, find

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
    for cost in (0.35, 0.4, 0.45, 0.5):
        assert rows[cost]["last_confidence"] > rows[cost]["last_constant"]
        assert rows[cost]["last_confidence"] > rows[cost]["last_variance"]


@pytest.mark.data
def test_candidates_are_found_early(data):
    rows = find("rerank-figure5").run(str(data), QUICK)
    found = {(row["method"], row["budget"]): row for row in rows}
    for budget in (0.45, 0.55, 0.65):
        assert found["race", budget]["top1"] > found["random", budget]["top1"]
        assert found["race", budget]["score"] > found["random", budget]["score"]
    assert all(row["cost"] <= row["budget"] + 0.02 for row in rows)


def test_the_table_of_sampled_candidates_asks_for_them():
    with pytest.raises(InputError, match=r"--sets FILE \(recipes/candidates.py makes one\)"):
        find("rerank-table4").run(None)
