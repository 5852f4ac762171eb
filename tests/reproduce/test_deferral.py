"""Deferral and unfinished translations on real data: run by ``make check-data``."""

from __future__ import annotations

import pytest

from doubtless.errors import InputError
from doubtless.reproduce import Options, find

pytestmark = pytest.mark.data


def test_recorded_ensembles_defer_better_than_chance(data):
    rows = find("defer-figure6").run(str(data), Options(sets=("wmt20",), quick=True))
    assert {row["unit"] for row in rows} == {"segments", "words"}
    known = {(row["unit"], row["rule"], row["share"]): row for row in rows}
    assert known["segments", "oracle-error", 0.4]["gain"] > 0
    assert known["segments", "confidence", 0.1]["gain"] > 0


def test_low_scores_are_longer_than_uncertain_ones(data):
    (row,) = find("defer-length").run(str(data), Options(sets=("wmt20",)))
    assert row["low_score"] > row["low_confidence"]


def test_an_unknown_set_is_named(data):
    with pytest.raises(InputError, match="no set 'wmt99'"):
        find("defer-figure6").run(str(data), Options(sets=("wmt99",)))
