"""Table 2 of Beck et al. (2016) on real data: run by ``make check-data``."""

from __future__ import annotations

import pytest

from doubtless.reproduce import Options, find

pytestmark = pytest.mark.data


def test_warped_models_decide_better_and_figures_are_the_papers(data):
    options = Options(sets=("wmt14_en-es",), models=("none-mat52", "log-mat52"))
    rows = find("risk-table2").run(str(data), options)
    assert len(rows) == 8
    for row in rows:
        assert row["published"] == pytest.approx(row["paper_published"], rel=0.05)
    plain, warped = rows[:4], rows[4:]
    for ours, theirs in zip(warped[:3], plain[:3], strict=True):
        assert ours["published"] < theirs["published"]
        assert ours["exact"] <= ours["estimator"]
    # The surprise of the paper: under pessimistic linex the plain process wins. It has no exact decision
    # for log-normal times, whose expected loss is infinite.
    assert warped[3]["published"] > plain[3]["published"]
    assert warped[3]["exact"] is None
