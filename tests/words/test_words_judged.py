"""The studies of judged words on real data, in small."""

from __future__ import annotations

import pytest

from doubtless.reproduce import Options, find

pytestmark = pytest.mark.data


def test_recorded_surprisal_finds_more_than_chance_on_every_pair(data):
    rows = find("words-mlqe").run(str(data), Options(sets=("dev",), quick=True))
    assert [row["lp"] for row in rows] == [
        "en-de",
        "en-zh",
        "et-en",
        "ne-en",
        "ro-en",
        "ru-en",
        "si-en",
        "mean",
    ]
    for row in rows:
        assert row["surprisal_ap"] > row["random_ap"]
        assert row["surprisal_f1"] >= row["random_f1"]


def test_correlations_are_over_one_two_and_three_of_the_raters(data):
    rows = find("words-figure3").run(str(data), Options(quick=True))
    assert {row["annotators"] for row in rows} == {1, 2, 3}
    for row in rows:
        assert row["low"] <= row["median"] <= row["high"]


def test_raters_stand_beside_the_metrics(data):
    rows = {row["metric"]: row for row in find("words-raters").run(str(data), Options(quick=True))}
    assert rows["human min"]["ap"] <= rows["human mean"]["ap"] <= rows["human max"]["ap"]
    assert rows["human mean"]["ap"] > rows["random"]["ap"]
    pairs = find("words-compared").run(str(data), Options(quick=True))
    assert len(pairs) == 6
    assert all(row["low"] <= row["value"] <= row["high"] for row in pairs)
